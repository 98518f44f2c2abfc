"""Keeps the store's repos equal to the catalog's list files, and says what could not be read.

What people set through the API stays: it is laid over what the catalog says of the same repo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from evermirror.core.catalog.diff import diff, held_back
from evermirror.core.catalog.listfile import CatalogEntry, Problem
from evermirror.edge.catalog_files import read_list_files
from evermirror.edge.store.store import Store
from evermirror.errors import Conflict, EvermirrorError
from evermirror.model.failure import FailureError
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.model.url import UrlRules
from evermirror.nodes.coordinator import Coordinator
from evermirror.nodes.submission import apply_info

log = structlog.get_logger(__name__)

SOURCE = "catalog"
PROBLEMS_LOGGED = 20  # the rest is counted; `evermirror doctor` lists them


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """Where the catalog is and how often it is looked at."""

    sources: tuple[Path, ...]
    interval_s: float
    accept_removals: bool = False  # an operator's word that a large removal is meant


class CatalogWatch:
    """``load`` once at start, then ``run``."""

    def __init__(
        self,
        *,
        settings: CatalogSettings,
        store: Store,
        coordinator: Coordinator,
        rules: UrlRules,
        credentials: frozenset[str],
    ) -> None:
        self._settings = settings
        self._store = store
        self._coordinator = coordinator
        self._rules = rules
        self._credentials = credentials
        self._last: list[CatalogEntry] = []
        self._problems: list[Problem] = []
        self._look = asyncio.Event()
        self._told: tuple[str, ...] = ()  # of the catalog that was last read
        self._trouble: tuple[str, ...] = ()  # with reading it now

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know of the catalog."""
        return self._trouble + self._told

    def look_now(self) -> None:
        """Read the catalog again at once."""
        self._look.set()

    async def load(self) -> None:
        """Bring the store up to date, before anything is assigned. An unreadable source is an error."""
        if self._settings.sources:
            await self._take(await self._read(), assign=False)

    async def run(self) -> None:
        """Looks every interval, or when asked; a source that cannot be read keeps the last good catalog."""
        while self._settings.sources:
            try:
                async with asyncio.timeout(self._settings.interval_s):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            try:
                await self._take(await self._read(), assign=True)
                self._trouble = ()
            except (EvermirrorError, FailureError) as error:
                self._trouble = (f"the catalog cannot be read, the last good one stays: {error}",)
                log.warning("catalog not read", reason=str(error))

    async def _read(self) -> tuple[list[CatalogEntry], list[Problem]]:
        return await asyncio.to_thread(read_list_files, self._settings.sources, self._rules)

    async def _take(self, read: tuple[list[CatalogEntry], list[Problem]], *, assign: bool) -> None:
        entries, problems = read
        if assign and (entries, problems) == (self._last, self._problems):
            return
        change = diff(self._last, entries)
        _log_problems(problems)
        told = (
            [f"{len(problems)} lines of the catalog have problems, the first: {problems[0]}"]
            if problems
            else []
        )
        known = await self._store.keys_of_source(SOURCE)
        unsure = {p.key for p in problems if p.key is not None}
        removed = list(known - {entry.key for entry in entries} - unsure)
        if held_back(len(removed), len(known)) and not self._settings.accept_removals:
            told.append(
                f"the catalog lost {len(removed)} of {len(known)} repos: held back until "
                "`evermirror up --accept-removals` confirms it"
            )
            removed = []
        async with self._coordinator.changing:
            overlays = await self._store.overlays()
            records = [
                self._record(entry, overlays.get(entry.key, {})) for entry in change.added + change.changed
            ]
            try:
                counts = await self._store.upsert_repos(records)
            except Conflict:  # an alias given through the API: one line's trouble, not the catalog's
                records, clashes = _without_taken(records, await self._store.aliases())
                told += clashes
                counts = await self._store.upsert_repos(records)
            if assign:
                await self._coordinator.assign(records)
            if removed:
                await self._coordinator.release(removed)
        self._last, self._problems = entries, problems
        self._told = tuple(told)
        log.info(
            "catalog read",
            repos=len(entries),
            added=counts.added,
            updated=counts.updated,
            removed=len(removed),
            problems=len(problems),
        )

    def _record(self, entry: CatalogEntry, overlay: dict[str, object]) -> RepoRecord:
        """What was accepted once is not refused now: a credential that is no more fails its repo alone."""
        record = RepoRecord(entry.spec, alias=entry.alias, source=SOURCE)
        named = frozenset({c} if isinstance(c := overlay.get("credential"), str) else ())
        return replace(apply_info(record, overlay, credentials=self._credentials | named), source=SOURCE)


def _without_taken(
    records: list[RepoRecord], taken: Mapping[str, RepoKey]
) -> tuple[list[RepoRecord], list[str]]:
    """The same without aliases that another repo has, and what is to be told of each."""
    kept, clashes = [], []
    for record in records:
        owner = taken.get(record.alias, record.key) if record.alias is not None else record.key
        if owner != record.key:
            clashes.append(f"the alias {record.alias} of {record.key} is that of {owner}: left out")
            record = replace(record, alias=None)
        kept.append(record)
    return kept, clashes


def _log_problems(problems: Sequence[Problem]) -> None:
    for problem in problems[:PROBLEMS_LOGGED]:
        log.warning(
            "catalog line not taken",
            place=f"{problem.file}:{problem.line}",
            reason=problem.reason,
            text=problem.text,
        )
    if len(problems) > PROBLEMS_LOGGED:
        log.warning("catalog lines not taken", more=len(problems) - PROBLEMS_LOGGED)
