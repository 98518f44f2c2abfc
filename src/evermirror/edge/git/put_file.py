"""What we last put at a target, in a small file of the mirror's folder: whole or not at all.

    evermirror-put 1
    url https://target/path          a file of another address is not believed
    head refs/heads/main             the source's default branch then; ? where nobody looked afterwards
    put <oid> <refname>              ours at the target
    may <oid> <refname>              written before a push, gone after it: it may be there
    refused <oid> <refname>⇥<reason> sent in vain: not again
    sum <sha256 of all lines before>

A mirror that is made anew has no such file: then the target itself is asked, and the coordinator's digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from evermirror.core.push.plan import LastPut, Refusal
from evermirror.edge.git.folder import failure_of
from evermirror.model.failure import FailureError
from evermirror.model.printable import one_line
from evermirror.model.push import TargetId
from evermirror.model.refs import Oid

log = structlog.get_logger(__name__)

FOLDER = "evermirror-targets"
FILE_BYTES_MAX = 512_000_000  # two million refs with long names
LEFT_OVER_S = 3600.0  # a file that is being written is younger
UNSEEN = "?"  # in place of a head: no branch is called so, and the next push looks at the target
_FIRST = b"evermirror-put 1"
_FRESH = ".new"
_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class PutRecord:
    """A file's content."""

    url: str
    head: str | None = None
    last: LastPut = field(default_factory=LastPut)


def put_path(repo: Path, target: TargetId) -> Path:
    return repo / FOLDER / str(int(target))


def read_put(repo: Path, target: TargetId, url: str) -> PutRecord | None:
    """None where there is none, or none of this address, or it is damaged: then nothing is known."""
    record = _read(put_path(repo, target))
    return record if record is not None and record.url == url else None


def read_puts(repo: Path, most: int) -> dict[TargetId, PutRecord]:
    """Of all targets that something was put at, the newest of them where there are very many."""
    try:
        numbers = [int(path.name) for path in (repo / FOLDER).iterdir() if path.name.isdecimal()]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise FailureError(failure_of(error)) from error
    known = {TargetId(n): _read(put_path(repo, TargetId(n))) for n in sorted(numbers)[-most:]}
    return {target: record for target, record in known.items() if record is not None}


def _read(path: Path) -> PutRecord | None:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ValueError("too large")
        return _parse(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FailureError(failure_of(error)) from error
    except ValueError as error:
        log.warning("what was last put is not readable", path=str(path), reason=str(error))
        return None


def write_put(repo: Path, target: TargetId, record: PutRecord) -> None:
    """Durable when this returns; raises FailureError, and then the old file is there still."""
    path = put_path(repo, target)
    try:
        path.parent.mkdir(exist_ok=True)
        _sweep(path)
        descriptor, fresh = tempfile.mkstemp(prefix=f"{path.name}.", suffix=_FRESH, dir=path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(_format(record))
                file.flush()
                os.fsync(file.fileno())
            Path(fresh).replace(path)
        except OSError:
            with suppress(OSError):
                Path(fresh).unlink(missing_ok=True)
            raise
        fsync_folder(path.parent)
    except OSError as error:
        raise FailureError(failure_of(error)) from error


def _sweep(path: Path) -> None:
    """What writers that were killed left behind."""
    for left in path.parent.glob(f"{path.name}.*{_FRESH}"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > LEFT_OVER_S:
                left.unlink()


def _format(record: PutRecord) -> bytes:
    lines = [_FIRST, b"url " + _encode(record.url), b"head " + _encode(record.head or "-")]
    lines += [b"put %b %b" % (o.encode("ascii"), _encode(n)) for n, o in sorted(record.last.refs.items())]
    for name, values in sorted(record.last.pending.items()):
        lines += [b"may %b %b" % (oid.encode("ascii"), _encode(name)) for oid in values]
    for name, refusal in sorted(record.last.refused.items()):
        words = _encode(f"{name}\t{one_line(refusal.reason)}")
        lines.append(b"refused %b %b" % (refusal.oid.encode("ascii"), words))
    body = b"".join(line + b"\n" for line in lines)
    return body + b"sum " + hashlib.sha256(body).hexdigest().encode("ascii") + b"\n"


def _parse(data: bytes) -> PutRecord:
    """Raises ValueError for anything that ``_format`` did not write."""
    body, mark, rest = data.rpartition(b"sum ")
    if not mark or rest != hashlib.sha256(body).hexdigest().encode("ascii") + b"\n":
        raise ValueError("its sum is wrong")
    first, url, head, *lines = body.split(b"\n")[:-1]
    if first != _FIRST or not url.startswith(b"url ") or not head.startswith(b"head "):
        raise ValueError("another version wrote it")
    refs: dict[str, Oid] = {}
    pending: dict[str, tuple[Oid, ...]] = {}
    refused: dict[str, Refusal] = {}
    for line in lines:
        word, oid, rest = line.split(b" ", 2)
        if _OID.fullmatch(oid) is None:
            raise ValueError("a line is not understood")
        ref, _, reason = rest.decode("utf-8", "surrogateescape").partition("\t")
        value = Oid(oid.decode("ascii"))
        match word:
            case b"put":
                refs[ref] = value
            case b"may":
                pending[ref] = (*pending.get(ref, ()), value)
            case b"refused":
                refused[ref] = Refusal(value, reason)
            case _:
                raise ValueError("a line is not understood")
    branch = head.removeprefix(b"head ").decode("utf-8", "surrogateescape")
    return PutRecord(
        url.removeprefix(b"url ").decode("utf-8", "surrogateescape"),
        None if branch == "-" else branch,
        LastPut(refs, pending, refused),
    )


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def fsync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
