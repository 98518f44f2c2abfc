"""GET /api/events?overview=true over a real server: the overview beside the events."""

from __future__ import annotations

import asyncio

import pytest

from evermirror.faces.api.overview_board import OverviewBoard
from tests.faces.api.test_events import A, Desk, following, note, repo
from tests.support.sse import Stream


@pytest.fixture
async def desk(house, tmp_path):
    desk = Desk(house.with_tokens(), tmp_path / "store.db")
    async with desk.running():
        desk.app.state.api.overview_board = OverviewBoard(gap_s=0.02)
        await desk.store.upsert_repos([repo(A)])
        yield desk


async def of_type(stream: Stream, type_: str):
    async with asyncio.timeout(20):
        async for told in stream:
            if told.type == type_:
                return told
    raise AssertionError("the stream ended")


async def nobody_follows(desk, *, reader):
    side = desk.app.state.api.overview_board._sides[reader]
    async with asyncio.timeout(20):
        while side._followers:
            await asyncio.sleep(0.002)


async def test_the_overview_comes_at_once_and_when_it_changes_beside_events(desk):
    service = desk.house.service
    async with following(desk.base, token="em_reader", overview="true") as stream:
        first = await of_type(stream, "overview")
        assert first.data["total_repos"] == 0
        assert first.data["alerts_standing"] == {"total": 0, "items": []}
        await service.add_url("https://github.com/o/r", None, actor="test")
        assert (await of_type(stream, "overview")).data["total_repos"] == 1
        await desk.put(note(5))
        event = await of_type(stream, "repo.gone")
        assert event.last_id == str(event.data["id"])
        desk.house.alerts.raised()
        after = await of_type(stream, "overview")
        assert (after.data["alerts_standing"]["total"], after.last_id) == (1, event.last_id)  # it has no id


async def test_the_public_is_told_less_and_a_page_or_a_plain_stream_nothing_of_it(desk):
    service = desk.house.service
    async with following(desk.base, overview="true") as stream:
        told = (await of_type(stream, "overview")).data
        assert (told["alerts_standing"], told["hosts"], told["failures"][0]["sample"]) == (None, [], [])
    await nobody_follows(desk, reader=False)
    asked = service.overviews
    page = await desk.page(overview="true")
    assert page.json()["items"] is not None
    async with following(desk.base, token="em_reader") as stream:
        await desk.put(note(1))
        assert [told.type for told in await stream.take(1)] == ["repo.gone"]
    assert service.overviews == asked
    async with following(desk.base, overview="true", progress="true") as refused:
        assert refused.answer.status_code == 401


async def test_the_stream_ends_with_the_server_and_leaves_nobody_following(desk):
    async with following(desk.base, token="em_reader", overview="true") as stream:
        await of_type(stream, "overview")
        desk.feed.stop()
        async with asyncio.timeout(20):
            await stream.take(10**6)  # up to its end
    await nobody_follows(desk, reader=True)
    assert desk.feed.followers == 0
