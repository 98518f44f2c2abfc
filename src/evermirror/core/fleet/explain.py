"""Why a repo is where it is, in plain lines: what was decided and when, and how the ring looks from there
now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from evermirror.core.fleet.copies import PROOF, CopyState, Reason
from evermirror.core.fleet.crew import Crew, Member
from evermirror.core.fleet.hashing import positions
from evermirror.core.fleet.rebalance import Rebalancer
from evermirror.core.fleet.table import TRUSTED_ONLY, FleetTable
from evermirror.core.fleet.views import CopyView, RepoView
from evermirror.model.worker import Duty, Liveness, WorkerId

WALK_MAX = 8  # workers named on the walk round the ring; who comes later hardly matters

WHY = {
    Reason.HOME: "first on its walk round the ring",
    Reason.NEXT: "those before it on the ring were full or not allowed",
    Reason.PINNED: "pinned there by the catalog",
    Reason.KEPT: "it was held there already",
    Reason.JOINED: "the share of a worker that joined",
    Reason.LOST: "the worker that had it went down or away",
    Reason.DRAINED: "the worker that had it is being drained",
    Reason.SHED: "the worker that had it was over its bound",
    Reason.REHASHED: "another worker handed it back",
    Reason.OVERFULL: "everybody else who may hold it is at the bound",
    Reason.FOUND: "told by the worker; never placed there",
    Reason.SLOW: "another worker took too long to clone it",
    Reason.PROOF: "otherwise only workers that are not trusted would hold it",
}

STATES = {
    CopyState.PLANNED: "waits for its turn to be cloned",
    CopyState.ASKED: "is being cloned",
    CopyState.DEFERRED: "waits, or could not be cloned so far; its worker tries by itself",
    CopyState.HELD: "is complete",
    CopyState.STOPPING: "was told to stop",
    CopyState.LEAVING: "is being deleted: other verified copies exist, or the catalog dropped it",
}


def explain(table: FleetTable, crew: Crew, rebalancer: Rebalancer, repo: RepoView | None) -> tuple[str, ...]:
    """Empty for a repo that nobody knows."""
    return () if repo is None else tuple(_lines(table, crew, rebalancer, repo))


def _lines(table: FleetTable, crew: Crew, rebalancer: Rebalancer, repo: RepoView) -> Iterator[str]:
    if repo.removed:
        yield "It left the catalog: no copy is wanted."
    wanted = sum(copy.rank not in (None, PROOF) for copy in repo.copies)
    if not repo.removed:
        yield f"{wanted} of {repo.replicas} wanted copies are placed."
    if not repo.removed and not repo.verified and any(c.state is CopyState.HELD for c in repo.copies):
        yield "It is not verified: only workers that are not trusted say that they hold it."
    if repo.no_room:
        yield "It waits for room: no worker that may hold it can take it."
    for copy in repo.copies:
        yield _copy_line(crew, copy, primary=copy.worker == repo.primary)
    if not repo.removed:
        yield from _walk_lines(table, crew, rebalancer, repo)


def _copy_line(crew: Crew, copy: CopyView, *, primary: bool) -> str:
    name = _name(crew, copy.worker)
    day = datetime.fromtimestamp(copy.since_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    role = ", primary" if primary else ""
    if copy.rank is None:
        return f"On {name}, no longer wanted there{role}: {STATES[copy.state]}{_until(crew, copy)}."
    return f"On {name}, since {day}{role}: {STATES[copy.state]}; {WHY[copy.reason]}."


def _until(crew: Crew, copy: CopyView) -> str:
    member = crew.get(copy.worker)
    if copy.state is CopyState.HELD and member is not None and member.keeps_moved:
        return "; kept and followed, as people read from this machine, until the worker is drained"
    if copy.state is CopyState.HELD:
        return "; kept until every wanted copy is complete and a trusted one has the same refs"
    return ""


def _walk_lines(table: FleetTable, crew: Crew, rebalancer: Rebalancer, repo: RepoView) -> Iterator[str]:
    row = table.row_of(repo.key)
    at = positions(table.hash[row : row + 1], table.salt[row : row + 1])
    if repo.salt:
        yield f"It was handed back {repo.salt} times; each time it got another place on the ring."
    names = rebalancer.pins.get(row, ())
    if names:
        yield f"The catalog pins it to {', '.join(names)}."
    trusted_only = bool(table.flags[row] & TRUSTED_ONLY)
    walk = [
        f"{m.record.facts.name}{_remark(m, trusted_only)}"
        for w in islice(rebalancer.ring.walk(int(at[0])), WALK_MAX)
        if (m := crew.get(WorkerId(int(w)))) is not None
    ]
    if walk:
        yield f"On the ring it meets: {', '.join(walk)}."


def _remark(member: Member, trusted_only: bool) -> str:
    if trusted_only and not member.record.facts.trusted:
        return " (not trusted)"
    if member.record.duty is not Duty.ACTIVE or member.record.liveness is not Liveness.ALIVE:
        return f" ({member.record.status})"
    return "" if member.accepting else " (full disk)"


def _name(crew: Crew, worker: WorkerId) -> str:
    member = crew.get(worker)
    return f"worker {worker}" if member is None else member.record.facts.name
