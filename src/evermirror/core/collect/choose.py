"""Which holder a repo is fetched from, and whose word counts there.

    holder                  its word                        believed is
    ─────────────────────   ─────────────────────────────   ────────────────────────────────────────────────
    trusted                 its reported digest             HOLDER (UPSTREAM where all is verified)
    any other               nothing                         UPSTREAM
    any other, upstream     what enough operators report    QUORUM; nobody where they do not agree
    away or held back       alike

Nobody takes us back: where upstream is not asked, a report older than what is here does not count. Of those
that are left the first by: has the wanted digest, trusted, least busy, primary, latest report.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from evermirror.core.collect.decisions import Belief
from evermirror.core.collect.rows import Row, agree
from evermirror.core.collect.settings import CollectSettings, Verify
from evermirror.core.collect.suspect import operators_for
from evermirror.model.changes import HolderReport
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId


@dataclass(frozen=True, slots=True)
class Scene:
    """What matters beside the repo itself."""

    reachable: Set[NodeId]
    load: Mapping[NodeId, int]  # fetches under way from each
    barred: Set[NodeId]  # for this repo, now
    upstream_away: bool


@dataclass(frozen=True, slots=True)
class Choice:
    holder: HolderReport
    belief: Belief
    expected: RefsDigest | None
    accept: bool


@dataclass(frozen=True, slots=True)
class Nobody:
    """``busy`` would do, and have enough to do; ``away`` would do and cannot be reached. Both empty: nobody
    will do until something else changes."""

    busy: tuple[NodeId, ...] = ()
    away: tuple[NodeId, ...] = ()


def choose(
    row: Row, holders: tuple[HolderReport, ...], scene: Scene, settings: CollectSettings
) -> Choice | Nobody:
    """The best holder that is free, or why there is none."""
    able = []
    for holder in holders:
        belief = _belief(row, holder, holders, scene.upstream_away, settings)
        if belief is not None and holder.node not in scene.barred:
            able.append((holder, belief))
    reached = [(h, b) for h, b in able if h.node in scene.reachable]
    free = [(h, b) for h, b in reached if scene.load.get(h.node, 0) < settings.per_holder]
    if not free:
        away = tuple(h.node for h, _ in able if h.node not in scene.reachable)
        return Nobody(tuple(h.node for h, _ in reached), away)
    holder, belief = min(free, key=lambda each: _rank(each[0], row, scene))
    expected = row.wanted if belief is Belief.UPSTREAM else holder.digest
    confirmed = belief is not Belief.UPSTREAM or _vouched(row, holders, settings)
    return Choice(holder, belief, expected, confirmed and not row.held_back)


def _rank(holder: HolderReport, row: Row, scene: Scene) -> tuple[bool, bool, int, bool, float, str]:
    return (
        not agree(holder.digest, row.wanted),
        not holder.trusted,
        scene.load.get(holder.node, 0),
        not holder.primary,
        -(holder.verified_at or 0.0),
        holder.node,
    )


def _belief(
    row: Row,
    holder: HolderReport,
    holders: tuple[HolderReport, ...],
    upstream_away: bool,
    settings: CollectSettings,
) -> Belief | None:
    """How far this holder would be believed; None: there is nothing to be had from it."""
    if holder.trusted and (settings.verify is Verify.UNTRUSTED or _is_closed(row)):
        return Belief.HOLDER if _ahead(row, holder) else None
    if not upstream_away and not row.held_back:
        return Belief.UPSTREAM
    agreed = operators_for(holder.digest, holders) >= settings.quorum
    return Belief.QUORUM if agreed and _ahead(row, holder) else None


def _is_closed(row: Row) -> bool:
    """Upstream does not answer us: only workers have the credentials."""
    return row.spec.private or row.spec.credential is not None


def _ahead(row: Row, holder: HolderReport) -> bool:
    """Its report leads on from what is here."""
    if holder.digest is None:
        return False
    if row.here is None or not row.served:
        return True
    if agree(holder.digest, row.here.digest):
        return agree(holder.digest, row.wanted)
    return (holder.verified_at or 0.0) >= row.here.verified_at


def _vouched(row: Row, holders: tuple[HolderReport, ...], settings: CollectSettings) -> bool:
    """Somebody whose guard counts has let the wanted refs pass."""
    trusted = any(h.trusted and agree(h.digest, row.wanted) for h in holders)
    return trusted or operators_for(row.wanted, holders) >= max(settings.quorum, 2)
