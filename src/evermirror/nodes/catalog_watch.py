"""Keeps the store's repos equal to the catalog's list files, and says what could not be read.

What people set through the API stays: it is laid over what the catalog says of the same repo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from evermirror.core.catalog.diff import diff, held_back
from evermirror.core.catalog.listfile import CatalogEntry, Problem
from evermirror.edge.catalog_files import read_list_files
from evermirror.edge.store.store import Store
from evermirror.errors import EvermirrorError
from evermirror.model.repo import RepoRecord
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
        self.warnings: tuple[str, ...] = ()

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
            except EvermirrorError as error:
                self.warnings = (f"the catalog cannot be read, the last good one stays: {error}",)
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
        overlays = await self._store.overlays()
        records = [
            self._record(entry, overlays.get(entry.key, {})) for entry in change.added + change.changed
        ]
        counts = await self._store.upsert_repos(records)
        if assign:
            await self._coordinator.assign(records)
        if removed:
            await self._coordinator.release(removed)
        self._last, self._problems = entries, problems
        self.warnings = tuple(told)
        log.info(
            "catalog read",
            repos=len(entries),
            added=counts.added,
            updated=counts.updated,
            removed=len(removed),
            problems=len(problems),
        )

    def _record(self, entry: CatalogEntry, overlay: dict[str, object]) -> RepoRecord:
        record = RepoRecord(entry.spec, alias=entry.alias, source=SOURCE)
        return replace(apply_info(record, overlay, credentials=self._credentials), source=SOURCE)


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
