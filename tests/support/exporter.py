"""Node exporters for tests: the real program, and one whose CPUs are as busy as a test says."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from tests.support.ports import free_port
from tests.support.raw_server import Conversation, raw_server

START_S = 20.0


@contextlib.contextmanager
def real_exporter() -> Iterator[str]:
    """The URL of its metrics."""
    program = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
    assert program is not None, "prometheus-node-exporter is not installed: tools/test-needs names it"
    port = free_port()
    child = subprocess.Popen(
        [program, f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, child)
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        child.terminate()
        child.wait(10)


def _wait_for(port: int, child: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while True:
        assert child.poll() is None, "the exporter ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < end
        time.sleep(0.05)


@dataclass
class ServedExporter:
    """Each look finds a second more of every CPU's time, so busy. ``status``: another than 200 is all it
    says."""

    percent: float = 10.0
    available: float = 0.5
    status: int = 200
    url: str = ""
    looks: int = 0
    _busy_s: float = 1000.0
    _idle_s: float = 9000.0

    def text(self) -> str:
        self._busy_s += self.percent / 100
        self._idle_s += 1 - self.percent / 100
        lines = [
            "# HELP node_cpu_seconds_total Seconds the CPUs spent in each mode.",
            "# TYPE node_cpu_seconds_total counter",
        ]
        for cpu in range(4):
            lines += [
                f'node_cpu_seconds_total{{cpu="{cpu}",mode="idle"}} {self._idle_s}',
                f'node_cpu_seconds_total{{cpu="{cpu}",mode="user"}} {self._busy_s}',
            ]
        lines += [
            f"node_memory_MemAvailable_bytes {self.available * 8e9:g}",
            "node_memory_MemTotal_bytes 8e+09",
            f'node_network_receive_bytes_total{{device="eth0"}} {self.looks * 1e6:g}',
        ]
        return "\n".join(lines) + "\n"

    async def talk(self, conversation: Conversation) -> None:
        while True:
            await conversation.request()
            self.looks += 1
            body = self.text().encode() if self.status == 200 else b""
            head = f"HTTP/1.1 {self.status} Said\r\nContent-Length: {len(body)}\r\n\r\n"
            await conversation.say(head.encode() + body)


@contextlib.asynccontextmanager
async def served_exporter(**how: float) -> AsyncIterator[ServedExporter]:
    exporter = ServedExporter(**how)
    async with raw_server(exporter.talk) as server:
        exporter.url = f"http://127.0.0.1:{server.port}/metrics"
        yield exporter
