"""Frames come out as they went in, however they are cut; what may not be said ends the line."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.edge.relay.frames import (
    PAYLOAD_BYTES_MAX,
    TOLD_BYTES_MAX,
    Admitted,
    Answer,
    Body,
    End,
    FrameError,
    FrameReader,
    Hello,
    Kind,
    Ping,
    Pong,
    Refused,
    Request,
    encode,
    head,
)
from evermirror.model.access import Role
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey

REQUEST = Request(
    RepoKey("example.com/a/\udc80b"), "pack", "version=2", NodeId("worker/1"), NodeId("x"), Role.WORKER, "t.t"
)
SAID = [
    Hello(1, "serving", "pass"),
    Admitted(),
    Refused("no", 3.0),
    REQUEST,
    Body(b"abc"),
    End(),
    Answer("busy", "why", 2.5),
    Ping(),
    Pong(),
]


def read(raw: bytes, cuts=()):
    reader, said, at = FrameReader(), [], 0
    for cut in [*sorted(cuts), len(raw)]:
        said += reader.feed(memoryview(raw)[at:cut])
        at = max(at, cut)
    return said


def joined(said):
    """Bodies are passed on in pieces: neighbours are one."""
    out = []
    for message in said:
        if isinstance(message, Body) and out and isinstance(out[-1], Body):
            out[-1] = Body(out[-1].data + message.data)
        else:
            out.append(message)
    return out


@given(st.lists(st.sampled_from(SAID), max_size=12), st.lists(st.integers(0, 2000), max_size=20))
def test_any_cuts_give_the_same(said, cuts):
    raw = b"".join(map(encode, said))
    assert joined(read(raw, [c for c in cuts if c <= len(raw)])) == joined(said)


@given(st.binary(max_size=300))
def test_garbage_is_an_error_or_waits_for_more(raw):
    with contextlib.suppress(FrameError):
        FrameReader().feed(memoryview(raw))


@pytest.mark.parametrize(
    "raw",
    [
        head(Kind.BODY, 0),
        head(Kind.BODY, PAYLOAD_BYTES_MAX + 1),
        head(Kind.HELLO, TOLD_BYTES_MAX + 1),
        head(Kind.REQUEST, 0),
        head(Kind.END, 1),
        head(Kind.PING, 5),
        b"\x00\x00\x00\x00",
        b"\xff\x00\x00\x01",
        b"GET / HTTP/1.1",
    ],
)
def test_a_head_that_may_not_be_is_refused_before_its_payload(raw):
    with pytest.raises(FrameError):
        FrameReader().feed(memoryview(raw))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Kind.HELLO, "[" * 5000),
        (Kind.HELLO, '{"version":"1","way":"serving"}'),
        (Kind.HELLO, '{"version":1,"way":"both"}'),
        (Kind.REQUEST, '{"key":"k","service":"push","role":"worker"}'),
        (Kind.REQUEST, '{"key":"","service":"pack","role":"worker"}'),
        (Kind.REQUEST, '{"key":"k","service":"pack","role":"king"}'),
        (Kind.REQUEST, '{"key":"k","service":"pack","role":["worker"]}'),
        (Kind.REQUEST, json.dumps({"key": "k", "service": "pack", "role": "worker", "protocol": "v" * 101})),
        (Kind.ANSWER, '{"status":"fine"}'),
        (Kind.ANSWER, '{"status":"busy","retry_after_s":"soon"}'),
        (Kind.ANSWER, '{"status":"busy","retry_after_s":Infinity}'),
        (Kind.REFUSED, "\udc80".encode("utf-8", "surrogateescape")),
        (Kind.REFUSED, "3"),
    ],
)
def test_words_that_cannot_be_read_are_refused(kind, said):
    raw = said if isinstance(said, bytes) else said.encode()
    with pytest.raises(FrameError):
        FrameReader().feed(memoryview(head(kind, len(raw)) + raw))


@pytest.mark.parametrize("number", [-1, 7, 10**400, -(10**400), 1e300])
def test_any_number_of_seconds_is_brought_within_bounds(number):
    raw = json.dumps({"status": "busy", "retry_after_s": number}).encode()
    (said,) = FrameReader().feed(memoryview(head(Kind.ANSWER, len(raw)) + raw))
    assert said.retry_after_s == min(max(number, 0), 3600)


def test_a_strangers_words_are_made_safe_and_its_wishes_bounded():
    raw = json.dumps({"status": "busy", "reason": "a\nb\x1b[1m" + "x" * 999, "retry_after_s": 1e9}).encode()
    (said,) = FrameReader().feed(memoryview(head(Kind.ANSWER, len(raw)) + raw))
    assert said.reason.startswith("a?b?[1m")
    assert len(said.reason) == 300
    assert said.retry_after_s == 3600.0
