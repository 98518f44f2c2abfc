"""A listing that goes on where it was, also where a forge knows pages by number only.

The list is in an order of its own (by id, or by when a project was made). What is made meanwhile comes last;
what is removed moves everything after it to the left, so that the next page by number would leave some out.
So each window asked for overlaps the last project that was told: a window that begins after it shows that
something moved, and an earlier one is asked for.

    told …  i │            i: index of the last one told, as far as known
          ├───window───┤   begins at or before i; what is new in it is told
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode

from evermirror.edge.forge.words import wrong
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import FoundProject, Page

STEPS_MAX = 12  # windows asked for in search of the place; more: the list changes faster than it is read
TIES_MAX = 200  # projects of one and the same key that a cursor names

Key = int | str  # all of one listing's are of one type


@dataclass(frozen=True, slots=True)
class Entry:
    """A project with its place in the order."""

    key: Key
    found: FoundProject
    wanted: bool = True  # False: it has its place, and is not told


@dataclass(frozen=True, slots=True)
class Pile:
    """One page as the forge gave it; ``total``: of the whole list, where it tells."""

    entries: tuple[Entry, ...]
    more: bool
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a listing is. ``ties``: ids that were told of the projects with the last key."""

    index: int
    key: Key
    ties: frozenset[str]
    size: int  # of the largest page that this forge gives
    numbered: bool  # pages by number; else by what comes after ``key``
    told: int  # so far

    def __str__(self) -> str:
        fields = {
            "index": self.index,
            "key": self.key,
            "ties": ",".join(sorted(self.ties)),
            "size": self.size,
            "numbered": int(self.numbered),
            "told": self.told,
        }
        return urlencode(fields)


def read_cursor(text: str | None, *, key: Callable[[str], Key]) -> Cursor | None:
    """None: from the beginning; so is a cursor that another version wrote."""
    try:
        fields = {name: values[0] for name, values in parse_qs(text or "").items()}
        return Cursor(
            int(fields["index"]),
            key(fields["key"]),
            frozenset(fields["ties"].split(",")),
            max(1, int(fields["size"])),
            fields["numbered"] == "1",
            int(fields["told"]),
        )
    except (KeyError, ValueError):
        return None


Fetch = Callable[[int, int], Awaitable[Pile]]  # by page's number and size


@dataclass(frozen=True, slots=True)
class Part:
    """What is new, and where it goes on; None: it was all."""

    entries: tuple[Entry, ...]
    next: Cursor | None
    total: int | None

    def page(self) -> Page:
        items = tuple(entry.found for entry in self.entries if entry.wanted)
        return Page(items, None if self.next is None else str(self.next), self.total)


async def first_part(fetch: Fetch, size: int, *, numbered: bool) -> Part:
    pile = await fetch(1, size)
    begin = Cursor(-1, 0, frozenset(), size, numbered, 0)
    if pile.more and 0 < len(pile.entries) < size:
        begin = Cursor(-1, 0, frozenset(), len(pile.entries), numbered, 0)  # the forge's own bound is lower
    return part_of(begin, pile, pile.entries, 0)


async def next_part(fetch: Fetch, at: Cursor) -> Part:
    """By page numbers."""
    index = at.index
    page, size = window(index, at.size)
    for _ in range(STEPS_MAX):
        begins = (page - 1) * size
        pile = await fetch(page, size)
        if 0 < begins <= index and (not pile.entries or _is_new(pile.entries[0], at)):
            page, index = page - 1, begins - 1
            continue
        fresh = tuple(entry for entry in pile.entries if _is_new(entry, at))
        if fresh or not pile.more:
            return part_of(at, pile, fresh, begins)
        index = begins + len(pile.entries) - 1
        page, size = window(index, at.size)
    raise FailureError(
        Failure(FailureKind.NETWORK_TIMEOUT, "the forge's list of projects changes faster than it is read")
    )


def part_of(at: Cursor, pile: Pile, fresh: tuple[Entry, ...], begins: int) -> Part:
    """Raises FailureError for a page that says of itself that something is missing: what a forge does not
    show must not be taken for gone."""
    if not pile.more and pile.total is not None and begins + len(pile.entries) < pile.total:
        wrong(f"a list of {pile.total} projects ends after {begins + len(pile.entries)}")
    if not fresh and pile.more:
        wrong("a page of projects is empty, and not the last one")
    if not fresh:
        return Part((), None, pile.total)
    last = fresh[-1].key
    ties = {entry.found.id for entry in fresh if entry.key == last}
    if at.index >= 0 and last == at.key:
        ties |= at.ties
    told = at.told + len(fresh)
    index = begins + len(pile.entries) - 1
    after = Cursor(index, last, frozenset(sorted(ties)[-TIES_MAX:]), at.size, at.numbered, told)
    return Part(fresh, after if pile.more else None, pile.total)


def window(index: int, size: int) -> tuple[int, int]:
    """The page, and its size, that has ``index`` in it and reaches furthest beyond it. With pages of a few
    projects there may be none: then the one that begins just after it, which cannot show that any moved."""
    sizes = range(size, max(1, size // 2) - 1, -1)
    page, best = max(((index // s + 1, s) for s in sizes), key=lambda found: found[0] * found[1])
    return (page, best) if page * best > index + 1 else (page + 1, best)


def _is_new(entry: Entry, at: Cursor) -> bool:
    if entry.key == at.key:
        return entry.found.id not in at.ties
    return str(entry.key) > str(at.key) if isinstance(entry.key, str) else entry.key > int(at.key)
