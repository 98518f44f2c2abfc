"""Who lies: what holders reported, held against what upstream said and what they served.

    charge    fact that must stand still     the holder meanwhile                        spared
    ───────   ────────────────────────────   ─────────────────────────────────────────   ─────────────────────
    STALE     upstream's refs, across two    reported, after the first look, that it     a change held back; a
              looks                          had seen other refs upstream                repo with fallbacks;
                                                                                         append-only, unless
                                                                                         refs are lacking
    LACKS     upstream's refs, across two    advertised exactly these both times, and    -
              fetches                        gave not the objects both times
    DIFFERS   what it serves, across two     reported, after the first look, that it     -
              looks                          has other refs
    REFUSES   what it reports, across two    is not trusted, and refused the repo both   -
              fetches some minutes apart     times
    CORRUPT   -                              gave objects, whole, that are broken        -

Each repetition is a *strike*; ``settings.strikes`` of them accuse (CORRUPT at once). Why honest holders are
safe: a report that is newer than the first look, by more than clocks may differ, came from a look of its own
at the very refs that stood still. An upstream that goes there and back between two looks makes a strike, not
an accusation. Reports count as they were when the attempt began: a later one may tell of a later push.

Where several operators report the same refs and upstream tells us others, upstream shows two faces, or
they conspire: nobody is accused, nothing of it is served, people are told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from evermirror.core.collect.decisions import Fetch, Look
from evermirror.core.collect.events import Attempt, End
from evermirror.core.collect.rows import Charge, Row, Suspicion, agree
from evermirror.core.collect.settings import CollectSettings
from evermirror.model.changes import HolderReport
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import Mode

SUSPICIONS_MAX = 32  # of one repo: twice the holders that are ever told


@dataclass(frozen=True, slots=True)
class Case:
    """An attempt as it began: the repo's row and its holders' reports at that time."""

    order: Fetch | Look
    row: Row
    holders: tuple[HolderReport, ...]

    @property
    def holder(self) -> HolderReport | None:
        return self.order.holder if isinstance(self.order, Fetch) else None


@dataclass(frozen=True, slots=True)
class Accusation:
    node: NodeId
    charge: Charge
    reason: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Weighed:
    """What is suspected from now on, of whom it is certain, and whether upstream shows two faces."""

    suspicions: tuple[Suspicion, ...] = ()
    accusations: tuple[Accusation, ...] = ()
    split: bool = False


REASONS = {
    Charge.STALE: "reports refs as upstream's that upstream did not have",
    Charge.LACKS: "advertises refs whose objects it does not give",
    Charge.DIFFERS: "serves other refs than it reports",
    Charge.REFUSES: "reports a repository of which it gives nothing",
    Charge.CORRUPT: "gave broken objects",
}


def operators_for(digest: RefsDigest | None, holders: tuple[HolderReport, ...]) -> int:
    """How many different operators' workers report these refs; all unnamed ones count as one."""
    return len({h.operator for h in holders if agree(h.digest, digest)})


def weigh(attempt: Attempt, case: Case, now: float, settings: CollectSettings) -> Weighed:
    """The table above, for one attempt."""
    if attempt.end is End.CORRUPT and case.holder is not None:
        found = Suspicion(case.holder.node, Charge.CORRUPT, attempt.upstream or RefsDigest(""), now)
        rest = tuple(s for s in _before(case) if s.node != case.holder.node)
        why = attempt.failure.message if attempt.failure is not None else ""
        return Weighed(rest, (_accusation(found, None, now, why),))
    suspicions: list[Suspicion] = []
    accusations: list[Accusation] = []
    split = False
    for suspicion, report in _suspected(attempt, case, now, settings):
        if suspicion.strikes < settings.strikes:
            suspicions.append(suspicion)
        elif _has_company(suspicion, report, case, settings):
            suspicions.append(replace(suspicion, strikes=settings.strikes - 1))
            split = True
        else:
            accusations.append(_accusation(suspicion, report, now))
    return Weighed(tuple(suspicions[:SUSPICIONS_MAX]), tuple(accusations), split)


def _before(case: Case) -> tuple[Suspicion, ...]:
    return case.row.doubt.suspicions if case.row.doubt is not None else ()


def _has_company(
    suspicion: Suspicion, report: HolderReport | None, case: Case, settings: CollectSettings
) -> bool:
    if suspicion.charge is not Charge.STALE or report is None or settings.quorum < 2:
        return False
    return operators_for(report.digest, case.holders) >= settings.quorum


def _suspected(
    attempt: Attempt, case: Case, now: float, settings: CollectSettings
) -> Iterator[tuple[Suspicion, HolderReport | None]]:
    """Every suspicion as it stands after the attempt, with the report that it is about."""
    reports = {h.node: h for h in case.holders}
    before = {(s.node, s.charge): s for s in _before(case)}
    for node, report in reports.items():
        for charge, look in _LOOKS:
            old = before.pop((node, charge), None)
            new = look(old, report, attempt, case, now, settings.clock_slack_s)
            if new is not None:
                yield new, report
    for (_, charge), old in before.items():  # of holders that are not told now: they may come back
        if (
            charge in (Charge.DIFFERS, Charge.REFUSES)
            or attempt.upstream is None
            or agree(old.fact, attempt.upstream)
        ):
            yield old, None


def _stale(
    old: Suspicion | None, report: HolderReport, attempt: Attempt, case: Case, now: float, slack_s: float
) -> Suspicion | None:
    upstream = attempt.upstream
    if case.row.held_back or case.row.spec.fallbacks:  # at another address it may have seen other refs
        return None
    if upstream is None or report.digest is None:
        return old
    if case.row.spec.mode is Mode.APPEND_ONLY:
        if case.holder is None or report.node != case.holder.node:
            return old if old is not None and agree(old.fact, upstream) else None
        if attempt.end is not End.MISSING:
            return None
    elif agree(report.digest, upstream):
        return None
    return _again(old, Charge.STALE, upstream, report, now, slack_s)


def _differs(
    old: Suspicion | None, report: HolderReport, attempt: Attempt, case: Case, now: float, slack_s: float
) -> Suspicion | None:
    if case.holder is None or report.node != case.holder.node or attempt.served is None:
        return old
    reported = case.holder.digest
    if reported is None or agree(reported, attempt.served):
        return None
    return _again(old, Charge.DIFFERS, attempt.served, report, now, slack_s)


def _again(
    old: Suspicion | None, charge: Charge, fact: RefsDigest, report: HolderReport, now: float, slack_s: float
) -> Suspicion:
    """The first sight of a fact; or the same fact again, and a strike where it reported in between."""
    reported_at = report.verified_at or 0.0
    if old is None or not agree(old.fact, fact):
        return Suspicion(report.node, charge, fact, now, 0, reported_at)
    if reported_at > old.reported_at and reported_at >= old.since + slack_s:
        return replace(old, since=now, strikes=old.strikes + 1, reported_at=reported_at)
    return old


def _lacks(
    old: Suspicion | None, report: HolderReport, attempt: Attempt, case: Case, now: float, slack_s: float
) -> Suspicion | None:
    """No report is needed: what it advertises is its word. The first sight is no strike: it may have
    followed upstream between the two questions."""
    if case.holder is None or report.node != case.holder.node:
        return old
    upstream = attempt.upstream
    if attempt.end is End.DONE:
        return None
    if attempt.end is not End.MISSING or upstream is None or attempt.served is None:
        return old
    if not agree(attempt.served, upstream):
        return None
    if old is None or not agree(old.fact, upstream):
        return Suspicion(report.node, Charge.LACKS, upstream, now)
    return replace(old, strikes=old.strikes + 1)


def _refuses(
    old: Suspicion | None, report: HolderReport, attempt: Attempt, case: Case, now: float, slack_s: float
) -> Suspicion | None:
    """It answered, and gave nothing of what it reports. It may have just been told to delete it: then it
    is not named as a holder some minutes later."""
    if case.holder is None or report.node != case.holder.node or report.trusted or report.digest is None:
        return old
    if attempt.end is not End.HOLDER_REFUSED:
        return old if attempt.end is End.HOLDER_AWAY else None
    if old is None:
        return Suspicion(report.node, Charge.REFUSES, report.digest, now)
    if now >= old.since + slack_s:
        return replace(old, since=now, strikes=old.strikes + 1)
    return old


_LOOKS = (
    (Charge.STALE, _stale),
    (Charge.LACKS, _lacks),
    (Charge.DIFFERS, _differs),
    (Charge.REFUSES, _refuses),
)


def _accusation(s: Suspicion, report: HolderReport | None, now: float, more: str = "") -> Accusation:
    words = [f"at {now:.0f}"]
    if s.fact:
        seen = {Charge.DIFFERS: "served", Charge.REFUSES: "reported"}.get(s.charge, "upstream")
        words.append(f"{seen} {s.fact} since {s.since:.0f}")
    if report is not None:
        words.append(f"reported {report.digest} as of {report.verified_at or 0.0:.0f}")
    if more:
        words.append(more)
    return Accusation(s.node, s.charge, REASONS[s.charge], "; ".join(words))
