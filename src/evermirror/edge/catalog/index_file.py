"""What was read of the catalog, kept in a file: after a restart a commit is followed at once, and not after
everything was read again.

    MAGIC   digest of all that follows   length of the head   head (JSON)   hashes   owners

It is a cache. A file that is missing, damaged, of another version, or made from other commits or settings is
no trouble: everything is read anew. So nobody waits for the disk when it is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from evermirror.core.catalog.catalog import FileName, Snapshot
from evermirror.core.catalog.entry import Problem

log = structlog.get_logger(__name__)

MAGIC = b"evermirror catalog index 1\n"
DIGEST_BYTES = 32
LENGTH_BYTES = 8
FILES_MAX = 100_000  # with more, the names alone would be tens of megabytes for every commit
PROBLEMS_MAX = 10_000  # the same of problems


class IndexFile:
    """At ``path``; ``rules`` stands for all that decides how files are read."""

    def __init__(self, path: Path, rules: str) -> None:
        self._path = path
        self._rules = rules

    def read(self, versions: Sequence[str | None]) -> Snapshot | None:
        """What was written for these commits; None where there is nothing usable."""
        try:
            raw = memoryview(self._path.read_bytes())
        except OSError:
            return None
        body = raw[len(MAGIC) + DIGEST_BYTES :]
        if bytes(raw[: len(MAGIC)]) != MAGIC or bytes(raw[len(MAGIC) :][:DIGEST_BYTES]) != _digest(body):
            return None
        end = LENGTH_BYTES + int.from_bytes(body[:LENGTH_BYTES], "little")
        head: dict[str, Any] = json.loads(bytes(body[LENGTH_BYTES:end]))
        if head["stamp"] != self._stamp(versions):
            return None
        return _snapshot(head, body[end:])

    def write(self, versions: Sequence[str | None], snapshot: Snapshot) -> None:
        """In place of what was there. A disk that does not take it costs time at the next start, no more."""
        problems = sum(map(len, snapshot.problems.values()))
        if None in versions or len(snapshot.files) > FILES_MAX or problems > PROBLEMS_MAX:
            return
        head = json.dumps(_head(self._stamp(versions), snapshot)).encode("ascii")
        columns = snapshot.hashes.astype("<u8"), snapshot.owners.astype("<u4")
        body = [len(head).to_bytes(LENGTH_BYTES, "little"), head, *(column.tobytes() for column in columns)]
        new = self._path.with_suffix(".new")
        try:
            with open(new, "wb", opener=_private) as file:
                file.writelines([MAGIC, _digest(*body), *body])
            new.replace(self._path)
        except OSError as error:
            log.warning("the catalog's index was not written", reason=error.strerror or str(error))
            with contextlib.suppress(OSError):
                new.unlink()

    def _stamp(self, versions: Sequence[str | None]) -> list[str | None]:
        return [self._rules, *versions]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _head(stamp: list[str | None], snapshot: Snapshot) -> Mapping[str, object]:
    return {
        "stamp": stamp,
        "files": [None if file is None else [file.source, file.path] for file in snapshot.files],
        "problems": [
            [[file.source, file.path], [asdict(problem) for problem in problems]]
            for file, problems in snapshot.problems.items()
        ],
        "mentions": len(snapshot.hashes),
    }


def _snapshot(head: Mapping[str, Any], columns: memoryview) -> Snapshot:
    """Its digest was right: it is as it was written."""
    mentions = head["mentions"]
    return Snapshot(
        tuple(None if file is None else FileName(*file) for file in head["files"]),
        np.frombuffer(columns, "<u8", mentions).astype(np.uint64),
        np.frombuffer(columns, "<u4", mentions, offset=8 * mentions).astype(np.uint32),
        {FileName(*file): tuple(Problem(**p) for p in problems) for file, problems in head["problems"]},
    )
