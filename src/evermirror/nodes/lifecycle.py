"""What every role does around its work: claim the data folder, tell systemd, listen for signals."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

from evermirror.errors import EnvironmentUnfit


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Holds the data folder for this process alone; a second process gets a clear refusal."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EnvironmentUnfit(
            f"data folder {folder} cannot be written: {error.strerror}",
            hint="Give another one with --data, or change its owner",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise EnvironmentUnfit(
            f"data folder {folder} is in use by another evermirror process",
            hint="Stop that one, or give another folder with --data",
        ) from error
    try:
        yield
    finally:
        os.close(handle)


def bind(listen: str) -> socket.socket:
    """A listening socket for ``host:port``; a taken port is told at once, before anything else starts."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, int(port)))
    except OSError as error:
        sock.close()
        raise EnvironmentUnfit(
            f"cannot listen on {listen}: {error.strerror}",
            hint="Another program (perhaps another evermirror) has the port: choose one with --listen",
        ) from error
    sock.listen(2048)
    sock.setblocking(False)
    return sock


def notify(state: str) -> None:
    """One sd_notify message, e.g. ``READY=1``; nothing happens where systemd did not start us."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(state.encode(), address)


async def watchdog() -> None:
    """Tells systemd's watchdog twice per period that the event loop is alive."""
    period_us = int(os.environ.get("WATCHDOG_USEC", "0"))
    while period_us:
        notify("WATCHDOG=1")
        await asyncio.sleep(period_us / 2_000_000)


class Signals:
    """SIGTERM and SIGINT ask for a graceful stop, SIGHUP for a reload; a second stop signal does not wait.

    A SIGHUP that comes because the terminal was closed from which the process was started asks for a stop,
    unless ``nohup`` started it: nobody sees such a process any more, and it would hold its data folder."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.reload = asyncio.Event()
        self._from_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _hang_up(self) -> None:
        if self._from_terminal and not has_terminal():
            self.stop.set()
        else:
            self.reload.set()

    def _stop(self) -> None:
        if self.stop.is_set():
            os._exit(130)  # asked twice: the operator does not want to wait; every write is crash-safe
        self.stop.set()


def has_terminal() -> bool:
    """Whether this process has a terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
