"""How a target is, ref by ref, without asking it: the mirror against what we last put there, and what the
last push that looked found besides.

    mirror has   last put     then
    ──────────   ──────────   ─────────────────────────────────────────────
    a value      the same     equal
    a value      another      behind; refused where the target did not take it
    a value      nothing      missing; refused likewise
    nothing      a value      extra: it is deleted there by the next push
    anything     the last push found it in conflict: foreign; or was refused it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from evermirror.core.push.plan import LastPut
from evermirror.model.push import (
    Pushed,
    PushedRef,
    RefOutcome,
    RefStanding,
    RefState,
    TargetId,
    TargetStanding,
)
from evermirror.model.refs import Oid

REFS_SHOWN = 200  # of one target
_UNSEEN = "nobody saw the end of its last push"
_STATES = {RefOutcome.CONFLICT: RefState.FOREIGN, RefOutcome.REFUSED: RefState.REFUSED}


def standing_of(
    target: TargetId, url: str, mirror: Mapping[str, Oid], last: LastPut, most: int = REFS_SHOWN
) -> TargetStanding:
    """``mirror``: its branches and tags."""
    others = sorted(n for n in mirror.keys() | last.refs.keys() if mirror.get(n) != last.refs.get(n))
    shown = [_ref(name, mirror.get(name), last) for name in others[:most]]
    equal = len(mirror) - sum(name in mirror for name in others)
    if len(shown) < most:
        level = (n for n in sorted(mirror) if last.refs.get(n) == mirror[n])
        shown += [_ref(name, mirror[name], last) for name in islice(level, most - len(shown))]
    return TargetStanding(target, url, equal, tuple(shown), complete=len(others) <= most)


def _ref(name: str, ours: Oid | None, last: LastPut) -> RefStanding:
    theirs, refusal = last.refs.get(name), last.refused.get(name)
    reason = _UNSEEN if name in last.pending else ""
    if ours == theirs:
        state = RefState.EQUAL
    elif ours is None:
        state = RefState.EXTRA
    elif refusal is not None and refusal.oid == ours:
        state, reason = RefState.REFUSED, refusal.reason
    else:
        state = RefState.MISSING if theirs is None else RefState.BEHIND
    return RefStanding(name, state, ours, theirs, reason)


def looked(push: Pushed) -> bool:
    """Whether the target was seen in that push, or is known to have had everything."""
    return push.failure is None or push.waiting_total > 0


def with_push(
    known: TargetStanding | None, push: Pushed | None, most: int = REFS_SHOWN
) -> tuple[tuple[RefStanding, ...], int | None]:
    """The refs with what the last push that looked found, those not equal first; and how many are equal, None
    where that is not known."""
    waiting = {r.name: r for r in (push.refs if push is not None else ()) if r.outcome in _STATES}
    refs = {ref.name: ref for ref in (known.refs if known is not None else ())}
    equal = known.equal if known is not None else None
    if known is not None and equal is not None:
        equal -= sum(_counted_equal(ref, refs, known) for ref in waiting.values())
    found = [*(_waits(w, refs.get(w.name)) for w in waiting.values()), *_others(refs, waiting)]
    found.sort(key=lambda ref: (ref.state is RefState.EQUAL, ref.name))
    return tuple(found[:most]), equal


def _counted_equal(found: PushedRef, refs: Mapping[str, RefStanding], known: TargetStanding) -> bool:
    """One that is not named is equal where all others are named, unless nobody has it any more."""
    ref = refs.get(found.name)
    if ref is not None:
        return ref.state is RefState.EQUAL
    unnamed = known.equal - sum(r.state is RefState.EQUAL for r in refs.values())
    return known.complete and unnamed > 0 and found.new is not None


def _others(refs: Mapping[str, RefStanding], waiting: Mapping[str, PushedRef]) -> Iterable[RefStanding]:
    return (ref for name, ref in refs.items() if name not in waiting)


def _waits(found: PushedRef, known: RefStanding | None) -> RefStanding:
    ours = known.ours if known is not None else found.new
    return RefStanding(found.name, _STATES[found.outcome], ours, found.old, found.reason)
