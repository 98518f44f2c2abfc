"""What upstream threw away and we still have; and what is remembered of a change that a guard holds back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from evermirror.model.refs import Oid, RefsDigest


class Why(Enum):
    """What upstream did to a ref."""

    DELETED = "deleted"
    REWRITTEN = "rewritten"


@dataclass(frozen=True, slots=True)
class KeptTip:
    """One old tip. ``name`` is the hidden ref that holds it, ``ref`` the public one that had it."""

    name: str
    ref: str
    at: float  # UTC seconds: when we followed upstream's change
    why: Why
    old: Oid
    new: Oid | None  # None where the ref was deleted


class GuardReason(Enum):
    """What makes a change of upstream's suspect."""

    EMPTIED = "emptied"
    SHRUNKEN = "shrunken"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True)
class GuardMemory:
    """A change that is held back: what was seen, since when (UTC seconds), at how many polls."""

    reason: GuardReason
    since: float
    sightings: int
    digest: RefsDigest  # of upstream's refs as last seen
    lost: int = 0  # refs that were missing at the first sight
