"""What is asked of upstream for its refs, and what its answer says: bytes in, values out, nothing else.

Three answers are read: protocol v2's `ls-refs`, v2's list of capabilities, and the ref list of v0/v1.
Three errors are told apart, because what follows differs:

    NotUnderstood   not what git says here     → another way of asking may work
    Refused         an ERR line: git's words   → they say why
    Lying           a ref list that no git can have (bad ids, names, repeats) → nothing is believed

Every way gives the same snapshot for the same upstream, so that digests do not depend on the way: refs
outside the prefixes and peeled values are dropped; an unborn HEAD, which v0 cannot tell, is not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from evermirror.edge.git.pktline import PktError, Sign, encode, packets, text
from evermirror.model.refs import PUBLIC_PREFIXES, Oid, RefSnapshot

MAX_REFS = 2_000_000  # far above the largest known repository; bounds what one upstream can make us hold
MAX_NAME_BYTES = 4096  # PATH_MAX: git itself could not store a longer one
WORDS_MAX = 300  # of an upstream's error that are passed on

OID_BYTES = {"sha1": 40, "sha256": 64}
_SERVICE = b"# service=git-upload-pack"
_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# git-check-ref-format(1), rules 1 to 10
_BAD_NAME = re.compile(rb"\.\.|[\x00-\x20\x7f~^:?*\[\\]|@\{|//|/\.|\.lock(?:/|\Z)|[/.]\Z")


class NotUnderstood(ValueError):
    """The answer is not git's, or not of the protocol that was asked for."""


class Lying(ValueError):
    """The answer is git's in form, and impossible in content."""


class Refused(ValueError):
    """An ERR line; the message is the upstream's, cleaned and cut."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a v2 server says it can do, as far as we use it."""

    object_format: str = "sha1"


def request_body(prefixes: Iterable[str], agent: str, object_format: str = "sha1") -> bytes:
    """A v2 `ls-refs` request. sha1 goes unsaid: servers assume it, and old ones know no other."""
    lines = [encode(b"command=ls-refs\n"), encode(b"agent=%b\n" % agent.encode("ascii"))]
    if object_format != "sha1":
        lines.append(encode(b"object-format=%b\n" % object_format.encode("ascii")))
    lines += [Sign.DELIM.value, encode(b"symrefs\n"), encode(b"ref-prefix HEAD\n")]
    lines += [encode(b"ref-prefix %b\n" % p.encode("utf-8", "surrogateescape")) for p in prefixes]
    return b"".join([*lines, Sign.FLUSH.value])


def parse_answer(
    body: bytes, prefixes: tuple[str, ...] = PUBLIC_PREFIXES, object_format: str = "sha1"
) -> RefSnapshot:
    """The refs of a v2 `ls-refs` answer."""
    refs = _Collector(prefixes, object_format)
    ended = False
    for line in _lines(body):
        if ended:
            raise NotUnderstood("data after the end of the ref list")
        if line is Sign.FLUSH:
            ended = True
        elif isinstance(line, Sign):
            raise NotUnderstood("sections in a ref list")
        else:
            oid, _, rest = text(line).partition(b" ")
            name, *attributes = rest.split(b" ")
            target = next((a[14:] for a in attributes if a.startswith(b"symref-target:")), None)
            refs.add(oid, name, target)
    if not ended:
        raise NotUnderstood("the ref list was cut short")
    return refs.snapshot()


def parse_advertisement(
    body: bytes, prefixes: tuple[str, ...] = PUBLIC_PREFIXES
) -> Capabilities | RefSnapshot:
    """What `info/refs` answered: a v2 server's capabilities, or straight the refs of an older one."""
    lines = _lines(body)
    first = next(lines, None)
    named = isinstance(first, bytes) and text(first) == _SERVICE
    if named:
        if next(lines, None) is not Sign.FLUSH:
            raise NotUnderstood("no flush after the service line")
        first = next(lines, None)
    if isinstance(first, bytes) and text(first) == b"version 2":
        return _capabilities(lines)
    if isinstance(first, bytes) and text(first) == b"version 1":
        first = next(lines, None)
    if first is Sign.FLUSH and not named:
        raise NotUnderstood("a flush without the service line")
    return _old_refs(first, lines, prefixes)


def is_dumb(content_type: str, body: bytes) -> bool:
    """Whether `info/refs` was served as a plain file, which is the dumb protocol."""
    if content_type.startswith(("application/x-git", "text/html")):
        return False
    first = body[: body.find(b"\n") + 1]
    return not body.strip() or bool(re.fullmatch(rb"[0-9a-f]{40,64}\trefs/[^\n]*\n", first))


def valid_name(name: bytes) -> bool:
    """git-check-ref-format's rules for a full name below refs/."""
    return name.startswith(b"refs/") and len(name) <= MAX_NAME_BYTES and _BAD_NAME.search(name) is None


def words(raw: bytes) -> str:
    """An upstream's message made safe to log and show: one printable line, cut."""
    line = " ".join(raw[: WORDS_MAX * 4].decode("utf-8", "replace").split())
    return "".join(c if c.isprintable() else "?" for c in line)[:WORDS_MAX]


def _lines(body: bytes) -> Iterator[bytes | Sign]:
    try:
        for line in packets(body):
            if line.__class__ is bytes and line.startswith(b"ERR "):
                raise Refused(words(line[4:]))
            yield line
    except PktError as e:
        raise NotUnderstood(str(e)) from None


def _capabilities(lines: Iterable[bytes | Sign]) -> Capabilities:
    object_format, ls_refs, ended = "sha1", False, False
    for line in lines:
        if ended or line in (Sign.DELIM, Sign.RESPONSE_END):
            raise NotUnderstood("data after the capabilities")
        if isinstance(line, Sign):
            ended = True
            continue
        name, _, value = text(line).partition(b"=")
        ls_refs = ls_refs or name == b"ls-refs"
        if name == b"object-format":
            object_format = value.decode("ascii", "replace")
    if not ended or not ls_refs:
        raise NotUnderstood("no ls-refs among the capabilities" if ended else "capabilities were cut short")
    if object_format not in OID_BYTES:
        raise NotUnderstood(f"unknown object format {words(object_format.encode())}")
    return Capabilities(object_format)


def _old_refs(
    first: bytes | Sign | None, lines: Iterator[bytes | Sign], prefixes: tuple[str, ...]
) -> RefSnapshot:
    if first is Sign.FLUSH:  # what very old servers say of an empty repository
        if next(lines, None) is not None:
            raise NotUnderstood("data after the end of the ref list")
        return RefSnapshot({})
    if not isinstance(first, bytes) or b"\0" not in first:
        raise NotUnderstood("neither capabilities nor a ref list")
    line, _, capabilities = text(first).partition(b"\0")
    said = [c.partition(b"=") for c in capabilities.split()]
    head = next((v[5:] for k, _, v in said if k == b"symref" and v.startswith(b"HEAD:")), None)
    object_format = next((v.decode("ascii", "replace") for k, _, v in said if k == b"object-format"), "sha1")
    if object_format not in OID_BYTES:
        raise NotUnderstood(f"unknown object format {words(object_format.encode())}")
    refs = _Collector(prefixes, object_format)
    _add_old(refs, line, head)
    ended = False
    for entry in lines:
        if ended or entry in (Sign.DELIM, Sign.RESPONSE_END):
            raise NotUnderstood("data after the end of the ref list")
        if isinstance(entry, Sign):
            ended = True
        else:
            _add_old(refs, text(entry), head)
    if not ended:
        raise NotUnderstood("the ref list was cut short")
    return refs.snapshot()


def _add_old(refs: _Collector, line: bytes, head: bytes | None) -> None:
    oid, _, name = line.partition(b" ")
    if oid == b"shallow" or name.endswith(b"^{}"):  # peeled tags, and the placeholder of an empty repository
        return
    refs.add(oid, name, head if name == b"HEAD" else None)


class _Collector:
    """Takes refs one by one and believes none that git could not have."""

    __slots__ = ("_count", "_head", "_head_seen", "_oid_bytes", "_prefixes", "_refs")

    def __init__(self, prefixes: tuple[str, ...], object_format: str) -> None:
        self._prefixes = tuple(p.encode("utf-8", "surrogateescape") for p in prefixes)
        self._oid_bytes = OID_BYTES[object_format]
        self._refs: dict[str, Oid] = {}
        self._count = 0
        self._head: str | None = None
        self._head_seen = False

    def add(self, oid: bytes, name: bytes, symref: bytes | None) -> None:
        if len(oid) != self._oid_bytes or not _OID.fullmatch(oid) or not oid.strip(b"0"):
            raise Lying(f"object id {words(oid)!r}")
        if name == b"HEAD":
            if self._head_seen:
                raise Lying("HEAD twice")
            self._head_seen = True
            self._head = _branch(symref)
            return
        if not valid_name(name):
            raise Lying(f"ref name {words(name)!r}")
        self._count += 1
        if self._count > MAX_REFS:
            raise Lying(f"more than {MAX_REFS} refs")
        if name.startswith(self._prefixes):
            ref = name.decode("utf-8", "surrogateescape")
            if ref in self._refs:
                raise Lying(f"{words(name)} twice")
            self._refs[ref] = Oid(oid.decode("ascii"))

    def snapshot(self) -> RefSnapshot:
        return RefSnapshot(self._refs, self._head)


def _branch(symref: bytes | None) -> str | None:
    """HEAD of a mirror can follow a branch only: anything else upstream points it to is not mirrored."""
    if symref is None:
        return None
    if not valid_name(symref):
        raise Lying(f"HEAD points to {words(symref)!r}")
    return symref.decode("utf-8", "surrogateescape") if symref.startswith(b"refs/heads/") else None
