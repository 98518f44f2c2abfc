"""What is said on a line, and its bytes: one of kind, three of length (big endian), then the payload.

      dialer                         relay
        │ Hello ───────────────────────▶ │   who it is, and what the line is for
        │ ◀──────────── Admitted, Refused │
      the side that asks             the side that answers
        │ Request, Body …, End ────────▶ │   one at a time; then the line is idle again
        │ ◀──────────────────────  Answer │   its status; where that is "ok" …
        │ ◀─────────────────  Body …, End │   … its bytes
        │ ◀─────────── Ping, Pong ──────▶ │   at any time; never a part of an answer

Anything else, or at another time, ends the line. A body's payload is passed on as it arrives, in pieces.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias

from evermirror.edge.relay.ask import PROTOCOL_CHARS_MAX, SERVICES, Service
from evermirror.model.access import Role
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey

VERSION = 1
HEAD_BYTES = 4
PAYLOAD_BYTES_MAX = 512 * 1024
TOLD_BYTES_MAX = 64 * 1024  # of a frame that is JSON: a ticket and a key have 8,000 at most
RETRY_S_MAX = 3600.0
REASON_CHARS_MAX = 300
SERVING, ASKING = "serving", "asking"


class FrameError(ValueError):
    """These bytes are no frame, or one that may not be."""


class Kind(IntEnum):
    """The first byte."""

    HELLO = 1
    ADMITTED = 2
    REFUSED = 3
    REQUEST = 4
    BODY = 5
    END = 6
    ANSWER = 7
    PING = 8
    PONG = 9


class Status:
    """Of an answer."""

    OK = "ok"
    BUSY = "busy"
    NOT_HERE = "not_here"
    REFUSED = "refused"
    NOT_LET_IN = "not_let_in"  # by the relay; nothing was asked of the holder
    FAILED = "failed"
    ALL = frozenset({OK, BUSY, NOT_HERE, REFUSED, NOT_LET_IN, FAILED})


@dataclass(frozen=True, slots=True)
class Hello:
    """``way``: "serving", requests come to it; "asking", it sends them."""

    version: int
    way: str
    pass_: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Admitted:
    """It is who it says."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It is not; or there is no room, and ``retry_after_s`` is not 0."""

    reason: str
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Request:
    """To a relay: ``holder`` is asked. To a holder: ``reader`` asks, whose pass the relay has seen."""

    key: RepoKey
    service: Service
    protocol: str
    holder: NodeId
    reader: NodeId
    role: Role
    ticket: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Body:
    """Some bytes of a request or an answer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class End:
    """All of it was sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How it went; ``reason`` for people."""

    status: str
    reason: str = ""
    retry_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there?"""


@dataclass(frozen=True, slots=True)
class Pong:
    """Yes."""


Message: TypeAlias = Hello | Admitted | Refused | Request | Body | End | Answer | Ping | Pong


def head(kind: Kind, length: int) -> bytes:
    return bytes((kind, length >> 16, length >> 8 & 0xFF, length & 0xFF))


def encode(message: Message) -> bytes:
    """One whole frame; a line writes bodies without putting them together."""
    kind, payload = _payload(message)
    if len(payload) > (PAYLOAD_BYTES_MAX if kind is Kind.BODY else TOLD_BYTES_MAX):
        raise FrameError(f"{len(payload)} bytes do not fit into a frame")
    return head(kind, len(payload)) + payload


def _payload(message: Message) -> tuple[Kind, bytes]:
    match message:
        case Hello():
            return Kind.HELLO, _json(asdict(message))
        case Refused():
            return Kind.REFUSED, _json(asdict(message))
        case Request():
            return Kind.REQUEST, _json({**asdict(message), "role": message.role.value})
        case Answer():
            return Kind.ANSWER, _json(asdict(message))
        case Body(data):
            return Kind.BODY, data
        case _:
            return _EMPTY[message], b""


_EMPTY_SAID: dict[Kind, Message] = {
    Kind.ADMITTED: Admitted(),
    Kind.END: End(),
    Kind.PING: Ping(),
    Kind.PONG: Pong(),
}
_EMPTY = {message: kind for kind, message in _EMPTY_SAID.items()}


class FrameReader:
    """Feed it what arrives, in any pieces; bodies come out as they come in, other frames whole."""

    def __init__(self) -> None:
        self._head = b""
        self._kind = Kind.END
        self._left = 0
        self._told = bytearray()

    def feed(self, data: memoryview) -> list[Message]:
        """Raises FrameError; nothing may be fed after that."""
        said: list[Message] = []
        at, end = 0, len(data)
        while at < end:
            if not self._left:
                taken = min(HEAD_BYTES - len(self._head), end - at)
                self._head += data[at : at + taken]
                at += taken
                if len(self._head) == HEAD_BYTES and (message := self._begin()) is not None:
                    said.append(message)
                continue
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            if self._kind is Kind.BODY:
                said.append(Body(bytes(piece)))
                continue
            self._told += piece
            if not self._left:
                said.append(_READ[self._kind](bytes(self._told)))
                self._told.clear()
        return said

    def _begin(self) -> Message | None:
        """A head is whole. What follows it is bounded before any of it is kept."""
        raw, self._head = self._head, b""
        try:
            self._kind = Kind(raw[0])
        except ValueError:
            raise FrameError(f"frame of kind {raw[0]}") from None
        length = int.from_bytes(raw[1:], "big")
        if (nothing := _EMPTY_SAID.get(self._kind)) is not None:
            if length:
                raise FrameError(f"{self._kind.name} with {length} bytes")
            return nothing
        if not 0 < length <= (PAYLOAD_BYTES_MAX if self._kind is Kind.BODY else TOLD_BYTES_MAX):
            raise FrameError(f"{self._kind.name} of {length} bytes")
        self._left = length
        return None


def _json(said: object) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode("ascii")


def _read(raw: bytes) -> dict[str, Any]:
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        raise FrameError("not JSON") from None
    if not isinstance(said, dict):
        raise FrameError("not a JSON object")
    return said


def _text(said: dict[str, Any], name: str, chars_max: int = TOLD_BYTES_MAX) -> str:
    value = said.get(name, "")
    if not isinstance(value, str) or len(value) > chars_max:
        raise FrameError(f"{name} is no text, or too long")
    return value


def _seconds(said: dict[str, Any]) -> float:
    value = said.get("retry_after_s", 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FrameError("retry_after_s is no number")
    if isinstance(value, float) and not math.isfinite(value):  # integers may be too large to be asked
        raise FrameError("retry_after_s is no number of seconds")
    return float(min(max(value, 0.0), RETRY_S_MAX))


def _reason(said: dict[str, Any]) -> str:
    """A stranger's words, made safe to show."""
    value = _text(said, "reason")[:REASON_CHARS_MAX]
    return "".join(c if c.isprintable() else "?" for c in value)


def _read_hello(raw: bytes) -> Hello:
    said = _read(raw)
    version, way = said.get("version"), _text(said, "way")
    if not isinstance(version, int) or way not in (SERVING, ASKING):
        raise FrameError("a hello that cannot be read")
    return Hello(version, way, _text(said, "pass_"))


def _read_refused(raw: bytes) -> Refused:
    said = _read(raw)
    return Refused(_reason(said), _seconds(said))


def _read_request(raw: bytes) -> Request:
    said = _read(raw)
    service = next((s for s in SERVICES if s == said.get("service")), None)
    key = _text(said, "key")
    if service is None or not key:
        raise FrameError("a request that cannot be read")
    try:
        role = Role(said.get("role"))
    except ValueError:
        raise FrameError("a request of an unknown role") from None
    return Request(
        RepoKey(key),
        service,
        _text(said, "protocol", PROTOCOL_CHARS_MAX),
        NodeId(_text(said, "holder")),
        NodeId(_text(said, "reader")),
        role,
        _text(said, "ticket"),
    )


def _read_answer(raw: bytes) -> Answer:
    said = _read(raw)
    status = _text(said, "status")
    if status not in Status.ALL:
        raise FrameError("an answer of unknown status")
    return Answer(status, _reason(said), _seconds(said))


_READ: dict[Kind, Callable[[bytes], Message]] = {
    Kind.HELLO: _read_hello,
    Kind.REFUSED: _read_refused,
    Kind.REQUEST: _read_request,
    Kind.ANSWER: _read_answer,
}
