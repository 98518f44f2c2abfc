"""Requests are bounded in lines, in named objects, in how they unpack and in what is held of them."""

from __future__ import annotations

import asyncio
import gzip
import os
import threading

import pytest

from evermirror.edge.git import serve_request
from evermirror.edge.git.pktline import PktError, encode
from evermirror.edge.git.serve_gate import ServerBusy
from evermirror.edge.git.serve_intake import HELD_BYTES, Intake
from evermirror.edge.git.serve_request import RequestScan, RequestTooLarge, bounded_body

FETCH = encode(b"command=fetch") + b"0001"


def named(what, count):
    return b"".join(encode(what + b" " + os.urandom(20).hex().encode() + b"\n") for _ in range(count))


async def pieces(data, size=60_000):
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize("line", [b"0000", b"0004", b"0005x", b"0006x\n"])
def test_a_request_of_many_short_lines_is_given_up_early(line, monkeypatch):
    read = 0
    before = RequestScan._count

    def counted(self, *args, **more):
        nonlocal read
        read += 1
        before(self, *args, **more)

    monkeypatch.setattr(RequestScan, "_count", counted)
    with pytest.raises(PktError, match="short lines"):
        RequestScan().feed(FETCH + line * (1_000_000 // len(line)))
    assert read < 1_000


@pytest.mark.parametrize("size", [1, 7, 60_000])
def test_long_requests_as_git_sends_them_are_read_in_pieces_of_any_size(size):
    count = 200 if size < 10 else 18_000
    body = FETCH + named(b"want", count) + named(b"have", count) + encode(b"done\n") + b"0000"
    scan = RequestScan()
    for at in range(0, len(body), size):
        scan.feed(body[at : at + size])
    assert scan.whole
    assert not scan.alone
    assert len(scan.wants) == count


def test_prefixes_of_many_refs_are_no_short_lines():
    lines = b"".join(encode(b"ref-prefix refs/heads/b%d\n" % n) for n in range(20_000))
    scan = RequestScan()
    scan.feed(encode(b"command=ls-refs") + b"0001" + lines + b"0000")
    assert scan.whole


def test_no_request_names_more_objects_than_the_bound(monkeypatch):
    monkeypatch.setattr(serve_request, "NAMED_MAX", 1_000)
    for what in (b"want", b"have", b"shallow"):
        RequestScan().feed(FETCH + named(what, 1_000))
        with pytest.raises(PktError, match="objects are named"):
            RequestScan().feed(FETCH + named(what, 1_001))


async def test_what_unpacks_to_far_more_than_was_sent_is_refused_early():
    seen = 0

    async def unpack():
        nonlocal seen
        async for piece in bounded_body(pieces(gzip.compress(bytes(50_000_000))), 64_000_000, gzipped=True):
            seen += len(piece)

    with pytest.raises(RequestTooLarge, match="times its size"):
        await unpack()
    assert seen < 10_000_000


async def test_object_ids_unpack_as_usual():
    body = FETCH + named(b"have", 30_000)
    got = b"".join([p async for p in bounded_body(pieces(gzip.compress(body)), 64_000_000, gzipped=True)])
    assert got == body


async def test_a_long_request_is_scanned_beside_the_event_loop(monkeypatch):
    threads = set()
    before = RequestScan.feed

    def feed(self, data):
        threads.add((len(data) > 10_000, threading.get_ident() == here))
        return before(self, data)

    here = threading.get_ident()
    monkeypatch.setattr(RequestScan, "feed", feed)
    async with Intake(()).read(pieces(named(b"want", 15_000)), "a") as request:
        assert len(request.scan.wants) == 15_000
    async with Intake(()).read(pieces(named(b"want", 5)), "a") as request:
        assert request.whole
    assert threads == {(True, False), (False, True)}


async def test_unfinished_requests_of_one_client_leave_room_for_others():
    intake = Intake((), held_bytes_total=4_000_000)
    never = asyncio.Event()

    async def unfinished():
        async for piece in pieces(named(b"have", 16_000)):
            yield piece
        await never.wait()

    async def hold():
        async with intake.read(unfinished(), "hostile"):
            pass

    holding = [asyncio.create_task(hold()) for _ in range(20)]
    try:
        async with asyncio.timeout(60):
            while sum(task.done() for task in holding) < 17:
                await asyncio.sleep(0.01)
        async with intake.read(pieces(named(b"want", 15_000)), "honest") as request:
            assert len(request.held) < HELD_BYTES
            assert request.whole
        refused = [task for task in holding if task.done()]
        assert all(isinstance(task.exception(), ServerBusy) for task in refused)
        assert len(refused) < 20
    finally:
        for task in holding:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
    assert intake._room.used == 0
