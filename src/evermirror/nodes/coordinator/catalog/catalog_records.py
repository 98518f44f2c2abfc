"""What the catalog says, written to the store and told to the worker.

What people set through the API stays: it is laid over what the catalog says of the same repo. What the API
itself brought stays the API's where only the file that it is published in names it. A line with targets makes
its repo a project that is pulled; what a person set of it stays, too (core/pull/layers.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace

from evermirror.core.catalog.entry import CatalogEntry
from evermirror.edge.store.repos import KnownSource, UpsertCounts
from evermirror.edge.store.store import Store
from evermirror.errors import Conflict
from evermirror.model.repo import Priority, RepoKey, RepoRecord
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.tasks.submission import FSCK_ALLOWED, allowance, apply_info

SOURCE = "catalog"
API = "api"
CHUNK = 10_000  # entries written in one transaction

Known = Mapping[RepoKey, KnownSource]


class CatalogRecords:
    """The store's repos of the catalog. ``own_file``, as it is named in entries, is what the API wrote."""

    def __init__(
        self, store: Store, coordinator: Coordinator, credentials: frozenset[str], own_file: str | None = None
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._credentials = credentials
        self._own_file = own_file

    async def put(
        self, entries: Sequence[CatalogEntry], *, known: Known | None = None
    ) -> tuple[UpsertCounts, list[str]]:
        """Add these or take their configuration over, and tell the fleet of those that are new or changed;
        returns what that did, and what is to be told.

        ``known``: what the store knows of them, where that was asked for before. What people said since then
        is heard: such a repo is looked up again."""
        total, clashes = UpsertCounts(), list[str]()
        for start in range(0, len(entries), CHUNK):
            chunk = entries[start : start + CHUNK]
            counts, told = await self._put(chunk, known)
            total, clashes = _together(total, counts), clashes + told
            if counts.left:
                left = frozenset(counts.left)
                counts, told = await self._put([entry for entry in chunk if entry.key in left], None)
                total, clashes = _together(total, counts), clashes + told
        return total, clashes

    async def _put(
        self, entries: Sequence[CatalogEntry], known: Known | None
    ) -> tuple[UpsertCounts, list[str]]:
        async with self._coordinator.changing:
            old = known is not None
            if known is None:
                known = await self._store.known([entry.key for entry in entries])
            taken = [(e, r) for e in entries if (r := self._record(e, known.get(e.key))) is not None]
            lines = {entry.key: entry.targets for entry, _ in taken if entry.targets}
            records = every = [record for _, record in taken]
            clashes: list[str] = []
            try:
                counts = await self._store.upsert_repos(records, said_stays=old)
                untold = self._coordinator.unassigned  # with those of an earlier try that was cut short
                untold.update(counts.moved)
                every = _without(every, counts.left)
                records = [record for record in every if record.key in untold]
            except Conflict:  # an alias given through the API, or passed on: one line's trouble
                records, clashes = _without_taken(records, await self._store.aliases())
                bare = await self._store.upsert_repos(
                    [replace(r, alias=None) for r in records], said_stays=old
                )
                every = records = _without(records, bare.left)
                counts = await self._store.upsert_repos(records)
                counts = replace(counts, left=bare.left, allowed=bare.allowed)
            await self._note_allowed(taken, frozenset(counts.allowed))
            turned = await self._coordinator.follow(every, lines, _overruled(taken))
            if turned:
                turned.difference_update(record.key for record in records)
                records = records + [record for record in every if record.key in turned]
            if records:
                await self._coordinator.assign(records)
        return counts, clashes

    async def _note_allowed(
        self, taken: Sequence[tuple[CatalogEntry, RepoRecord]], allowed: frozenset[RepoKey]
    ) -> None:
        """In the audit log: a line that lets defects through, or no longer does, is a person's doing, too."""
        for entry, record in taken if allowed else ():
            if record.key in allowed:
                where = {"file": entry.file, "line": entry.line}
                await self._store.audit(SOURCE, FSCK_ALLOWED, record.key, {**allowance(record), **where})

    async def drop(self, keys: Sequence[RepoKey]) -> int:
        """These left the catalog; what the API brought stays. Returns how many went."""
        async with self._coordinator.changing:
            known = await self._store.known(list(keys))
            ours = [k for k in keys if k in known and known[k].source == SOURCE and known[k].in_catalog]
            if ours:
                await self._coordinator.release(ours)
        return len(ours)

    def keys(self) -> AsyncIterator[list[RepoKey]]:
        """Everything that is in the store because of the catalog, some thousands at a time."""
        return self._store.keys_of_source(SOURCE)

    async def spoken_of(self) -> Known:
        """All repos that the API brought, or of which something was said there."""
        return await self._store.known()

    def _record(self, entry: CatalogEntry, known: KnownSource | None) -> RepoRecord | None:
        """What was accepted once is not refused now: a credential that is no more fails its repo alone."""
        if known is not None and known.source == API and entry.file == self._own_file:
            return None
        info = known.info if known is not None else {}
        spec = entry.spec
        if entry.targets and spec.credential is not None:  # nobody else is to read it
            spec = replace(spec, private=True)
        record = RepoRecord(
            spec, alias=entry.alias, source=SOURCE, pins=entry.pins, fsck_reason=entry.fsck_reason
        )
        if not info:
            return record
        named = frozenset({c} if isinstance(c := info.get("credential"), str) else ())
        # That no reason was given once does not take away the one of a line.
        said = {name: value for name, value in info.items() if name != "fsck_reason" or value is not None}
        return replace(apply_info(record, said, credentials=self._credentials | named), info=info)


def _overruled(taken: Iterable[tuple[CatalogEntry, RepoRecord]]) -> Mapping[RepoKey, Priority]:
    """What lines say of priorities where people said something else."""
    return {entry.key: entry.spec.priority for entry, record in taken if "priority" in record.info}


def _together(one: UpsertCounts, more: UpsertCounts) -> UpsertCounts:
    return UpsertCounts(one.added + more.added, one.updated + more.updated, one.unchanged + more.unchanged)


def _without(records: list[RepoRecord], left: Sequence[RepoKey]) -> list[RepoRecord]:
    gone = frozenset(left)
    return [record for record in records if record.key not in gone] if gone else records


def _without_taken(
    records: Sequence[RepoRecord], taken: Mapping[str, RepoKey]
) -> tuple[list[RepoRecord], list[str]]:
    """The same without aliases that another repo has, and what is to be told of each."""
    ours = {record.key for record in records}
    owners = {alias: key for alias, key in taken.items() if key not in ours}
    kept, clashes = [], []
    for record in records:
        if record.alias is not None:
            owner = owners.setdefault(record.alias, record.key)
            if owner != record.key:
                clashes.append(f"the alias {record.alias} of {record.key} is that of {owner}: left out")
                record = replace(record, alias=None)
        kept.append(record)
    return kept, clashes
