"""Clients without a token that ask for as much as they can, and an honest one beside them: a real node, real
sockets, a real git. Hostile clients come from other addresses of the loopback network."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import socket
import subprocess

from evermirror.edge.git.pktline import encode
from evermirror.edge.git.serve_request import RequestScan
from tests.support.gitrepo import clean_git_env, run_git

ENOUGH_BYTES = 8_000_000  # more than the system keeps of one connection for a client that does not read
UNKNOWN = b"1" * 40  # something that a client says it has: its answer is for nobody else


class Hostile:
    """One connection that never reads more than it must."""

    def __init__(self, node_url, address):
        host, port = node_url.removeprefix("http://").split(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.bind((address, 0))
        self.socket.setblocking(False)
        self._to = (host, int(port))

    async def send(self, data):
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self.socket, self._to)
        with contextlib.suppress(ConnectionError):  # it was refused before all was sent
            await loop.sock_sendall(self.socket, data)

    async def first_line(self):
        with contextlib.suppress(ConnectionError):
            return (await asyncio.get_running_loop().sock_recv(self.socket, 100)).split(b"\r\n")[0]
        return b""

    async def everything(self):
        got = bytearray()
        while data := await asyncio.get_running_loop().sock_recv(self.socket, 65_536):
            got += data
            if got.endswith(b"\r\n0\r\n\r\n"):
                break
        return bytes(got)


@contextlib.asynccontextmanager
async def many(up, addresses, request):
    clients = [Hostile(up.node.url, address) for address in addresses]
    sending = [asyncio.create_task(client.send(request)) for client in clients]
    try:
        yield clients
    finally:
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        for client in clients:
            client.socket.close()


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def post(key, body, *, zipped=False, length=None):
    encoding = "Content-Encoding: gzip\r\n" if zipped else ""
    head = (
        f"POST /git/{key}/git-upload-pack HTTP/1.1\r\nHost: 127.0.0.1\r\nGit-Protocol: version=2\r\n"
        f"Content-Type: application/x-git-upload-pack-request\r\n{encoding}"
        f"Content-Length: {length or len(body)}\r\n\r\n"
    )
    return head.encode() + body


def uncacheable(tip):
    lines = (b"want " + tip.encode(), b"have " + UNKNOWN, b"done")
    return encode(b"command=fetch") + b"0001" + b"".join(map(encode, lines)) + b"0000"


def make_large(repo):
    def made(*command, given):
        argv = ["git", "-C", repo.path, *command]
        return subprocess.check_output(argv, input=given, env=clean_git_env(repo.path)).decode().strip()

    blob = made("hash-object", "-w", "--stdin", given=os.urandom(ENOUGH_BYTES))
    tree = made("mktree", given=f"100644 blob {blob}\tlarge\n".encode())
    commit = made("commit-tree", tree, given=b"large")
    run_git(repo.path, "update-ref", "refs/heads/main", commit)
    return commit


async def honest(up, name, folder):
    """A clone, and a probe, both while the others go on."""
    url = f"{up.node.url}/git/{up.key(name)}"
    argv = ["git", "clone", "-q", "--bare", url, str(folder)]
    done = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, env=clean_git_env(folder.parent)
    )
    assert done.returncode == 0, done.stderr
    assert (await up.client.get("/healthz")).status_code == 200


async def mirrored(up, upstream, *names):
    repos = [upstream.create(name) for name in names]
    for repo in repos:
        await up.add(repo.url)
        await up.until_status(repo.name, "active")
    return repos


def figure(text, name):
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


async def test_who_reads_slowly_is_cut_as_soon_as_somebody_waits(stage, upstream, tmp_path, monkeypatch):
    monkeypatch.setattr("evermirror.core.fairness.PATIENCE_S", 0.3)
    large = upstream.create("large")
    tip = make_large(large)
    limits = {"packs": 4, "pace": "100MB", "queue_wait": "60s"}
    async with stage.up(serve=limits, schedule={"min_gap": "1h"}) as up:
        await up.add(large.url)
        await up.until_status("large", "active")
        await mirrored(up, upstream, "small")

        async def running():
            return figure((await up.client.get("/metrics")).text, "evermirror_git_running")

        addresses = [f"127.0.0.{n}" for n in (2, 3, 4, 5)]
        async with many(up, addresses, post(up.key("large"), uncacheable(tip))) as clients:
            await up.until(lambda: _is(running, 4.0))
            await honest(up, "small", tmp_path / "clone")
            metrics = (await up.client.get("/metrics")).text
            assert figure(metrics, "evermirror_git_cut_total") == 1
            assert len(clients) == 4


async def test_who_reads_slowly_while_nobody_waits_gets_everything(stage, upstream, monkeypatch):
    monkeypatch.setattr("evermirror.core.fairness.PATIENCE_S", 0.0)
    large = upstream.create("large")
    tip = make_large(large)
    async with stage.up(serve={"pace": "100MB"}, schedule={"min_gap": "1h"}) as up:
        await up.add(large.url)
        await up.until_status("large", "active")
        async with many(up, ["127.0.0.2"], post(up.key("large"), uncacheable(tip))) as (client,):
            await asyncio.sleep(1)
            got = await client.everything()
        assert len(got) > ENOUGH_BYTES
        assert got.endswith(b"\r\n0\r\n\r\n")


async def test_two_addresses_cannot_take_all_places(stage, upstream, tmp_path):
    large = upstream.create("large")
    tip = make_large(large)
    async with stage.up(serve={"packs": 8, "pace": 0}, schedule={"min_gap": "1h"}) as up:
        await up.add(large.url)
        await up.until_status("large", "active")
        await mirrored(up, upstream, "small")
        addresses = ["127.0.0.2", "127.0.0.3"] * 8

        async def filled():
            metrics = (await up.client.get("/metrics")).text
            return figure(metrics, "evermirror_git_running") >= 5

        async with many(up, addresses, post(up.key("large"), uncacheable(tip))):
            await up.until(filled)
            await honest(up, "small", tmp_path / "clone")


async def test_long_lists_of_refs_read_slowly_keep_no_place(stage, upstream, tmp_path):
    async with stage.up(serve={"packs": 2}, schedule={"min_gap": "1h"}) as up:
        long, _ = await mirrored(up, upstream, "long", "small")
        tip = long.tip()
        lines = "".join(f"{tip} refs/tags/some-long-name-of-a-release-{n}\n" for n in range(120_000))
        head = "# pack-refs with: peeled fully-peeled sorted \n"
        packed = stage.mirror(up.key("long")) / "packed-refs"
        packed.write_text(head + "".join(sorted(lines.splitlines(True), key=lambda line: line[41:])))
        listing = f"/git/{up.key('long')}/info/refs?service=git-upload-pack"

        addresses = ["127.0.0.2"] * 8
        async with many(up, addresses, get(listing)):
            await up.until(lambda: _answered(up, 8))
            await honest(up, "small", tmp_path / "clone")
            whole = await up.client.get(listing)
            assert whole.text.count("some-long-name") == 120_000


async def test_many_short_lines_are_not_read_to_their_end(stage, upstream, tmp_path, monkeypatch):
    read = 0
    before = RequestScan._count

    def counted(self, *args, **more):
        nonlocal read
        read += 1
        before(self, *args, **more)

    monkeypatch.setattr(RequestScan, "_count", counted)
    body = encode(b"command=fetch") + b"0001" + b"0005x" * 190_000 + b"0000"
    async with stage.up(schedule={"min_gap": "1h"}) as up:
        await mirrored(up, upstream, "small")
        request = post(up.key("small"), gzip.compress(body), zipped=True)
        async with many(up, ["127.0.0.2"] * 30, request) as clients:
            lines = await asyncio.gather(*(client.first_line() for client in clients))
            assert {line.split()[1] for line in lines} <= {b"400", b"413", b"429", b"503"}
            await honest(up, "small", tmp_path / "clone")
    assert read < 30 * 1_000


async def test_requests_without_an_end_take_bounded_memory_and_keep_nobody_out(stage, upstream, tmp_path):
    part = b"".join(encode(b"have " + os.urandom(20).hex().encode() + b"\n") for _ in range(18_000))
    async with stage.up(schedule={"min_gap": "1h"}) as up:
        await mirrored(up, upstream, "small")
        request = post(up.key("small"), encode(b"command=fetch") + b"0001" + part, length=5_000_000)
        async with many(up, ["127.0.0.2"] * 60, request) as clients:
            answers = [asyncio.create_task(client.first_line()) for client in clients]
            try:
                async with asyncio.timeout(60):  # one address has half of the memory, at most
                    while sum(answer.done() for answer in answers) < 60 - 36:
                        await asyncio.sleep(0.05)
                await honest(up, "small", tmp_path / "clone")
                told = {answer.result().split()[1] for answer in answers if answer.done()}
                assert told == {b"503"}
                assert not all(answer.done() for answer in answers)
            finally:
                for answer in answers:
                    answer.cancel()
                await asyncio.gather(*answers, return_exceptions=True)


async def test_one_address_is_refused_before_its_body_is_read_and_others_are_not(stage, upstream, tmp_path):
    async with stage.up(serve={"requests_per_client": 3}, schedule={"min_gap": "1h"}) as up:
        await mirrored(up, upstream, "small")
        unfinished = post(up.key("small"), encode(b"command=fetch"), length=1_000)
        async with many(up, ["127.0.0.2"] * 5, unfinished) as clients:
            answers = [asyncio.create_task(client.first_line()) for client in clients]
            try:
                async with asyncio.timeout(60):
                    while sum(answer.done() for answer in answers) < 2:
                        await asyncio.sleep(0.02)
                assert {a.result() for a in answers if a.done()} == {b"HTTP/1.1 429 Too Many Requests"}
                await honest(up, "small", tmp_path / "clone")
            finally:
                for answer in answers:
                    answer.cancel()
                await asyncio.gather(*answers, return_exceptions=True)


async def _is(value, wanted):
    return await value() == wanted


async def _answered(up, count):
    """That many lists were asked for, and git makes none of them now."""
    metrics = (await up.client.get("/metrics")).text
    total = sum(
        figure(metrics, f'evermirror_git_requests_total{{cached="{cached}",service="refs"}}')
        for cached in ("yes", "no")
    )
    return total >= count and figure(metrics, "evermirror_git_running") == 0
