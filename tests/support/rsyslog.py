"""A real rsyslogd that writes each record it understands as a line of JSON."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.support.ports import free_port

START_TIMEOUT_S = 20
DRIVERS = Path("/usr/lib")

_CONFIG = """\
global(workDirectory="{folder}" maxMessageSize="8k")
{tls_global}
module(load="imudp")
module(load="imtcp" {tls_module})
template(name="line" type="list" option.jsonf="on") {{
    property(outname="pri" name="pri" format="jsonf")
    property(outname="facility" name="syslogfacility-text" format="jsonf")
    property(outname="severity" name="syslogseverity-text" format="jsonf")
    property(outname="version" name="protocol-version" format="jsonf")
    property(outname="time" name="timestamp" dateFormat="rfc3339" format="jsonf")
    property(outname="host" name="hostname" format="jsonf")
    property(outname="app" name="app-name" format="jsonf")
    property(outname="procid" name="procid" format="jsonf")
    property(outname="msgid" name="msgid" format="jsonf")
    property(outname="data" name="structured-data" format="jsonf")
    property(outname="msg" name="msg" format="jsonf")
    property(outname="raw" name="rawmsg" format="jsonf")
}}
ruleset(name="all") {{ action(type="omfile" file="{folder}/records" template="line") }}
input(type="imudp" address="127.0.0.1" port="{port}" ruleset="all")
input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="all")
"""
_TLS_GLOBAL = """\
global(defaultNetstreamDriverCAFile="{ca}" defaultNetstreamDriverCertFile="{cert}"
       defaultNetstreamDriverKeyFile="{key}")
"""
_TLS_MODULE = 'StreamDriver.Name="ossl" StreamDriver.Mode="1" StreamDriver.AuthMode="{auth}"'


def find_rsyslogd() -> str | None:
    return shutil.which("rsyslogd", path=os.environ.get("PATH", "") + ":/usr/sbin")


def has_tls() -> bool:
    return any(DRIVERS.glob("*/rsyslog/lmnsd_ossl.so"))


class Rsyslog:
    """Listens at one port for UDP and TCP. ``tls``: (CA, certificate, key) files; then TCP is TLS, and with
    ``clients_checked`` nobody without a certificate of that CA is heard."""

    def __init__(
        self,
        folder: Path,
        program: str,
        tls: tuple[Path, Path, Path] | None = None,
        *,
        clients_checked: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._records = folder / "records"
        auth = "x509/certvalid" if clients_checked else "anon"
        config = _CONFIG.format(
            folder=folder,
            port=self.port,
            tls_global=_TLS_GLOBAL.format(ca=tls[0], cert=tls[1], key=tls[2]) if tls else "",
            tls_module=_TLS_MODULE.format(auth=auth) if tls else "",
        )
        (folder / "rsyslog.conf").write_text(config, "utf-8")
        with open(folder / "log", "wb") as log:
            command = [program, "-n", "-f", str(folder / "rsyslog.conf"), "-i", str(folder / "pid")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._log = folder / "log"
        self._wait()

    def records(self, count: int, timeout_s: float = 10.0) -> list[dict[str, str]]:
        """The records so far, once there are so many."""
        end = time.monotonic() + timeout_s
        while True:
            lines = self._records.read_text("utf-8").splitlines() if self._records.exists() else []
            if len(lines) >= count or time.monotonic() > end:
                assert len(lines) >= count, (lines, self._log.read_text("utf-8", "replace"))
                return [json.loads(line) for line in lines]
            time.sleep(0.02)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)

    def _wait(self) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.close()
        raise RuntimeError("rsyslogd did not start: " + self._log.read_text("utf-8", "replace"))
