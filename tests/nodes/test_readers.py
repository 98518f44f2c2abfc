"""Nothing is deleted under a reader."""

from __future__ import annotations

import asyncio

from evermirror.model.repo import RepoKey
from evermirror.nodes.aggregator.readers import Readers

KEY = RepoKey("h.org/a")


async def test_who_waits_for_the_last_reader_goes_on_after_it_and_not_before():
    readers = Readers(lambda: 7.0)
    with readers.reading(KEY):
        leaving = asyncio.create_task(readers.gone(KEY))
        with readers.reading(KEY):
            await asyncio.sleep(0)
            assert KEY in readers.now
        await asyncio.sleep(0.01)
        assert not leaving.done(), "one still reads"
    await asyncio.wait_for(leaving, 1)
    assert KEY not in readers.now
    await asyncio.wait_for(readers.gone(KEY), 1)


async def test_what_was_read_is_told_once():
    readers = Readers(lambda: 7.0)
    with readers.reading(KEY):
        assert readers.take_used() == {KEY: 7.0}
    assert readers.take_used() == {}
