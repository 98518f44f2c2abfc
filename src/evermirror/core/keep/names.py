"""Names of kept tips: dated, saying why, and flat, so that every old name fits beside every other.

    refs/evermirror/kept/<stamp>/<why>-<new tip or "gone">/<flat>

``flat`` is the ref's name without ``/`` and ``.`` (percent-encoded), cut into pieces: all but the last begin
with ``+``, the last with ``=``. So no kept name is a folder of another (``a`` and ``a/b`` can both be kept),
none ends in ``.lock``, no piece is too long for a file system, and the name can be read back exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from evermirror.model.kept import KeptTip as KeptTip
from evermirror.model.kept import Why as Why
from evermirror.model.refs import Oid

KEPT = "refs/evermirror/kept/"
ARCHIVE = "refs/archive/"  # public: old tips of append-only mirrors
PIECE_CHARS = 200  # file systems take 255 bytes; git adds ".lock"
ASCII_CHARS_MAX = (
    1_000  # longer names keep their odd bytes: escapes are three times as long, paths end at 4,096
)
STAMP_CHARS = 19
GONE = "gone"

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_MUST_ESCAPE = frozenset(b"/.%@+=") | frozenset(range(0x21)) | {0x7F}
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")
_STAMP = re.compile(r"([0-9]{8}T[0-9]{6})([0-9]{3})Z", re.ASCII)
_KEPT = re.compile(
    re.escape(KEPT)
    + r"([0-9]{8}T[0-9]{9}Z)/(deleted|rewritten)-(gone|[0-9a-f]{40}(?:[0-9a-f]{24})?)/((?:\+[^/]+/)*=[^/]+)",
    re.ASCII,
)
_TIME = "%Y%m%dT%H%M%S"
MS_MAX = 253_402_300_799_999  # the last moment of the year 9999: stamps have four digits for it


def stamp_of(at: float) -> str:
    """``20261115T203000123Z``: UTC to the millisecond, sorted as text like the times themselves."""
    ms = min(max(round(at * 1000), 0), MS_MAX)
    return f"{datetime.fromtimestamp(ms // 1000, UTC):{_TIME}}{ms % 1000:03d}Z"


def time_of(stamp: str) -> float | None:
    """UTC seconds; None where it is no stamp."""
    match = _STAMP.fullmatch(stamp)
    try:
        whole = datetime.strptime(match[1], _TIME).replace(tzinfo=UTC) if match else None
    except ValueError:
        return None
    return None if whole is None or match is None else whole.timestamp() + int(match[2]) / 1000


def free_time(at: float, used: Iterable[str]) -> float:
    """``at``, or the first millisecond after it whose stamp nobody has: clocks go back, names stay."""
    taken = frozenset(used)
    ms = min(max(round(at * 1000), 0), MS_MAX - len(taken))
    while stamp_of(ms / 1000) in taken:
        ms += 1
    return ms / 1000


def flat(ref: str) -> str:
    """One name of pieces for any name; ``unflat`` is its inverse."""
    raw = ref.encode("utf-8", "surrogateescape")
    text = _escaped(raw, _PLAIN)
    if len(text) > ASCII_CHARS_MAX:
        text = _escaped(raw, frozenset(range(256)) - _MUST_ESCAPE)
    pieces = [text[i : i + PIECE_CHARS] for i in range(0, len(text), PIECE_CHARS)]
    named = b"/".join([*(b"+" + p for p in pieces[:-1]), b"=" + pieces[-1]])
    return named.decode("utf-8", "surrogateescape")


def unflat(text: str) -> str | None:
    """The name that ``flat`` gave this for; None for anything else."""
    raw = b"".join(piece[1:] for piece in text.encode("utf-8", "surrogateescape").split(b"/"))
    ref = _ESCAPE.sub(lambda m: bytes((int(m[1], 16),)), raw).decode("utf-8", "surrogateescape")
    return ref if ref and flat(ref) == text else None


def kept_name(ref: str, at: float, why: Why, new: Oid | None) -> str:
    """The hidden ref that keeps what ``ref`` was."""
    return f"{KEPT}{stamp_of(at)}/{why.value}-{new or GONE}/{flat(ref)}"


def kept_tip(ref: str, at: float, why: Why, old: Oid, new: Oid | None) -> KeptTip:
    """What is to be kept, under its name."""
    return KeptTip(kept_name(ref, at, why, new), ref, at, why, old, new)


def archive_name(ref: str, at: float) -> str:
    """The public ref below which an append-only mirror goes on showing an old tip."""
    return f"{ARCHIVE}{stamp_of(at)}/{flat(ref)}"


def parse_kept(name: str, oid: Oid) -> KeptTip | None:
    """Read a hidden ref back; None where it is no kept tip of ours."""
    match = _KEPT.fullmatch(name)
    if match is None:
        return None
    stamp, why, new, flattened = match.groups()
    at, ref = time_of(stamp), unflat(flattened)
    if at is None or ref is None:
        return None
    return KeptTip(name, ref, at, Why(why), oid, None if new == GONE else Oid(new))


def expired(tips: Iterable[KeptTip], now: float, retention_s: float | None) -> tuple[KeptTip, ...]:
    """Those older than ``retention_s``; None keeps all for ever."""
    return () if retention_s is None else tuple(tip for tip in tips if now - tip.at > retention_s)


def _escaped(raw: bytes, plain: frozenset[int]) -> bytes:
    return b"".join(bytes((b,)) if b in plain else b"%%%02X" % b for b in raw)
