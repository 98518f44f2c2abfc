"""What an attempt means: for what is here, for the queue, for the holder it was made at, and for the doubts.

    end              here                  the repo then                        that holder
    ──────────────   ───────────────────   ──────────────────────────────────   ─────────────────────────────
    DONE             what was published    is settled, unless it was wanted     -
                                           anew meanwhile
    LOOKED           as upstream: vouched  is settled, or is to be fetched      -
    MISSING          as before             next holder; doubt is told           is barred for this repo
    DIFFERS          as before             holders are asked anew, backoff      is barred until then
    CORRUPT          as before             next holder                          is accused
    HOLDER_AWAY      as before             next holder                          is barred, backoff
    HOLDER_REFUSED   as before             next holder, holders asked anew      is barred, backoff
    UPSTREAM_AWAY    as before             a quorum, or backoff; so for all     -
                                           of a host that limits us
    GUARDED          as before             retry_last_s                         -
    NO_ROOM          as before             DISK_FULL_S, and no clones           -
    FAILED           as before             backoff                              -

A doubt is kept while somebody is suspected, or while what is here is not what is reported. Who lies is said
in suspect.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evermirror.core.collect.decisions import Belief, Fetch
from evermirror.core.collect.events import Attempt, End
from evermirror.core.collect.limited import limited_s
from evermirror.core.collect.rows import Charge, Doubt, Here, How, Row, agree
from evermirror.core.collect.settings import CollectSettings
from evermirror.core.collect.suspect import Accusation, Case, Weighed, weigh
from evermirror.core.schedule.retry import DISK_FULL_S
from evermirror.model.repo import Mode

HOW = {Belief.UPSTREAM: How.UPSTREAM, Belief.HOLDER: How.HOLDER, Belief.QUORUM: How.QUORUM}
BAR = frozenset({End.MISSING, End.DIFFERS, End.CORRUPT, End.HOLDER_AWAY, End.HOLDER_REFUSED})
ASK_ANEW = frozenset({End.MISSING, End.DIFFERS, End.CORRUPT, End.HOLDER_REFUSED})
NEXT_HOLDER = frozenset({End.MISSING, End.CORRUPT, End.HOLDER_AWAY, End.HOLDER_REFUSED})


@dataclass(frozen=True, slots=True)
class Verdict:
    """``row`` is the repo's from now on, but for its place in the queue (see ``needs``): the machine's."""

    row: Row
    wait_s: float = 0.0  # until the next fetch, where one is needed
    bar_s: float = 0.0  # so long is nothing fetched of this repo from this holder
    ask_anew: bool = False  # who holds it is no longer certain
    next_holder: bool = False  # another one may be tried at once
    upstream_away_s: float = 0.0  # so long a quorum may stand in
    limited_s: float = 0.0  # so long its host wants to be asked for nothing
    fetch: bool = False  # upstream has other refs than are here
    tell_doubt: bool = False
    no_room: bool = False
    accusations: tuple[Accusation, ...] = ()
    split: bool = False


def needs(row: Row) -> bool:
    """Something was reported that is not here and was not answered yet."""
    if row.wanted is None or not row.enabled:
        return False
    if row.here is None or not row.served:
        return True
    if row.spec.mode is Mode.EXACT and agree(row.here.digest, row.wanted):
        return False
    return not agree(row.taken, row.wanted)


def is_open(row: Row) -> bool:
    """What is wanted is not here, whether or not an attempt has answered it: it keeps the place it has."""
    if not row.enabled or row.here is None or not row.served or row.spec.mode is not Mode.EXACT:
        return needs(row)
    return row.wanted is not None and not agree(row.here.digest, row.wanted)


def backoff_s(failures: int, settings: CollectSettings) -> float:
    """The first delay, doubled with each failure in a row (from 1), up to the last."""
    steps = min(max(failures, 1) - 1, 30)
    return min(settings.retry_first_s * 2.0**steps, settings.retry_last_s)


def judge(attempt: Attempt, case: Case, row: Row, now: float, settings: CollectSettings) -> Verdict:
    """``case`` is how it began, ``row`` how the repo is told by now."""
    weighed = weigh(attempt, case, now, settings)
    match attempt.end:
        case End.DONE:
            verdict = _done(attempt, case, row)
        case End.LOOKED:
            verdict = _looked(attempt, row)
        case _:
            verdict = _failed(attempt, row, settings)
    return _with_doubt(verdict, weighed, now, settings)


def _done(attempt: Attempt, case: Case, row: Row) -> Verdict:
    order = case.order
    if not isinstance(order, Fetch) or attempt.published is None:
        return Verdict(row)
    verified_at = attempt.looked_at
    if order.belief is not Belief.UPSTREAM:
        verified_at = min(order.holder.verified_at or 0.0, verified_at)
    here = Here(attempt.published, verified_at, HOW[order.belief], order.holder.node, attempt.size_bytes)
    told_since = row.wanted_at != case.row.wanted_at
    taken = case.row.wanted if _answers(order, case.row) and not told_since else None
    return Verdict(replace(row, here=here, taken=taken, failures=0, retry_at=0.0, guard=None))


def _answers(order: Fetch, row: Row) -> bool:
    """What was believed is at least as new as what was wanted."""
    if order.belief is Belief.UPSTREAM or agree(order.expected, row.wanted):
        return True
    return (order.holder.verified_at or 0.0) > (row.wanted_at or 0.0)


def _looked(attempt: Attempt, row: Row) -> Verdict:
    here = row.here
    if here is None or attempt.upstream is None or row.spec.mode is not Mode.EXACT:
        return Verdict(row)
    if here.how is How.DAMAGED:  # a look mends nothing
        return Verdict(row)
    if not agree(here.digest, attempt.upstream):
        return Verdict(row, fetch=not row.held_back)
    vouched = replace(here, verified_at=max(here.verified_at, attempt.looked_at), how=How.UPSTREAM)
    return Verdict(replace(row, here=vouched))


def _failed(attempt: Attempt, row: Row, settings: CollectSettings) -> Verdict:
    end, asked_s = attempt.end, attempt.retry_after_s or 0.0
    failures = row.failures + 1
    wait_s = min(max(backoff_s(failures, settings), asked_s), settings.retry_last_s)
    if end is End.GUARDED:
        row, wait_s = replace(row, guard=attempt.guard), settings.retry_last_s
    elif end is End.NO_ROOM:
        wait_s = max(wait_s, DISK_FULL_S)
    return Verdict(
        replace(row, failures=failures),
        wait_s=wait_s,
        bar_s=wait_s if end in BAR else 0.0,
        ask_anew=end in ASK_ANEW,
        next_holder=end in NEXT_HOLDER,
        upstream_away_s=wait_s if end is End.UPSTREAM_AWAY else 0.0,
        limited_s=limited_s(attempt, settings.retry_last_s),
        tell_doubt=end in (End.MISSING, End.DIFFERS),
        no_room=end is End.NO_ROOM,
    )


def _with_doubt(verdict: Verdict, weighed: Weighed, now: float, settings: CollectSettings) -> Verdict:
    """The doubt that remains, and when it is looked at again. Fetches in between do not put that off."""
    row = verdict.row
    old = row.doubt
    round_over = old is None or now >= old.again_at
    rounds = (old.rounds if old is not None else 0) + (1 if round_over else 0)
    struck = _strikes(weighed) > (sum(s.strikes for s in old.suspicions) if old is not None else 0)
    rounds = 1 if struck else rounds  # somebody is on the way to be found out: this goes on
    doubt: Doubt | None = None
    if (weighed.suspicions or _unsettled(row)) and rounds <= settings.doubt_rounds:
        # Upstream says nothing about who refuses: the next fetch does, and nobody keeps a seat for a look.
        only_refused = all(s.charge is Charge.REFUSES for s in weighed.suspicions) and not _unsettled(row)
        wait_s = settings.retry_last_s if only_refused else settings.doubt_wait_s
        again_at = now + wait_s if old is None or round_over else old.again_at
        doubt = Doubt(again_at, rounds, weighed.suspicions)
    return replace(
        verdict,
        row=replace(row, doubt=doubt),
        tell_doubt=verdict.tell_doubt or (doubt is not None and round_over),
        accusations=weighed.accusations,
        split=weighed.split,
    )


def _strikes(weighed: Weighed) -> int:
    return sum(s.strikes for s in weighed.suspicions)


def _unsettled(row: Row) -> bool:
    """What is here is not what is reported: one more round."""
    if row.spec.mode is not Mode.EXACT or row.held_back:
        return False
    return row.here is not None and row.wanted is not None and not agree(row.here.digest, row.wanted)
