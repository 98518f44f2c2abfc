"""What real processes write when no terminal is there: JSON, line by line, whatever happens to them."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl

import pytest

from tests.support.fleet_processes import FleetProcesses

pytestmark = pytest.mark.slow

SETTINGS = {"EVERMIRROR_FLEET__MIN_WORKERS": "1", "EVERMIRROR_FLEET__HEARTBEAT": "1s"}


def annoy(address: str) -> None:
    """Strangers at the door: no TLS at all, a handshake that ends in the middle, TLS without our CA."""
    host, _, port = address.rpartition(":")
    for words in (b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x00"):
        with socket.create_connection((host, int(port)), timeout=5) as line:
            line.sendall(words)
            with contextlib.suppress(OSError):
                line.recv(100)
    with (
        contextlib.suppress(ssl.SSLError),
        socket.create_connection((host, int(port)), timeout=5) as line,
        ssl.create_default_context().wrap_socket(line, server_hostname="localhost"),
    ):
        pass


def not_ours(log: str) -> list[str]:
    """Lines that are not of our log."""
    found = []
    for line in log.splitlines():
        try:
            assert "event" in json.loads(line)
        except (ValueError, AssertionError):
            found.append(line)
    return found


def test_every_line_is_of_our_log_also_of_strangers_at_the_door_and_of_a_coordinator_that_dies(
    tmp_path, upstream
):
    with contextlib.closing(FleetProcesses(tmp_path / "fleet", upstream, SETTINGS)) as fleet:
        fleet.create(["team/x"])
        fleet.prepare()
        worker = fleet.workers["ann"] = fleet.node("ann")
        fleet.coordinator.only_logs = worker.only_logs = True
        fleet.lead()
        worker.start("worker", "join", fleet.address, fleet.token("ann"))
        fleet.settle()
        annoy(fleet.address)
        fleet.coordinator.kill()
        fleet.until(lambda: "no connection to the coordinator" in worker.log())
        fleet.lead()
        fleet.until(lambda: worker.log().count("connected to the coordinator") >= 2)
        assert worker.stop() == 0
        assert fleet.coordinator.stop() == 0
        assert fleet.coordinator.log().count("{") > 3
        assert (not_ours(worker.log()), not_ours(fleet.coordinator.log())) == ([], [])
