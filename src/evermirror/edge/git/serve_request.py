"""Follows a client's request as it passes to git: what it asks for, and which other requests are the same.

Two requests are the same where they differ only in who asks (``agent``, ``session-id``): git's answer then is
the same too, as long as the repository is.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import AsyncIterator, Collection, Iterator
from urllib.parse import unquote_to_bytes

from evermirror.edge.git.pktline import LENGTH_BYTES, MAX_DATA_BYTES, PktError, encode, text
from evermirror.errors import EvermirrorError

_WHO = (b"agent=", b"session-id=")  # lines of v2, words of v0's first want
_WANT = re.compile(rb"want ([0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?)(?: (.*))?", re.DOTALL)
_WANTS = b"want "
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
# Lines with a space. git repeats others in its errors, where a client's words could pass for git's.
_PHRASE = re.compile(
    rb"(?:have|shallow|deepen|deepen-since|deepen-not|filter|want-ref|packfile-uris) [^ ]*"
    rb"|(?:want|ref-prefix) .*|(?:agent|session-id|server-option)=.*"
)
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_FILTER = b"filter "
_FILTER_NAME = re.compile(rb"blob:none\Z|(?:blob:limit|sparse:oid|object:type)(?==)|(?:tree|combine)(?=:)")
_FULL_ID = re.compile(rb"sparse:oid=(?:[0-9a-f]{40}|[0-9a-f]{64})")
_FILTER_DEPTH_MAX = 8  # of combine in combine; git's own clients send one
_SIGNS = 3  # lengths 0, 1 and 2 are signs
LS_REFS = b"ls-refs"
# Others are refused whatever git knows: object-info tells size and existence of hidden tips too.
COMMANDS = frozenset({LS_REFS, b"fetch"})
# git resolves the name of this ref among the hidden ones too: its answer would tell which of them exist.
_HIDDEN_DEEPEN = re.compile(rb"deepen-not (?:refs/)?evermirror(?:/|\Z)")
_HAVES = re.compile(rb"(?:0032have [0-9a-f]{40}\n)+")  # as git writes them: most of a long request
_HAVE_BYTES = 0x32
WANTS_MAX = 20_000  # of one request that is remembered; a clone of more refs than this is not cached
NAMED_MAX = 700_000  # objects that one request wants or has: a repository with as many refs
LINES_FREE = 500  # of any length; more lines must have …
LINE_BYTES_MIN = 24  # … so many bytes each, on average: those that git repeats have 50, a prefix of refs 30
CHUNK_BYTES = 64 * 1024
UNPACKED_FREE = 64 * 1024  # bytes, however small they were packed; the rest …
UNPACKED_RATIO_MAX = 50  # … is at most so many times as large as what was sent: object ids give 2


class BadRequest(EvermirrorError):
    """A request body that cannot be read."""


class RequestTooLarge(BadRequest):
    """A request body beyond the limit, as sent or unpacked."""


class RequestScan:
    """Feed it every byte, in order."""

    def __init__(self) -> None:
        self._carry = b""
        self._digest = hashlib.sha256()
        self._lines = 0
        self._bytes = 0
        self._named = 0
        self.command = b""  # of v2, the first: git reads no other; empty in v0
        self.wants: set[bytes] = set()  # object ids in lower-case hex
        self.alone = True  # nothing was said of what the client has, or of what only it knows
        self.filters: list[bytes] = []  # of a partial clone, as the client wrote them

    def feed(self, data: bytes) -> set[bytes]:
        """The ids that are wanted anew. What git would not read is a PktError: nothing passes unseen."""
        wanted: set[bytes] = set()
        data = self._carry + data
        at, end = 0, len(data)
        while end - at >= LENGTH_BYTES:
            if (haves := _HAVES.match(data, at)) is not None:
                count = (haves.end() - at) // _HAVE_BYTES
                self._count(count, haves.end() - at, named=count)
                self.alone = False  # so its fingerprint is not asked for
                at = haves.end()
                continue
            head = data[at : at + LENGTH_BYTES]
            if _LENGTH.fullmatch(head) is None:
                raise PktError(f"no pkt-line but {head!r}")
            length = int(head, 16)
            if length < LENGTH_BYTES:
                if length >= _SIGNS:
                    raise PktError(f"pkt-line length {length}")
                self._count(1, LENGTH_BYTES)
                self._digest.update(head)
                at += LENGTH_BYTES
                continue
            if length - LENGTH_BYTES > MAX_DATA_BYTES:
                raise PktError(f"pkt-line of {length} bytes")
            if end - at < length:
                break
            self._count(1, length)
            self._line(text(data[at + LENGTH_BYTES : at + length]), wanted)
            at += length
        self._carry = data[at:]
        return wanted

    @property
    def whole(self) -> bool:
        """No line is cut short at the end of what was fed."""
        return not self._carry

    @property
    def cacheable(self) -> bool:
        """The answer depends on nothing but the repository, and somebody else may ask the same."""
        return self.whole and self.alone and len(self.wants) <= WANTS_MAX

    def fingerprint(self) -> bytes:
        """Equal for requests that are the same."""
        return self._digest.digest()

    def _count(self, lines: int, size: int, named: int = 0) -> None:
        self._lines += lines
        self._bytes += size
        self._named += named
        if self._lines > LINES_FREE + self._bytes // LINE_BYTES_MIN:
            raise PktError("too many short lines")
        if self._named > NAMED_MAX:
            raise PktError(f"more than {NAMED_MAX} objects are named")

    def _line(self, line: bytes, wanted: set[bytes]) -> None:
        if _CONTROL.search(line) is not None or (b" " in line and _PHRASE.fullmatch(line) is None):
            raise PktError(f"{line[:80]!r} is not served here")
        if line.startswith(_WHO):
            return
        if (match := _WANT.fullmatch(line)) is not None:
            oid = match[1].lower()
            self._count(0, 0, named=1)
            wanted.add(oid)
            if len(self.wants) <= WANTS_MAX:
                self.wants.add(oid)
            words = (match[2] or b"").split(b" ")
            line = b"want %b %b" % (oid, b" ".join(w for w in words if not w.startswith(_WHO)))
        elif line.startswith(_WANTS):  # git takes an id and overlooks what follows: we would not see it
            raise PktError(f"not an object id: {line[:80]!r}")
        elif line.startswith(b"command="):
            command = line.removeprefix(b"command=")
            if command not in COMMANDS:
                raise PktError(f"{line[:80]!r} is not served here")
            self.command = self.command or command
        elif _HIDDEN_DEEPEN.match(line) is not None:
            raise PktError(f"no such ref: {line[:80]!r}")
        elif line.startswith((b"have ", b"shallow ", b"server-option=")):
            self._count(0, 0, named=1)
            self.alone = False
        elif line.startswith(_FILTER):
            self.filters.append(line.removeprefix(_FILTER))
        self._digest.update(b"%04x" % (len(line) + LENGTH_BYTES))
        self._digest.update(line)


def filter_is_served(spec: bytes, names: Collection[str], depth: int = 0) -> bool:
    """Whether ``spec`` and every part of it is one of ``names``, which are git's own.

    ``sparse:oid`` counts with a full object id only: git resolves any other name among hidden refs and
    abbreviated ids too, and its errors would tell strangers which of them exist."""
    match = _FILTER_NAME.match(spec)
    if match is None or match[0].decode() not in names:
        return False
    if match[0] == b"combine":
        parts = spec.removeprefix(b"combine:").split(b"+")
        return depth < _FILTER_DEPTH_MAX and all(
            filter_is_served(unquote_to_bytes(part), names, depth + 1) for part in parts
        )
    return match[0] != b"sparse:oid" or _FULL_ID.fullmatch(spec) is not None


def without_filters(request: bytes) -> bytes:
    """The same request for everything. ``request`` was scanned before; its last line may be cut short."""
    kept = bytearray()
    at = 0
    while at < len(request):
        length = max(int(request[at : at + LENGTH_BYTES], 16), LENGTH_BYTES)
        line = request[at : at + length]
        if len(line) < length or not line.startswith(_FILTER, LENGTH_BYTES):
            kept += line
        at += length
    return bytes(kept)


def without_object_info(advertised: bytes) -> bytes:
    """The advertisement of v2 without a command that is not served; git before 2.41 always offers it."""
    return advertised.replace(encode(b"object-info\n"), b"")


async def bounded_body(body: AsyncIterator[bytes], bytes_max: int, *, gzipped: bool) -> AsyncIterator[bytes]:
    """The request as git reads it: unpacked piece by piece, so that a small bomb never becomes large."""
    unpacker = zlib.decompressobj(wbits=31) if gzipped else None  # 31: gzip, largest window
    total = sent_bytes = 0
    async for sent in body:
        sent_bytes += len(sent)
        for piece in [sent] if unpacker is None else _unpacked(unpacker, sent):
            total += len(piece)
            if total > bytes_max:
                raise RequestTooLarge(f"the request is larger than {bytes_max} bytes")
            if gzipped and total > UNPACKED_FREE + UNPACKED_RATIO_MAX * sent_bytes:
                raise RequestTooLarge(f"the request unpacks to more than {UNPACKED_RATIO_MAX} times its size")
            yield piece


def _unpacked(unpacker: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    try:
        while data and not unpacker.eof:
            yield unpacker.decompress(data, CHUNK_BYTES)
            data = unpacker.unconsumed_tail
    except zlib.error as error:
        raise BadRequest("the request is not gzip, as it says") from error
