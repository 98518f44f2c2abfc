"""Single values on their way to the wire and back: each is checked here, and what is wrong is named.

Going out, text for people is cut and made encodable: a report about hostile text must still arrive. All else
that the wire cannot carry (a key with a lone surrogate, an infinite time) is FrameInvalid on either side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from evermirror.model.refs import Oid, RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey

NAME_BYTES_MAX = 2048  # the longest URL that is accepted anywhere
REF_BYTES_MAX = 65_535  # what fits a pkt-line: git itself tells no longer one
TEXT_BYTES_MAX = 65_536  # of one text for people; a Failure keeps 8 KiB of git's output
SHOWN_CHARS_MAX = 8_192  # of a message, a hint or a command, as kept and shown
OUTPUT_CHARS_MAX = 16_384  # of git's own words; a Failure keeps 8 KiB of them
BODY_BYTES_MAX = 6 * 1024 * 1024  # of an Answer
SEAL_BYTES_MAX = 16_384  # of a pass or a ticket, whose largest part is a key
TIME_MIN, TIME_MAX = -62_135_596_800.0, 253_402_300_799.0  # the years 1 to 9999, in seconds
INT_MAX = 2**63 - 1  # what a column of the store holds
ITEMS_MAX = 100_000  # of one list: above every chunk, and far below what empty items could fill a frame with
_CUT = "…"
_OID_BYTES = (20, 32)
_DIGEST_BYTES = 32
_PUBLIC_KEY_BYTES = 32

T = TypeVar("T")
Out = TypeVar("Out")


class FrameInvalid(Exception):
    """A frame that breaks the contract; the message names the field. Coming in, it ends that connection."""


def name(value: str, what: str) -> str:
    """A key, URL, host or other name: itself, either way."""
    if not value:
        raise FrameInvalid(f"{what} is missing")
    return maybe_name(value, what)


def maybe_name(value: str, what: str, *, bytes_max: int = NAME_BYTES_MAX) -> str:
    """The same where none is fine too."""
    if value.isascii() and len(value) <= bytes_max and "\0" not in value:
        return value  # nearly all of very many
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise FrameInvalid(f"{what} is not Unicode text") from None
    if size > bytes_max:
        raise FrameInvalid(f"{what} has {size} bytes, more than {bytes_max}")
    if "\0" in value:
        raise FrameInvalid(f"{what} holds NUL")
    return value


def key(value: str, what: str) -> RepoKey:
    return RepoKey(name(value, what))


def node(value: str, what: str) -> NodeId:
    return NodeId(name(value, what))


def seal(value: str, what: str) -> str:
    """A pass or a ticket: itself, either way; none is fine too."""
    if not value.isascii():
        raise FrameInvalid(f"{what} is not sealed: it holds more than ASCII")
    return maybe_name(value, what, bytes_max=SEAL_BYTES_MAX)


def count(value: int, what: str) -> int:
    """A number of things, or of a thing."""
    if not 0 <= value <= INT_MAX:
        raise FrameInvalid(f"{what} is {value}, not from 0 to 2^63-1")
    return value


def counts(values: Sequence[int], what: str) -> tuple[int, ...]:
    return tuple([count(value, what) for value in bounded(values, what)])


def words(values: Sequence[int], what: str) -> tuple[int, ...]:
    """Unsigned 64-bit numbers: parts of digests."""
    if not all(0 <= value < 2**64 for value in bounded(values, what)):
        raise FrameInvalid(f"{what} holds what is no unsigned 64-bit number")
    return tuple(values)


def keys(values: Sequence[str], what: str, *, items_max: int = ITEMS_MAX) -> tuple[RepoKey, ...]:
    return tuple([key(value, what) for value in bounded(values, what, items_max=items_max)])


def finite(value: float, what: str) -> float:
    """A time, or a number that is far below one: what can be added, subtracted and shown as a date."""
    if not math.isfinite(value):
        raise FrameInvalid(f"{what} is {value}, which is no finite number")
    if not TIME_MIN <= value <= TIME_MAX:
        raise FrameInvalid(f"{what} is {value}, which is no time of the years 1 to 9999, and no other number")
    return value


def text_out(value: str, *, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """For people: what UTF-8 cannot carry becomes a question mark, and what is beyond the bound is cut."""
    raw = value.encode("utf-8", "replace")
    if len(raw) <= bytes_max:
        return raw.decode()
    return raw[: bytes_max - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def text_in(value: str, what: str, *, bytes_max: int = TEXT_BYTES_MAX) -> str:
    if len(value) > bytes_max or (not value.isascii() and len(value.encode()) > bytes_max):
        raise FrameInvalid(f"{what} is longer than {bytes_max} bytes")
    return value


def cut_in(value: str, what: str, chars_max: int = SHOWN_CHARS_MAX) -> str:
    """A text for people that the sender should have kept shorter: cut, and it shows."""
    value = text_in(value, what)
    return value if len(value) <= chars_max else value[: chars_max - 1] + _CUT


def ref_out(value: str, what: str) -> bytes:
    """The bytes that git has."""
    try:
        raw = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise FrameInvalid(f"{what} is no name that git could have told") from None
    return _ref_bytes(raw, what)


def ref_in(value: bytes, what: str) -> str:
    return _ref_bytes(value, what).decode("utf-8", "surrogateescape")


def _ref_bytes(raw: bytes, what: str) -> bytes:
    if not raw:
        raise FrameInvalid(f"{what} is missing")
    if len(raw) > REF_BYTES_MAX:
        raise FrameInvalid(f"{what} has {len(raw)} bytes, more than {REF_BYTES_MAX}")
    if b"\0" in raw:
        raise FrameInvalid(f"{what} holds NUL")
    return raw


def oid_out(value: Oid, what: str) -> bytes:
    return _hex_out(value, what, _OID_BYTES)


def oid_in(value: bytes, what: str) -> Oid:
    if len(value) not in _OID_BYTES:
        raise FrameInvalid(f"{what} has {len(value)} bytes, not 20 or 32")
    return Oid(value.hex())


def digest_out(value: RefsDigest, what: str) -> bytes:
    return _hex_out(value, what, (_DIGEST_BYTES,))


def digest_in(value: bytes, what: str) -> RefsDigest:
    if len(value) != _DIGEST_BYTES:
        raise FrameInvalid(f"{what} has {len(value)} bytes, not {_DIGEST_BYTES}")
    return RefsDigest(value.hex())


def public_key(value: bytes, what: str) -> bytes:
    """Of Ed25519: itself, either way."""
    if len(value) != _PUBLIC_KEY_BYTES:
        raise FrameInvalid(f"{what} has {len(value)} bytes, not {_PUBLIC_KEY_BYTES}")
    return value


def _hex_out(value: str, what: str, sizes: tuple[int, ...]) -> bytes:
    try:
        raw = bytes.fromhex(value)
    except ValueError:
        raise FrameInvalid(f"{what} is not hexadecimal") from None
    if len(raw) not in sizes or raw.hex() != value:
        raise FrameInvalid(f"{what} is not a digest in lower-case digits")
    return raw


def maybe(convert: Callable[[T, str], Out], value: T | None, what: str) -> Out | None:
    """None stays None."""
    return None if value is None else convert(value, what)


def bounded(items: Sequence[T], what: str, *, items_max: int = ITEMS_MAX) -> Sequence[T]:
    """A list that is not too long."""
    if len(items) > items_max:
        raise FrameInvalid(f"{what} has {len(items)} items, more than {items_max}")
    return items
