"""Short ways to say what a repo, its holders and an attempt are."""

from __future__ import annotations

import hashlib

from evermirror.core.collect.decisions import Belief, Fetch, Look
from evermirror.core.collect.events import Attempt, End
from evermirror.core.collect.rows import Here, How, Row
from evermirror.core.collect.suspect import Case
from evermirror.model.changes import Change, HolderReport
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import Host, Mode, Priority, RepoKey, RepoSpec

NOW = 1_000_000.0


def digest(name: str) -> RefsDigest:
    return RefsDigest(hashlib.sha256(name.encode()).hexdigest())


A, B, C = digest("a"), digest("b"), digest("c")
ANNA, BERT, CARL = NodeId("worker/1"), NodeId("worker/2"), NodeId("worker/3")


def spec(name="one", priority=Priority.NORMAL, mode=Mode.EXACT, fallbacks=()):
    key = RepoKey(f"forge.example/{name}")
    return RepoSpec(key, f"https://{key}", Host("forge.example"), priority, mode=mode, fallbacks=fallbacks)


def holder(node=ANNA, refs=A, at=NOW - 100, *, trusted=False, operator="", primary=False):
    return HolderReport(node, node, trusted, operator or node, primary, refs, at)


def change(name="one", refs=A, seq=1, holders=(), **fields):
    return Change(seq, spec(name), digest=refs, verified_at=NOW - 100, holders=tuple(holders), **fields)


def here(refs=A, at=NOW - 500, how=How.UPSTREAM, source=ANNA, size=10):
    return Here(refs, at, how, source, size)


def row(name="one", *, wanted=A, at=NOW - 100, **fields):
    return Row(fields.pop("spec", None) or spec(name), 1, wanted=wanted, wanted_at=at, **fields)


def case(repo, reports, chosen=None, belief=Belief.UPSTREAM, number=1):
    """An attempt at ``chosen``; a look at upstream where nobody is."""
    if chosen is None:
        return Case(Look(number, repo.key, repo.spec), repo, tuple(reports))
    expected = repo.wanted if belief is Belief.UPSTREAM else chosen.digest
    order = Fetch(number, repo.key, repo.spec, chosen, belief, expected, repo.first)
    return Case(order, repo, tuple(reports))


def ended(end=End.DONE, number=1, name="one", looked_at=NOW, **fields):
    return Attempt(number, spec(name).key, end, looked_at, **fields)
