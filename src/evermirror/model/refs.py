"""Refs as upstream advertises them, and the digest by which two copies are known to be equal.

Names are ``str`` decoded as UTF-8 with surrogateescape, so that any byte git allows survives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

RefsDigest = NewType("RefsDigest", str)  # 64 hex digits
Oid = NewType("Oid", str)  # 40 or 64 hex digits

PUBLIC_PREFIXES = ("refs/heads/", "refs/tags/")


@dataclass(frozen=True, slots=True)
class RefSnapshot:
    """Branches and tags (unpeeled) and where HEAD points: everything that a mirror must equal."""

    refs: Mapping[str, Oid]
    head: str | None = None  # the branch HEAD is a symref to; None where detached, unborn-unknown or absent

    def digest(self) -> RefsDigest:
        """SHA-256 over ``ref: <target> HEAD\\n``, then ``<oid> <refname>\\n`` in refname (byte) order."""
        h = hashlib.sha256()
        if self.head is not None:
            h.update(b"ref: " + _encode(self.head) + b" HEAD\n")
        for name, oid in sorted((_encode(n), o) for n, o in self.refs.items()):
            h.update(oid.encode("ascii") + b" " + name + b"\n")
        return RefsDigest(h.hexdigest())

    @property
    def head_oid(self) -> Oid | None:
        """The commit of the default branch, where there is one."""
        return self.refs.get(self.head) if self.head is not None else None


@dataclass(frozen=True, slots=True)
class RefChange:
    """One ref that moved: ``old`` is None for a new ref, ``new`` is None for a deleted one."""

    name: str
    old: Oid | None
    new: Oid | None


def short_digest(digest: RefsDigest | None) -> int:
    """As the fleet's tables keep it: the first 8 bytes; 0 where it is not known."""
    return int(digest[:16], 16) if digest else 0


def changes_between(old: RefSnapshot, new: RefSnapshot) -> tuple[RefChange, ...]:
    """What turns ``old`` into ``new``, in refname order; HEAD itself is not a change of a ref."""
    names = sorted(old.refs.keys() | new.refs.keys())
    return tuple(
        RefChange(n, old.refs.get(n), new.refs.get(n)) for n in names if old.refs.get(n) != new.refs.get(n)
    )


def _encode(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
