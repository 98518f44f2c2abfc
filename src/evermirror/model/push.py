"""A push to a target: what a worker is told to put where, and what became of it.

What we last put at a target is known by its *put digest*: SHA-256 over ``<oid> <refname>\\n`` in refname
order, of the branches and tags that we put there and nobody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NewType

from evermirror.model.failure import Failure
from evermirror.model.refs import Oid, RefsDigest, RefSnapshot

TargetId = NewType("TargetId", int)
REFS_TOLD = 1000  # named in one report, over all its targets; the totals are always told


def put_digest(refs: Mapping[str, Oid]) -> RefsDigest:
    """The put digest of these branches and tags."""
    return RefSnapshot(refs).digest()


PUSHES_MAX = 100  # in one command or report: to a project's targets, and to those it had a moment ago


@dataclass(frozen=True, slots=True)
class PushTo:
    """One target of a sync. ``put`` is the digest of what we last put there, as the coordinator knows it;
    None: nothing yet. ``adopt``: a person's word that what is there now may be overwritten."""

    target: TargetId
    url: str
    credential: str | None = None  # a name, never a secret
    put: RefsDigest | None = None
    adopt: bool = False


class VisibilityRule(Enum):
    """What is done where a target is more visible than its source."""

    HOLD = "hold"  # nothing is pushed until a person mends it
    FOLLOW = "follow"  # the target is made as visible as the source
    IGNORE = "ignore"


class RefOutcome(Enum):
    """What became of one ref at a target."""

    PUT = "put"
    DELETED = "deleted"
    CONFLICT = "conflict"  # something else is there than what we last put: it waits for a person
    REFUSED = "refused"  # the target does not take it: protected, hidden, a hook


@dataclass(frozen=True, slots=True)
class PushedRef:
    """``old`` is what was there, ``new`` what is wanted; None where there is none."""

    name: str
    old: Oid | None
    new: Oid | None
    outcome: RefOutcome
    reason: str = ""  # git's or the target's own words


@dataclass(frozen=True, slots=True)
class Pushed:
    """How one target is after a sync. ``failure`` is None where everything that is ours is there.

    ``refs`` names those that moved or could not, bounded: the totals are always told."""

    target: TargetId
    put: RefsDigest | None  # of what is ours there now; None where that is not known
    commit: Oid | None = None  # the tip of the default branch there
    refs: tuple[PushedRef, ...] = ()
    put_total: int = 0
    deleted_total: int = 0
    waiting_total: int = 0  # refs in conflict or refused
    sent_bytes: int = 0
    started_at: float = 0.0
    ended_at: float = 0.0
    failure: Failure | None = None
    warning: str = ""  # what did not work besides, such as setting the target's default branch

    @property
    def changed(self) -> bool:
        return bool(self.put_total or self.deleted_total)


class RefState(Enum):
    """How a ref is at a target, as far as we know: by what we last put there, and what was found then."""

    EQUAL = "equal"
    BEHIND = "behind"  # there is an older value of ours
    MISSING = "missing"
    EXTRA = "extra"  # ours, and the mirror has it no longer
    REFUSED = "refused"  # the target does not take it
    FOREIGN = "foreign"  # somebody else's value is there: it waits for a person


@dataclass(frozen=True, slots=True)
class RefStanding:
    """``ours`` is what the mirror has, ``theirs`` what is there; None where there is none."""

    name: str
    state: RefState
    ours: Oid | None
    theirs: Oid | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TargetStanding:
    """One target against the mirror. ``refs``: those that are not equal first, bounded; ``complete``: all
    that are not equal are among them."""

    target: TargetId
    url: str
    equal: int
    refs: tuple[RefStanding, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Standings:
    """All targets that a worker has put something at. ``total`` and ``digest`` are of the mirror's branches
    and tags, which is what targets should have."""

    total: int
    digest: RefsDigest
    targets: tuple[TargetStanding, ...] = ()
