"""ls-refs, answered from a mirror's files, byte for byte as git does it: for nodes that follow many mirrors.

Only the plain question is answered here: no peeled tags (which need their objects), no word unknown to us,
and of a mirror whose files are plain (ref_files.py) and not large, and whose settings are ours. For all else
None says: ask git.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from evermirror.edge.git.lsrefs import valid_name
from evermirror.edge.git.pktline import PktError, Sign, encode, packets, text
from evermirror.edge.git.ref_files import SERVED_BYTES_MAX, read_ref_files
from evermirror.edge.git.refs import encode_name, head_target
from evermirror.model.refs import Oid

PREFIXES_MAX = 64  # git itself overlooks prefixes where they are too many
_SHA256_CHARS = 64
_HIDING = b"hiderefs"  # any but ours, here or in another file, may hide what we would show
_OURS = b"\n\thideRefs = refs/evermirror\n"  # as incoming.py writes it
_ELSEWHERE = (b"include", b"worktreeconfig")
_SETTINGS_BYTES_MAX = 16_384


@dataclass(frozen=True, slots=True)
class _Question:
    prefixes: tuple[bytes, ...]
    symrefs: bool
    object_format: bytes


def list_refs(repo: Path, request: bytes, hidden: str, shown: Collection[str]) -> bytes | None:
    """The answer to ``request``; refs below ``hidden`` are left out, but for those below ``shown``."""
    question = _read(request)
    if question is None or not _is_ours(repo):
        return None
    refs = read_ref_files(repo, SERVED_BYTES_MAX)
    if refs is None or not _same_format(refs.values(), question.object_format):
        return None
    target = head_target(repo)
    named = sorted((encode_name(name), oid) for name, oid in refs.items())
    if not valid_name(encode_name(target)) or not all(valid_name(name) for name, _ in named):
        return None
    lines = [_line(refs[target], b"HEAD", target if question.symrefs else "")] if target in refs else []
    if question.prefixes and not b"HEAD".startswith(question.prefixes):
        lines = []
    away, but = hidden.encode("ascii"), tuple(folder.encode("ascii") for folder in shown)
    for name, oid in named:
        wanted = not question.prefixes or name.startswith(question.prefixes)
        if wanted and (not name.startswith(away) or name.startswith(but)):
            lines.append(_line(oid, name))
    return b"".join([*lines, Sign.FLUSH.value])


def _line(oid: Oid, name: bytes, target: str = "") -> bytes:
    told = b" symref-target:" + encode_name(target) if target else b""
    return encode(b"%b %b%b\n" % (oid.encode("ascii"), name, told))


def _read(request: bytes) -> _Question | None:
    """What is asked, where each of its words is known."""
    prefixes: list[bytes] = []
    symrefs = ended = arguments = False
    object_format = b"sha1"
    try:
        for frame in packets(request):
            line = b"" if isinstance(frame, Sign) else text(frame)
            if ended:
                return None
            if frame is Sign.DELIM and not arguments:
                arguments = True
            elif frame is Sign.FLUSH:
                ended = True
            elif not arguments and line.startswith(b"object-format="):
                object_format = line.removeprefix(b"object-format=")
            elif not arguments and (line == b"command=ls-refs" or line.startswith(b"agent=")):
                continue
            elif arguments and line == b"symrefs":
                symrefs = True
            elif arguments and line.startswith(b"ref-prefix "):
                prefixes.append(line.removeprefix(b"ref-prefix "))
            else:
                return None
    except PktError:
        return None
    if not ended or len(prefixes) > PREFIXES_MAX:
        return None
    return _Question(tuple(prefixes), symrefs, object_format)


def _is_ours(repo: Path) -> bool:
    """Whether its settings hide nothing more than we do."""
    try:
        with (repo / "config").open("rb") as file:
            settings = file.read(_SETTINGS_BYTES_MAX)
    except OSError:
        return False
    if len(settings) == _SETTINGS_BYTES_MAX or _OURS not in settings:
        return False
    words = settings.lower()
    return words.count(_HIDING) == 1 and not any(word in words for word in _ELSEWHERE)


def _same_format(oids: Collection[Oid], object_format: bytes) -> bool:
    """git refuses a question in another format than the repository's."""
    long = [len(oid) == _SHA256_CHARS for oid in oids]
    return bool(long) and (all(long) if object_format == b"sha256" else not any(long))
