"""Reads all sources of the catalog: everything once, then only what changed.

    load ──▶ entries of every file, some at a time
    look ──▶ the source's new listing ──▶ changed files, old and new ──▶ Round: what it would change ──▶ take

What was read is kept in a file (index_file.py), and taken from there where the commits are the same.
Parsing runs in a thread. A change of a large part of the catalog is not worked out in memory: it is a
``TooMuch``, and the caller loads everything anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from evermirror.core.catalog.catalog import Catalog, FileChange, FileName, Plan
from evermirror.core.catalog.entry import CatalogEntry, Parsed
from evermirror.core.catalog.formats import FILE_MAX_BYTES, Defaults, is_defaults, parse_file, shown_name
from evermirror.edge.catalog.index_file import IndexFile
from evermirror.edge.catalog.tree import FileRef, Listing, Tree
from evermirror.model.url import UrlRules

CHANGE_MAX_BYTES = 32 * 2**20  # of changed files, old and new: half a million URLs, some 300 MB as entries


class TooMuch(Exception):
    """So much changed that reading everything anew is cheaper."""


@dataclass(frozen=True, slots=True)
class Round:
    """One look at one source. ``plan`` is None where no file changed."""

    source: int
    listing: Listing
    plan: Plan | None
    defaults: Defaults


class CatalogReader:
    """``begin`` with a listing of every source; ``load``; then ``look`` and ``take`` in turn."""

    def __init__(self, trees: Sequence[Tree], rules: UrlRules, index: IndexFile | None = None) -> None:
        self.trees = tuple(trees)
        self._rules = rules
        self._index = index
        self._listings: list[Listing] = [Listing() for _ in trees]
        self._defaults: list[Defaults] = [Defaults() for _ in trees]
        self.loaded = False  # what the files say was read; else only which they are
        self.catalog = Catalog()

    @property
    def versions(self) -> list[str | None]:
        """The commit of each source that the catalog is at; None for files on disk."""
        return [listing.version for listing in self._listings]

    @property
    def files(self) -> int:
        return sum(len(listing.files) for listing in self._listings)

    def begin(self, listings: Sequence[Listing]) -> None:
        """From here: nothing is read yet."""
        self._listings = list(listings)
        self.loaded = False
        self.catalog = Catalog()

    async def load(self) -> AsyncIterator[list[CatalogEntry]]:
        """Every entry that counts, some thousands at a time."""
        self.catalog = Catalog()
        for source, (tree, listing) in enumerate(zip(self.trees, self._listings, strict=True)):
            self._defaults[source] = await self._read_defaults(source, listing)
            bad = [(path, ref) for path, ref in listing.files.items() if ref.trouble]
            good = sorted((path, ref) for path, ref in listing.files.items() if not ref.trouble)
            for path, ref in bad:
                self.catalog.load(FileName(source, path), self._unread(source, path, ref))
            async for batch in tree.read(good):
                yield await asyncio.to_thread(self._load_batch, source, batch)
            tree.settle(listing)
        self.loaded = True

    def _load_batch(self, source: int, batch: list[tuple[str, bytes]]) -> list[CatalogEntry]:
        found: list[CatalogEntry] = []
        for path, data in batch:
            parsed = self._parse(source, path, data, self._defaults[source])
            found += self.catalog.load(FileName(source, path), parsed)
        return found

    async def look(self, source: int) -> Round:
        """What the newest state of ``source`` would change; raises TooMuch."""
        listing = await self.trees[source].look()
        old = self._listings[source]
        if listing.files == old.files:
            return Round(source, listing, None, self._defaults[source])
        await self._know()
        changed = {
            p for p in old.files.keys() | listing.files.keys() if old.files.get(p) != listing.files.get(p)
        }
        defaults = self._defaults[source]
        if tops := [p.rpartition("/")[0] for p in changed if is_defaults(p)]:
            defaults = await self._read_defaults(source, listing)
            below = tuple(f"{top}/" if top else "" for top in tops)
            changed |= {p for p in old.files.keys() | listing.files.keys() if p.startswith(below)}
        _check_size(changed, old, listing)
        before = await self._read(source, {p: old.files[p] for p in changed if p in old.files})
        after = await self._read(
            source, {p: listing.files[p] for p in changed if p in listing.files}, defaults
        )
        changes = [FileChange(FileName(source, p), before.get(p), after.get(p)) for p in sorted(changed)]
        others = await self._read_others(self.catalog.others(changes))
        plan = await asyncio.to_thread(self.catalog.plan, changes, others)
        return Round(source, listing, plan, defaults)

    async def _know(self) -> None:
        """What the files say is known: read already, remembered, or read now."""
        if self.loaded or await self._recall():
            return
        async for _ in self.load():
            pass

    async def _recall(self) -> bool:
        if self._index is None or None in self.versions:
            return False
        known = await asyncio.to_thread(self._index.read, self.versions)
        listed = {FileName(n, path) for n, listing in enumerate(self._listings) for path in listing.files}
        if known is None or listed != {file for file in known.files if file is not None}:
            return False
        for source, listing in enumerate(self._listings):
            self._defaults[source] = await self._read_defaults(source, listing)
        self.catalog = Catalog.of(known)
        self.loaded = True
        return True

    async def remember(self) -> None:
        """What was read is there after a restart too, where that is of use."""
        if self._index is None or not self.loaded or None in self.versions:
            return
        await asyncio.to_thread(self._write_down, self._index)

    def _write_down(self, index: IndexFile) -> None:
        snapshot = self.catalog.snapshot()
        if snapshot is not None:
            index.write(self.versions, snapshot)

    def take(self, seen: Round) -> None:
        """``seen`` holds from now on."""
        self._listings[seen.source] = seen.listing
        self._defaults[seen.source] = seen.defaults
        if seen.plan is not None:
            self.catalog.take(seen.plan)
        self.trees[seen.source].settle(seen.listing)

    async def _read_others(self, files: Iterable[FileName]) -> dict[FileName, Parsed]:
        found: dict[FileName, Parsed] = {}
        for source, listing in enumerate(self._listings):
            refs = {f.path: listing.files[f.path] for f in files if f.source == source}
            _check_size(refs, listing)
            parsed = await self._read(source, refs)
            found.update((FileName(source, path), said) for path, said in parsed.items())
        return found

    async def _read(
        self, source: int, refs: Mapping[str, FileRef], defaults: Defaults | None = None
    ) -> dict[str, Parsed]:
        defaults = self._defaults[source] if defaults is None else defaults
        found = {p: self._unread(source, p, ref) for p, ref in refs.items() if ref.trouble}
        good = [(path, ref) for path, ref in refs.items() if not ref.trouble]
        async for batch in self.trees[source].read(good):
            for path, data in batch:
                found[path] = await asyncio.to_thread(self._parse, source, path, data, defaults)
        return found

    async def _read_defaults(self, source: int, listing: Listing) -> Defaults:
        refs = [(p, ref) for p, ref in listing.files.items() if is_defaults(p) and not ref.trouble]
        tree = self.trees[source]
        files = [file async for batch in tree.read(refs) for file in batch] if refs else []
        return Defaults.of(files, tree.label, self._rules)

    def _parse(self, source: int, path: str, data: bytes, defaults: Defaults) -> Parsed:
        return parse_file(path, data, self.trees[source].label, self._rules, defaults)

    def _unread(self, source: int, path: str, ref: FileRef) -> Parsed:
        """One that is only too large says what it said before; what is no file at all says nothing."""
        name = shown_name(self.trees[source].label, path)
        return Parsed.no_use(name, ref.trouble, broken=ref.size_bytes > FILE_MAX_BYTES)


def _check_size(paths: Iterable[str], *listings: Listing) -> None:
    refs = [listing.files[p] for p in paths for listing in listings if p in listing.files]
    total = sum(ref.size_bytes for ref in refs if not ref.trouble)
    if total > CHANGE_MAX_BYTES:
        raise TooMuch
