"""After a push: what the target's git said of each ref, against what is there now; and what we know then.

    there now             said      then
    ───────────────────   ───────   ───────────────────────────────────────────────────────────
    what was wanted       anything  put, or deleted
    what was there before yes       wrong: the push is no success; or the look was stale (pending)
                          no        REFUSED, with the reason; CONFLICT where the lease failed
                          nothing   not done; it may still come (pending)
    something else        anything  CONFLICT: somebody else writes there

Where the target could not be read afterwards, what was said counts, and the rest is pending.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from evermirror.core.push.plan import LastPut, PushPlan, RefPush, Refusal, public_refs
from evermirror.model.push import PushedRef, RefOutcome
from evermirror.model.refs import Oid

PENDING_MAX = 4  # values of one ref: as many pushes in a row of which nobody saw the end
_MOVED = "somebody else moved it meanwhile"


@dataclass(frozen=True, slots=True)
class Told:
    """What was said of one ref. ``stale``: its lease failed; ``in_vain``: much was sent to hear no."""

    ok: bool
    reason: str = ""
    stale: bool = False
    in_vain: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """``refs`` has those that moved and those that wait; ``wrong`` what was promised and is not there."""

    put: LastPut
    refs: tuple[PushedRef, ...] = ()
    wrong: tuple[str, ...] = ()

    def count(self, *outcomes: RefOutcome) -> int:
        return sum(ref.outcome in outcomes for ref in self.refs)


def intents(plan: PushPlan) -> LastPut:
    """What is written down before the first ref is pushed."""
    pending = dict(plan.put.pending)
    for change in plan.changes:
        if change.new is not None:
            pending[change.name] = _with(pending.get(change.name, ()), change.new)
    return LastPut(plan.put.refs, pending, plan.put.refused)


def settle(
    plan: PushPlan,
    wanted: Mapping[str, Oid],
    told: Mapping[str, Told],
    begun: Set[str],
    after: Mapping[str, Oid] | None,
) -> Settled:
    """``begun``: names that a command was started for; ``after``: the target's refs now, where known."""
    ledger = _Ledger(plan, told, None if after is None else public_refs(after))
    for change in plan.changes:
        if change.name in begun:
            ledger.enter(change)
    ledger.check(public_refs(wanted))
    put = LastPut(ledger.put, ledger.pending, ledger.refused)
    return Settled(put, tuple(ledger.refs), tuple(ledger.wrong))


class _Ledger:
    def __init__(self, plan: PushPlan, told: Mapping[str, Told], after: Mapping[str, Oid] | None) -> None:
        self._told = told
        self._after = after
        self._entered = {c.name for c in plan.changes} | {ref.name for ref in plan.waiting}
        self.put = dict(plan.put.refs)
        self.pending = dict(plan.put.pending)
        self.refused = dict(plan.put.refused)
        self.refs = list(plan.waiting)
        self.wrong: list[str] = []

    def enter(self, change: RefPush) -> None:
        told = self._told.get(change.name)
        if told is not None:
            self.pending.pop(change.name, None)
        if self._after is None:
            self._believe(change, told)
            return
        have = self._after.get(change.name)
        if have == change.new:
            self._done(change)
        elif have == change.old:
            self._unmoved(change, told)
        else:
            if told is not None and told.ok:
                self._ours(change)
            self._wait(change, have, RefOutcome.CONFLICT, _MOVED)

    def check(self, wanted: Mapping[str, Oid]) -> None:
        """What was there already must be there still."""
        for name, oid in wanted.items() if self._after is not None else ():
            have = self._after.get(name) if self._after is not None else None
            if name not in self._entered and have != oid:
                self.refs.append(PushedRef(name, have, oid, RefOutcome.CONFLICT, _MOVED))

    def _believe(self, change: RefPush, told: Told | None) -> None:
        if told is None:
            self._perhaps(change)
        elif told.ok:
            self._done(change)
        else:
            self._refuse(change, told)

    def _unmoved(self, change: RefPush, told: Told | None) -> None:
        if told is None:
            self._perhaps(change)
        elif told.ok:
            self._perhaps(change)  # a replica that lags behind may have been asked
            self.wrong.append(f"{change.name} was taken, it said, and is not as it should be")
        else:
            self._refuse(change, told)

    def _refuse(self, change: RefPush, told: Told) -> None:
        if told.in_vain and not told.stale and change.new is not None:
            self.refused[change.name] = Refusal(change.new, told.reason)
        outcome = RefOutcome.CONFLICT if told.stale else RefOutcome.REFUSED
        self._wait(change, change.old, outcome, told.reason)

    def _done(self, change: RefPush) -> None:
        self._ours(change)
        outcome = RefOutcome.DELETED if change.new is None else RefOutcome.PUT
        self.refs.append(PushedRef(change.name, change.old, change.new, outcome))

    def _ours(self, change: RefPush) -> None:
        self.pending.pop(change.name, None)
        if change.new is None:
            self.put.pop(change.name, None)
        else:
            self.put[change.name] = change.new

    def _perhaps(self, change: RefPush) -> None:
        if change.new is not None:
            self.pending[change.name] = _with(self.pending.get(change.name, ()), change.new)

    def _wait(self, change: RefPush, have: Oid | None, outcome: RefOutcome, reason: str) -> None:
        self.refs.append(PushedRef(change.name, have, change.new, outcome, reason))


def _with(values: tuple[Oid, ...], new: Oid) -> tuple[Oid, ...]:
    return (*(v for v in values if v != new), new)[-PENDING_MAX:]
