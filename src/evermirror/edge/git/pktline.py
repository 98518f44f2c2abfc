"""Git's frames: four hex digits of length, then that much data; three lengths are signs instead.

Strict on purpose: a frame that git would not send, or that was cut short, is an error, never a shorter list.
"""

from __future__ import annotations

from binascii import Error as HexError
from binascii import unhexlify
from collections.abc import Iterator
from enum import Enum

LENGTH_BYTES = 4
MAX_DATA_BYTES = 65516  # git's LARGE_PACKET_DATA_MAX: 65520 with the length itself


class PktError(ValueError):
    """These bytes are not pkt-lines."""


class Sign(Enum):
    """Frames without data."""

    FLUSH = b"0000"  # the end of a message
    DELIM = b"0001"  # the end of a section
    RESPONSE_END = b"0002"  # the end of a stateless answer


_SIGNS = {0: Sign.FLUSH, 1: Sign.DELIM, 2: Sign.RESPONSE_END}


def encode(data: bytes) -> bytes:
    """One frame around ``data``."""
    if len(data) > MAX_DATA_BYTES:
        raise PktError(f"{len(data)} bytes do not fit into a pkt-line")
    return b"%04x%b" % (len(data) + LENGTH_BYTES, data)


def packets(body: bytes, start: int = 0) -> Iterator[bytes | Sign]:
    """Every frame of a whole body in order; raises PktError at the first that is malformed or cut short."""
    at, end = start, len(body)
    while at < end:
        try:
            length = int.from_bytes(unhexlify(body[at : at + LENGTH_BYTES]), "big")
        except HexError:
            raise PktError(f"no pkt-line at byte {at}") from None
        after = at + length
        if length >= LENGTH_BYTES and after <= end:
            if length - LENGTH_BYTES > MAX_DATA_BYTES:
                raise PktError(f"pkt-line of {length} bytes at byte {at}")
            yield body[at + LENGTH_BYTES : after]
            at = after
            continue
        if end - at < LENGTH_BYTES or length >= LENGTH_BYTES:
            raise PktError(f"cut short in the pkt-line at byte {at}")
        sign = _SIGNS.get(length)
        if sign is None:
            raise PktError(f"pkt-line length {length} at byte {at}")
        yield sign
        at += LENGTH_BYTES


def text(data: bytes) -> bytes:
    """A text frame's line: git may or may not end it with a newline."""
    return data[:-1] if data.endswith(b"\n") else data
