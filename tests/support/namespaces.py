"""A small internet of network namespaces: a home behind a NAT, a public place, and an upstream elsewhere.

    home 192.168.77.2 ── router (masquerades; lets nothing in) ── public 10.77.1.2
                                     └──────────────────────────── upstream 10.77.2.2

Rules: all is removed at the end; nothing of the machine's own network is touched; it takes root.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

HOME, PUBLIC, UPSTREAM = "192.168.77.2", "10.77.1.2", "10.77.2.2"
_CLONE_NEWNET = 0x40000000
_PLACES = ("home", "router", "public", "upstream")
_RULES = """
table ip household {
    chain leaving { type nat hook postrouting priority 100; oifname != "home0" masquerade; }
    chain passing {
        type filter hook forward priority 0; policy accept;
        ct state established,related accept
        oifname "home0" drop
    }
}
"""
_RAIN = """
table ip weather {{
    chain rain {{
        type filter hook forward priority -10;
        numgen random mod 100 < {percent} drop
    }}
}}
"""


def lacking() -> str:
    """Why there can be none here; empty where there can."""
    if os.geteuid() != 0:
        return "makes network namespaces, which takes root"
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("nft", "nftables")):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (make needs; or Debian: apt-get install {package})"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"network namespaces cannot be made here: {tried.stderr.strip()}"


class Internet:
    """Use as a context manager."""

    def __init__(self) -> None:
        self._prefix = f"em{os.getpid()}-"

    def __enter__(self) -> Internet:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _build(self) -> None:
        for place in _PLACES:
            _run("ip", "netns", "add", self._prefix + place)
            self.run(place, "ip", "link", "set", "lo", "up")
        for place, own, router in (
            ("home", HOME, "192.168.77.1"),
            ("public", PUBLIC, "10.77.1.1"),
            ("upstream", UPSTREAM, "10.77.2.1"),
        ):
            there = self._prefix + place
            peer = ("peer", "name", f"{place}0", "netns", self._prefix + "router")
            _run("ip", "link", "add", "eth0", "netns", there, "type", "veth", *peer)
            for where, link, address in ((place, "eth0", own), ("router", f"{place}0", router)):
                self.run(where, "ip", "address", "add", f"{address}/24", "dev", link)
                self.run(where, "ip", "link", "set", link, "up")
            self.run(place, "ip", "route", "add", "default", "via", router)
        self.run("router", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        self.run("router", "nft", "-f", "-", stdin=_RULES)

    def close(self) -> None:
        """Namespaces end with their last process; links with them."""
        for place in _PLACES:
            name = self._prefix + place
            if Path("/run/netns", name).exists():
                _run("ip", "netns", "delete", name)

    def run(self, place: str, *command: str, stdin: str = "") -> str:
        return _run("ip", "netns", "exec", self._prefix + place, *command, stdin=stdin)

    @contextlib.contextmanager
    def inside(self, place: str) -> Iterator[None]:
        """What this thread opens and starts meanwhile is there."""
        back = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self._prefix}{place}", os.O_RDONLY)
        try:
            _enter(there)
            yield
        finally:
            _enter(back)
            os.close(there)
            os.close(back)

    # Weather at home

    @contextlib.contextmanager
    def slow(self, bytes_per_s: int) -> Iterator[None]:
        """So much leaves the home at most."""
        shape = ("rate", f"{8 * bytes_per_s}bit", "burst", "256k", "latency", "100ms")
        self.run("home", "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *shape)
        try:
            yield
        finally:
            self.run("home", "tc", "qdisc", "delete", "dev", "eth0", "root")

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """Nothing passes, and nobody is told."""
        self.run("router", "ip", "link", "set", "home0", "down")
        try:
            yield
        finally:
            self.run("router", "ip", "link", "set", "home0", "up")

    @contextlib.contextmanager
    def losing(self, percent: int) -> Iterator[None]:
        """Of all that comes and goes, so much is lost on the way."""
        self.run("router", "nft", "-f", "-", stdin=_RAIN.format(percent=percent))
        try:
            yield
        finally:
            self.run("router", "nft", "delete", "table", "ip", "weather")


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str, stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
