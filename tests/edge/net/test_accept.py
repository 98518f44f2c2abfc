"""Connections are bounded in all and by address; without descriptors accepting waits, and says so once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from evermirror.core.fairness import FairShare
from evermirror.edge.net.accept import Acceptor, listen

HOST = "127.0.0.1"


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


@contextlib.asynccontextmanager
async def accepting(room=None):
    sock = socket.create_server((HOST, 0))
    sock.setblocking(False)
    port = sock.getsockname()[1]
    acceptor = Acceptor([sock], Echo, room=room)
    try:
        yield port
    finally:
        acceptor.close()
        await acceptor.wait_closed()


async def connect(port, address=HOST):
    """A connection that was answered, or None where it was closed."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.bind((address, 0))
    client.setblocking(False)
    with contextlib.suppress(ConnectionError):
        await loop.sock_connect(client, (HOST, port))
        await loop.sock_sendall(client, b"x")
        if await loop.sock_recv(client, 1) == b"x":
            return client
    client.close()
    return None


async def until_used(room, count):
    async with asyncio.timeout(30):
        while room.used > count:
            await asyncio.sleep(0.01)


async def test_one_address_cannot_take_all_connections_and_gets_its_own_back():
    room = FairShare(8, 6)
    async with accepting(room) as port, contextlib.AsyncExitStack() as stack:
        made = [await connect(port, "127.0.0.2") for _ in range(12)]
        mine = [stack.enter_context(client) for client in made if client is not None]
        assert len(mine) == 4
        assert stack.enter_context(await connect(port, "127.0.0.3"))
        mine[0].close()
        await until_used(room, 4)
        assert stack.enter_context(await connect(port, "127.0.0.2"))


async def test_a_connection_that_ends_in_any_way_gives_its_place_back():
    room = FairShare(100)
    async with accepting(room) as port:
        for reset in (False, True):
            client = await connect(port)
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            socket.create_connection((HOST, port)).close()
        await until_used(room, 0)


async def test_a_name_is_listened_on_and_an_address_in_use_is_told():
    acceptor = await listen("localhost", 0, Echo, 10)
    try:
        port = acceptor.sockets[0].getsockname()[1]
        (await connect(port)).close()
        with pytest.raises(OSError, match="in use"):
            await listen(HOST, port, Echo, 10)
    finally:
        acceptor.close()


SERVER = """
    import asyncio, contextlib, os, resource, sys, threading
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    from evermirror.nodes import http_server, lifecycle

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def main():
        sock = lifecycle.bind("127.0.0.1:0")
        async with http_server.serving(app, sock):
            print("port", sock.getsockname()[1], flush=True)
            held = []
            idle = len(os.listdir("/proc/self/fd"))
            while True:
                command = (await asyncio.to_thread(sys.stdin.readline)).strip()
                if command == "fill":
                    while len(os.listdir("/proc/self/fd")) > idle:  # an answered connection still closes
                        await asyncio.sleep(0.01)
                    with contextlib.suppress(OSError):
                        while True:
                            held.append(os.open("/dev/null", os.O_RDONLY))
                elif command == "free":
                    while held:
                        os.close(held.pop())
                else:
                    return
                print("done", flush=True)

    asyncio.run(main())
"""


def test_without_descriptors_connections_wait_and_the_log_stays_short(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as errors, subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVER)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        cwd=Path(__file__).parents[3],
    ) as server, contextlib.ExitStack() as stack:  # fmt: skip
        stack.callback(server.kill)
        heard = []

        def until(word):
            for line in server.stdout:
                heard.append(line)
                if line.startswith(word):
                    return line
            raise AssertionError("".join(heard) + log.read_text())

        def tell(command):
            server.stdin.write(f"{command}\n")
            server.stdin.flush()
            until("done")

        port = int(until("port").split()[1])
        assert answer(port) == b"HTTP/1.1 200 OK"
        tell("fill")
        waiting = [stack.enter_context(socket.create_connection((HOST, port))) for _ in range(10)]
        for connection in waiting:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        waiting[0].settimeout(1.5)  # accepting is tried again in the meantime
        with pytest.raises(TimeoutError):
            waiting[0].recv(100)
        tell("free")
        for connection in waiting:
            connection.settimeout(30)
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
            connection.close()
        server.stdin.write("stop\n")
        server.stdin.flush()
        heard += server.stdout.readlines()
        assert server.wait(30) == 0
    told = "".join(heard) + log.read_text()
    assert told.count("no more open files") == 1
    assert len(told) < 5_000


def answer(port):
    with socket.create_connection((HOST, port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return connection.recv(15)
