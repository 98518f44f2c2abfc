"""Keeps the store's repos equal to the catalog: everything once, then what each new look changed.

    start ── the same commits, rules and sources as applied before? ──yes──▶ nothing is read
       └──no──▶ read all ─▶ store ─▶ what no file mentions goes (guarded)
    then, every interval: fetch ─▶ changed files ─▶ added, changed, removed ─▶ guard ─▶ store ─▶ applied
                            └─ fails: the last good catalog stays       └─ too much goes: all of it waits

A change is taken whole or not at all, source by source; what is applied is written after it was stored, so
that a crash in between repeats a change and never loses one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from evermirror.core.catalog.diff import REMOVAL_SHARE_MAX, REMOVALS_LEAST, held_back
from evermirror.core.catalog.entry import Problem
from evermirror.edge.catalog.index_file import IndexFile
from evermirror.edge.catalog.reader import CatalogReader, Round, TooMuch
from evermirror.edge.catalog.tree import Listing, Tree
from evermirror.edge.store.store import Store
from evermirror.errors import Conflict, EvermirrorError
from evermirror.model.failure import FailureError
from evermirror.model.repo import RepoKey
from evermirror.model.source import CatalogSource
from evermirror.model.url import UrlRules
from evermirror.nodes.coordinator.catalog.catalog_records import CatalogRecords
from evermirror.nodes.coordinator.catalog.catalog_state import (
    APPLIED,
    PROBLEMS_KEPT,
    Applied,
    CatalogState,
    Held,
    SourceState,
    fingerprint,
)

log = structlog.get_logger(__name__)

PROBLEMS_LOGGED = 20  # the rest is counted; `evermirror catalog check` lists them
NOTES_MAX = 100  # of what is told beside problems


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """How the catalog is looked at."""

    sources: tuple[CatalogSource, ...] = ()
    interval_s: float = 300.0
    accept_removals: bool = False  # an operator's word that a large removal is meant
    removal_share_max: float = REMOVAL_SHARE_MAX
    removals_least: int = REMOVALS_LEAST


@dataclass(slots=True)
class _Seen:
    """What is known of one source."""

    looked_at: float | None = None
    trouble: str = ""
    held: Held | None = None
    held_listing: Listing | None = None


class CatalogWatch:
    """``load`` once at start, then ``run``. ``trees`` are the sources, in their order."""

    def __init__(
        self,
        *,
        settings: CatalogSettings,
        trees: Sequence[Tree],
        store: Store,
        records: CatalogRecords,
        rules: UrlRules,
        clock: Callable[[], float],
        index: Path | None = None,
    ) -> None:
        """``index``: where to keep what was read, so that a restart need not read it again."""
        self._settings = settings
        self._store = store
        self._records = records
        self._clock = clock
        self._fingerprint = fingerprint(settings.sources, rules)
        kept = IndexFile(index, self._fingerprint) if index is not None else None
        self._reader = CatalogReader(trees, rules, kept)
        self._seen = [_Seen() for _ in trees]
        self._looking = asyncio.Lock()
        self._look = asyncio.Event()
        self._begun = False
        self._settled = True  # False: something that no file mentions is still there
        self._held: Held | None = None  # over all sources, after everything was read
        self._problems: tuple[Problem, ...] = ()
        self._problems_total = 0
        self._notes: tuple[str, ...] = ()
        self._trouble = ""  # what was read could not be taken

    # What people may know and say

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know of the catalog."""
        state = self.state()
        said = [
            f"the catalog cannot be read, the last good one stays: {s.trouble}"
            for s in state.sources
            if s.trouble
        ]
        if self._trouble:
            said.append(f"the catalog cannot be taken, the next look tries again: {self._trouble}")
        said += map(str, state.held)
        if state.problems_total:
            first = f", the first: {state.problems[0]}" if state.problems else ""
            said.append(f"{state.problems_total} lines of the catalog have problems{first}")
        return (*said, *state.notes[:5])

    def state(self) -> CatalogState:
        sources = zip(self._settings.sources, self._reader.versions, self._seen, strict=True)
        held = [seen.held for seen in self._seen] + [self._held]
        return CatalogState(
            tuple(
                SourceState(s.place, version, seen.looked_at, seen.trouble) for s, version, seen in sources
            ),
            tuple(h for h in held if h is not None),
            self._problems_total,
            self._problems,
            self._notes,
        )

    def look_now(self) -> None:
        """Look at the catalog again at once."""
        self._look.set()

    async def look(self) -> None:
        """One look at every source, to its end."""
        async with self._looking:
            await self._round()

    async def confirm(self, *, actor: str) -> int:
        """What is held back is done; what came after it was seen is judged anew. Returns how many repos
        were removed."""
        async with self._looking:
            if not self.state().held:
                raise Conflict(
                    "nothing of the catalog is held back", hint="`evermirror catalog show` tells more"
                )
            await self._store.audit(actor, "catalog.confirmed", "", [str(h) for h in self.state().held])
            return await self._round(confirmed=True)

    # Life

    async def load(self) -> None:
        """Bring the store up to date, before anything is assigned. A file that cannot be read is an error; so
        is a git repository, where there is no last good catalog to go on with."""
        if not self._reader.trees:
            return
        applied = Applied.of(await self._store.get_setting(APPLIED))
        async with self._looking:
            try:
                if applied is None or not await self._is_applied(applied):
                    await self._begin()
            except FailureError as error:
                if applied is None:
                    raise EvermirrorError(
                        f"the catalog cannot be read: {error.failure.message}", hint=error.failure.hint
                    ) from error
                log.warning("catalog not read", reason=error.failure.message)
                self._seen[0].trouble = self._seen[0].trouble or error.failure.message

    async def run(self) -> None:
        """Looks every interval, or when asked; what is in git at once."""
        if any(version is not None for version in self._reader.versions) or not self._begun:
            self._look.set()
        while self._reader.trees:
            try:
                async with asyncio.timeout(self._settings.interval_s):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            await self.look()

    # Inside: the first reading

    async def _is_applied(self, applied: Applied) -> bool:
        """Whether the store holds what the sources said; then only what came since is to be looked at."""
        if applied.fingerprint != self._fingerprint or not applied.settled or None in applied.versions:
            return False
        known = zip(self._reader.trees, applied.versions, strict=True)
        listings = [await tree.at(version) for tree, version in known]
        found = [listing for listing in listings if listing is not None]
        if len(found) < len(listings):
            return False
        self._reader.begin(found)
        self._begun = True
        self._problems, self._problems_total = applied.problems, applied.problems_total
        self._notes = applied.notes
        return True

    async def _begin(self) -> None:
        """Read everything and make the store equal to it."""
        listings = []
        for number, tree in enumerate(self._reader.trees):
            listing = await tree.at(None)
            if listing is None:
                try:
                    listing = await tree.look()
                except FailureError as error:
                    self._seen[number].trouble = error.failure.message
                    raise
            self._seen[number] = _Seen(self._clock())
            listings.append(listing)
        self._reader.begin(listings)
        added = updated = 0
        notes: list[str] = []
        known = await self._records.spoken_of()
        async for entries in self._reader.load():
            counts, clashes = await self._records.put(entries, known=known)
            added, updated, notes = added + counts.added, updated + counts.updated, notes + clashes
        self._begun = True
        self._settled = False
        removed = await self._drop_unmentioned(confirmed=False)
        self._notes = tuple(notes[:NOTES_MAX])
        await self._applied()
        await self._store.rest()
        self._log(added, updated, removed)

    async def _drop_unmentioned(self, *, confirmed: bool) -> int:
        """What the store has and no file mentions goes, unless a file that is broken may have meant it."""
        known, gone = 0, list[RepoKey]()
        async for keys in self._records.keys():
            known += len(keys)
            gone += await asyncio.to_thread(self._reader.catalog.unmentioned, keys)
        self._held = None
        if gone and self._reader.catalog.broken:
            return 0
        if self._too_much(len(gone), known) and not confirmed:
            self._held = Held("", None, len(gone), known)
            return 0
        self._settled = not self._reader.catalog.broken
        return await self._records.drop(gone) if gone else 0

    # Inside: every look

    async def _round(self, *, confirmed: bool = False) -> int:
        removed = 0
        try:
            if not self._begun:
                await self._begin()
            for source in range(len(self._reader.trees)):
                removed += await self._look_at(source, confirmed=confirmed)
            if not self._settled:
                removed += await self._drop_unmentioned(confirmed=confirmed)
                if self._settled:
                    await self._applied()
            self._trouble = ""
        except (EvermirrorError, FailureError) as error:  # of the store: the next look tries again
            self._trouble = str(error)
            log.warning("catalog not taken", reason=str(error))
        return removed

    async def _look_at(self, number: int, *, confirmed: bool) -> int:
        seen = self._seen[number]
        try:
            found = await self._reader.look(number)
        except TooMuch:
            await self._begin()
            return 0
        except (EvermirrorError, FailureError) as error:
            seen.trouble = str(error)
            log.warning("catalog not read", source=self._settings.sources[number].place, reason=str(error))
            return 0
        seen.trouble, seen.looked_at = "", self._clock()
        meant = confirmed and seen.held_listing is not None and seen.held_listing.files == found.listing.files
        if found.plan is not None and not meant and self._holds(seen, number, found):
            return 0
        seen.held = seen.held_listing = None
        return await self._take(found)

    def _holds(self, seen: _Seen, number: int, found: Round) -> bool:
        removed = len(found.plan.diff.removed) if found.plan is not None else 0
        total = self._reader.catalog.total
        if not self._too_much(removed, total):
            return False
        if seen.held_listing is None or seen.held_listing.files != found.listing.files:
            place = self._settings.sources[number].place
            seen.held, seen.held_listing = Held(place, found.listing.version, removed, total), found.listing
            log.warning("catalog held back", source=place, removed=removed, repos=total)
        return True

    def _too_much(self, removed: int, total: int) -> bool:
        settings = self._settings
        return not settings.accept_removals and held_back(
            removed, total, share=settings.removal_share_max, least=settings.removals_least
        )

    async def _take(self, found: Round) -> int:
        if found.plan is None:
            moved = found.listing.version != self._reader.versions[found.source]
            self._reader.take(found)
            if moved:
                await self._applied()
            return 0
        diff = found.plan.diff
        counts, clashes = await self._records.put(diff.added + diff.changed)
        removed = await self._records.drop(diff.removed)
        self._reader.take(found)
        self._settled = self._settled and not self._reader.catalog.broken
        self._notes = (*clashes, *self._notes)[:NOTES_MAX]
        await self._applied()
        self._log(counts.added, counts.updated, removed)
        return removed

    async def _applied(self) -> None:
        """The store holds what was read: remembered, with what could not be."""
        if self._reader.loaded:
            catalog = self._reader.catalog
            self._problems_total = catalog.problems_total
            self._problems = tuple(catalog.problems(PROBLEMS_KEPT))
        applied = Applied(
            self._fingerprint,
            tuple(self._reader.versions),
            self._settled,
            self._problems_total,
            self._problems,
            self._notes,
        )
        await self._store.put_setting(APPLIED, applied.as_json())
        await self._reader.remember()

    def _log(self, added: int, updated: int, removed: int) -> None:
        for problem in self._problems[:PROBLEMS_LOGGED]:
            log.warning(
                "catalog line not taken",
                place=f"{problem.file}:{problem.line}",
                reason=problem.reason,
                text=problem.text,
            )
        if self._problems_total > PROBLEMS_LOGGED:
            log.warning("catalog lines not taken", more=self._problems_total - PROBLEMS_LOGGED)
        log.info(
            "catalog read",
            repos=self._reader.catalog.total,
            added=added,
            updated=updated,
            removed=removed,
            problems=self._problems_total,
        )
