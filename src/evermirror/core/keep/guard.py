"""Is upstream to be followed? Three sights say: not yet, something may have happened there.

    reason      seen                                               confirmed by
    ─────────   ────────────────────────────────────────────────   ──────────────────────────────────────────
    unrelated   the default branch's new history has nothing in     a person
                common with the old one (a name taken over)
    emptied     there were refs, and there are none                 a person, or the same again: at least
    shrunken    more than max(least, share × refs) of them went     SIGHTINGS_MIN polls over confirm_after

The same again means the same reason, and for *shrunken* no larger loss than at first sight (give or take what
would not have been a reason by itself). Anything else starts the wait anew. A new mirror is not guarded.
While a change is held back nothing public changes, and polls go on.
"""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.model.duration import format_duration
from evermirror.model.kept import GuardMemory as GuardMemory
from evermirror.model.kept import GuardReason as GuardReason
from evermirror.model.refs import RefSnapshot

SIGHTINGS_MIN = 3  # one strange answer may be a proxy's, two the same one's cache


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """When to be suspicious, and for how long."""

    share: float = 0.2  # of the refs
    least: int = 5  # refs: a small repo loses half of its branches on any ordinary day
    confirm_after_s: float = 86_400.0

    def tolerated(self, refs: int) -> float:
        """How many of ``refs`` may go at once."""
        return max(float(self.least), self.share * refs)


def judge(
    before: RefSnapshot,
    seen: RefSnapshot,
    memory: GuardMemory | None,
    now: float,
    settings: GuardSettings,
    *,
    unrelated: bool = False,
    accept: bool = False,
) -> GuardMemory | None:
    """None: follow. Otherwise nothing changes, and this is to be remembered until the next poll."""
    lost = len(before.refs.keys() - seen.refs.keys())
    reason = _reason(before, seen, lost, settings, unrelated)
    if reason is None or accept:
        return None
    tolerated = settings.tolerated(len(before.refs))
    if memory is None or not _same_again(memory, reason, lost, now, tolerated):
        return GuardMemory(reason, now, 1, seen.digest(), lost)
    sightings = memory.sightings + 1
    waited = now - memory.since >= settings.confirm_after_s and sightings >= SIGHTINGS_MIN
    if waited and reason is not GuardReason.UNRELATED:
        return None
    return GuardMemory(reason, memory.since, sightings, seen.digest(), memory.lost)


def _reason(
    before: RefSnapshot, seen: RefSnapshot, lost: int, settings: GuardSettings, unrelated: bool
) -> GuardReason | None:
    if not before.refs:
        return None
    if unrelated:
        return GuardReason.UNRELATED
    if not seen.refs:
        return GuardReason.EMPTIED
    return GuardReason.SHRUNKEN if lost > settings.tolerated(len(before.refs)) else None


def _same_again(memory: GuardMemory, reason: GuardReason, lost: int, now: float, tolerated: float) -> bool:
    return memory.reason is reason and memory.since <= now and lost <= memory.lost + tolerated


def explain(memory: GuardMemory, before: RefSnapshot, seen: RefSnapshot) -> str:
    """One sentence for people: what was seen, and that nothing was changed."""
    match memory.reason:
        case GuardReason.EMPTIED:
            what = f"upstream is empty, and had {len(before.refs)} ref{'s' * (len(before.refs) != 1)}"
        case GuardReason.SHRUNKEN:
            lost = len(before.refs.keys() - seen.refs.keys())
            what = f"upstream lost {lost} of {len(before.refs)} refs"
        case GuardReason.UNRELATED:
            what = "upstream's default branch has a history that is unrelated to the one here"
    return f"held back: {what}"


def advice(memory: GuardMemory, settings: GuardSettings) -> str:
    """How it is confirmed."""
    if memory.reason is GuardReason.UNRELATED:
        return (
            "Look at upstream: the name may have been taken over. Confirm it (`evermirror confirm`) to follow"
        )
    wait = format_duration(settings.confirm_after_s)
    return f"Confirm it (`evermirror confirm`), or it is followed when it still looks so after {wait}"
