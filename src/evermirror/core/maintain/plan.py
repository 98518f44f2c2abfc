"""Which upkeep a mirror needs now, or when it will.

Rules, most needed first (a job is due when its rule says so and it has rested since the last attempt)

    job           due                                                               rests, once done
    PACK_REFS     more than LOOSE_REFS_MAX loose refs                                10 min
    GEOMETRIC     more than packs_max packs, more than LOOSE_OBJECTS_MAX loose        1 h
                  objects, or no bitmap on BITMAP_FROM_BYTES or more
    COMMIT_GRAPH  none is there, and packs are                                        1 h
    FULL          every full_every, if packs came since the last one                  full_every
    FSCK          every fsck_every                                                    fsck_every

- The first FULL and the first FSCK fall on ``chance`` (0 to 1, fixed for each mirror) of a cycle after the
  mirror was made: so a fleet that was cloned in one day is not checked in one day.
- A job that could not change anything is not due again before the packs here are others.
- A job that failed rests RETRY_S, twice as long after each further failure, at most RETRY_MAX_S.
- A mirror that borrows objects is not repacked: git 2.39 can write no bitmap there.
- A time ahead of ``now`` was written under a clock that was wrong, and counts as now.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

from evermirror.core.maintain.facts import DAY_S, HOUR_S, Job, RepoUpkeep, UpkeepSettings

LOOSE_REFS_MAX = 200  # each is a file to open whenever refs are listed
LOOSE_OBJECTS_MAX = 1000  # fetches leave packs, so there are hardly any
BITMAP_FROM_BYTES = 4_000_000  # below this a walk over all objects takes no time worth saving
PACK_REFS_REST_S = 600.0
REPACK_REST_S = HOUR_S
RETRY_S = DAY_S
RETRY_MAX_S = 30 * DAY_S
_CHANCE_STEPS = 2**53  # what a float holds exactly

NOW = 0.0  # a time that has passed
NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Due:
    """The next job and when, unless syncs bring something before: then see ``after_changes``."""

    at: float  # UTC seconds; infinity: nothing to do while nothing changes
    job: Job | None
    changed_at: float  # when to look again if anything changes at all
    after_changes: int  # this many syncs that brought something, and it is worth a look at once


@dataclass(frozen=True, slots=True)
class _Moment:
    """What a rule looks at."""

    facts: RepoUpkeep
    settings: UpkeepSettings
    now: float
    chance: float

    def unchanged_since(self, job: Job) -> bool:
        """No pack came or went since this job was last done."""
        past = self.facts.past.get(job)
        return past is not None and past.done_at is not None and past.packs_id == self.facts.packs_id

    def cycle(self, job: Job, every_s: float) -> float:
        done_at = self.facts.done_at(job)
        if done_at is None:
            return min(self.facts.first_seen_at, self.now) + self.chance * every_s
        return min(done_at, self.now) + every_s


def _pack_refs(it: _Moment) -> float:
    return NOW if it.facts.loose_refs > LOOSE_REFS_MAX else NEVER


def _geometric(it: _Moment) -> float:
    facts = it.facts
    if facts.has_alternates:
        return NEVER
    if facts.loose_objects > LOOSE_OBJECTS_MAX:
        return NOW
    needed = facts.pack_count > it.settings.packs_max or (
        not facts.has_bitmap and facts.pack_bytes >= BITMAP_FROM_BYTES
    )
    return NOW if needed and not it.unchanged_since(Job.GEOMETRIC) else NEVER


def _commit_graph(it: _Moment) -> float:
    missing = not it.facts.has_commit_graph and it.facts.pack_count > 0
    return NOW if missing and not it.unchanged_since(Job.COMMIT_GRAPH) else NEVER


def _full(it: _Moment) -> float:
    facts = it.facts
    if (past := facts.past.get(Job.FULL)) is not None:
        changed = past.packs_id != facts.packs_id
    else:  # a fresh clone is one pack already
        changed = facts.pack_count > 1 or facts.loose_objects > 0 or facts.done_at(Job.GEOMETRIC) is not None
    return it.cycle(Job.FULL, it.settings.full_every_s) if changed and not facts.has_alternates else NEVER


def _fsck(it: _Moment) -> float:
    return it.cycle(Job.FSCK, it.settings.fsck_every_s)


# In order of need; what a job rests after a success. The cycles of FULL and FSCK are their rest.
_RULES: tuple[tuple[Job, Callable[[_Moment], float], float], ...] = (
    (Job.PACK_REFS, _pack_refs, PACK_REFS_REST_S),
    (Job.GEOMETRIC, _geometric, REPACK_REST_S),
    (Job.COMMIT_GRAPH, _commit_graph, REPACK_REST_S),
    (Job.FULL, _full, 0.0),
    (Job.FSCK, _fsck, 0.0),
)


def plan(facts: RepoUpkeep, settings: UpkeepSettings, now: float, chance: float) -> Job | None:
    """The job that is needed most now; None where nothing is due."""
    due = next_due(facts, settings, now, chance)
    return due.job if due.at <= now else None


def next_due(facts: RepoUpkeep, settings: UpkeepSettings, now: float, chance: float) -> Due:
    """What comes next, and when. Of several that are due now the first of the table."""
    it = _Moment(facts, settings, now, chance)
    times = [(max(rule(it), _rested_at(it, job, rest_s)), job) for job, rule, rest_s in _RULES]
    at, job = min(times, key=lambda entry: max(entry[0], now))  # min takes the first of equals
    after_changed = NEVER if facts.has_alternates else it.cycle(Job.FULL, settings.full_every_s)
    return Due(
        at=at,
        job=job if at < NEVER else None,
        changed_at=min(at, after_changed),
        after_changes=max(1, settings.packs_max + 1 - facts.pack_count),
    )


def _rested_at(it: _Moment, job: Job, rest_s: float) -> float:
    past = it.facts.past.get(job)
    if past is None:
        return NOW
    if past.failures:
        rest_s = min(RETRY_S * 2 ** min(past.failures - 1, 16), RETRY_MAX_S)
    return min(past.tried_at, it.now) + rest_s


def chance_of(key: str, salt: str = "") -> float:
    """From 0 to 1 (exclusive), always the same for one mirror; ``salt`` tells its replicas apart."""
    seed = hashlib.sha256(f"{salt}\0{key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(seed[:8], "big") % _CHANCE_STEPS / _CHANCE_STEPS
