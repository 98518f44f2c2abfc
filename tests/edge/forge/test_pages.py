"""Pages by number, of a list that changes while it is read, against a list that is read at once."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.edge.forge.pages import (
    Cursor,
    Entry,
    Pile,
    first_part,
    next_part,
    read_cursor,
    window,
)
from evermirror.model.failure import FailureError
from evermirror.model.forge import FoundProject, Visibility


def entry(number: int, key: int | str | None = None) -> Entry:
    found = FoundProject(str(number), f"team/p{number}", "", "", Visibility.PUBLIC)
    return Entry(number if key is None else key, found)


class List:
    """A forge's list of projects, by id; ``bound`` is the largest page that it gives."""

    def __init__(self, ids: list[int], bound: int) -> None:
        self.ids = ids
        self.bound = bound
        self.fetches = 0

    async def fetch(self, page: int, size: int) -> Pile:
        self.fetches += 1
        size = min(size, self.bound)
        shown = self.ids[(page - 1) * size : page * size]
        return Pile(tuple(entry(i) for i in shown), page * size < len(self.ids), len(self.ids))


async def read(forge: List, asked: int, changes: list[tuple[list[int], list[int]]]) -> list[int]:
    """Between two parts some are removed, by their place, and some come in, by their id."""
    part = await first_part(forge.fetch, asked, numbered=True)
    told = [e.key for e in part.entries]
    while part.next is not None:
        if changes:
            removed, added = changes.pop(0)
            for place in removed:
                if forge.ids:
                    del forge.ids[place % len(forge.ids)]
            forge.ids = sorted(set(forge.ids) | set(added))
        again = read_cursor(str(part.next), key=int)
        assert again == part.next
        part = await next_part(forge.fetch, again)
        told += [e.key for e in part.entries]
    return told


@settings(max_examples=300, deadline=None)
@given(
    st.sets(st.integers(1, 400), max_size=120),
    st.integers(10, 30),
    st.integers(10, 40),
    st.lists(
        st.tuples(st.lists(st.integers(0, 500), max_size=12), st.lists(st.integers(1, 500), max_size=4)),
        max_size=8,
    ),
)
def test_none_that_stays_is_left_out_and_none_is_told_twice(ids, bound, asked, changes):
    before = sorted(ids)
    forge = List(list(before), bound)
    told = asyncio.run(read(forge, asked, list(changes)))
    assert len(told) == len(set(told))
    assert told == sorted(told)
    assert set(before) & set(forge.ids) <= set(told)


async def test_a_quiet_list_costs_one_request_a_page():
    forge = List(list(range(1000)), 100)
    assert await read(forge, 100, []) == list(range(1000))
    assert forge.fetches <= 12


@pytest.mark.parametrize("bound", [1, 2, 3, 4, 7, 20])
async def test_pages_as_small_as_a_forge_likes(bound):
    forge = List(list(range(130)), bound)
    assert await read(forge, 50, []) == list(range(130))


@pytest.mark.parametrize(("together", "gone"), [(7, 1), (60, 1), (60, 5), (25, 4)])
async def test_projects_of_one_second_are_told_once_each(together, gone):
    entries = [entry(i, f"2026-01-01T00:00:{i // together:02d}Z") for i in range(60)]

    async def fetch(page, size):
        return Pile(tuple(entries[(page - 1) * size : page * size]), page * size < len(entries))

    part = await first_part(fetch, 10, numbered=True)
    told = [e.found.id for e in part.entries]
    while part.next is not None:
        del entries[:gone]
        part = await next_part(fetch, read_cursor(str(part.next), key=str))
        told += [e.found.id for e in part.entries]
    assert told == [str(i) for i in range(60)]


@pytest.mark.parametrize("text", [None, "", "x", "index=1", "index=a&key=1&ties=&size=1&numbered=1&told=1"])
def test_a_cursor_of_another_version_begins_anew(text):
    assert read_cursor(text, key=int) is None


@given(st.integers(0, 100_000), st.integers(10, 100))
def test_a_window_has_the_place_in_it_and_reaches_beyond(index, size):
    page, chosen = window(index, size)
    assert 1 <= chosen <= size
    assert (page - 1) * chosen <= index + 1 < page * chosen + 1
    if size >= 20:
        assert (page - 1) * chosen <= index < page * chosen - 1


async def test_a_list_that_never_stands_still_is_given_up():
    async def fetch(page, size):
        return Pile((entry(10_000),), True)

    with pytest.raises(FailureError, match="faster"):
        await next_part(fetch, Cursor(5000, 7, frozenset({"7"}), 50, True, 5000))
