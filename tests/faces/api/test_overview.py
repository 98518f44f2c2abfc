"""Who asks, what the overview tells whom, its course, and the board that all followers share."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace

import pytest

from evermirror.faces.api.auth import AuthSettings
from evermirror.faces.api.overview_board import OverviewBoard
from evermirror.faces.api.overview_views import ShownOverview
from evermirror.model.alert import Level
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.repo import Priority
from evermirror.model.whole import ClassFreshness

URL = "https://github.com/o/r"


@pytest.mark.parametrize("role", ["admin", "operator", "submitter", "reader"])
async def test_a_token_holder_learns_name_and_role(house, role):
    async with house.with_tokens().client(f"em_{role}", address="192.0.2.7") as client:
        assert (await client.get("/api/me")).json() == {"name": f"{role}-1", "role": role}


async def test_others_learn_what_they_may_do_without_a_token(house):
    async with house.client() as client:  # of this machine, while there are no tokens
        assert (await client.get("/api/me")).json() == {"name": "local", "role": "admin"}
    house.with_tokens()
    async with house.client(address="192.0.2.7") as client:
        assert (await client.get("/api/me")).json() == {"name": None, "role": "public"}
        for token, refusal in (("em_wrong", 401), ("em_worker", 403)):
            headers = {"Authorization": f"Bearer {token}"}
            assert (await client.get("/api/me", headers=headers)).status_code == refusal
    house.auth = AuthSettings(public_reads=False)
    async with house.client(address="192.0.2.7") as client:
        answer = await client.get("/api/me")
        assert (answer.status_code, answer.json()["title"]) == (401, "A valid token is needed")


async def test_the_overview_tells_readers_why_and_the_public_how_many(house, alerts, api_service):
    await api_service.add_url(URL, {"private": True}, actor="test")
    api_service.run_sync("github.com/o/r", 40.0)
    for n in range(11):
        alerts.raised(about=f"devops/{n:02}", level=Level.WARNING)
    worst = alerts.raised("worker-down", "w<1>", Level.CRITICAL, facts={"worker": "w<1>"})
    alerts.ended(alerts.raised(about="over"))
    house.with_tokens()
    async with house.client("em_reader") as client:
        told = (await client.get("/api/overview")).json()
    assert told["freshness"] == {"high": {"live": 2, "fresh": 1, "worst_lag_s": 12.5}}
    assert (told["fresh_bound_s"], told["never_verified"]) == (300.0, 1)
    assert (told["changes_per_minute"], told["received_bytes_per_second"]) == (2.5, 77.0)
    assert told["failures"] == [{"kind": "NOT_FOUND", "repos": 1, "sample": ["example.org/gone"]}]
    assert told["failures_by_kind"] == {"NOT_FOUND": 1}
    assert [r["worker"] for r in told["running"]] == ["w1"]
    standing = told["alerts_standing"]
    assert (standing["total"], len(standing["items"])) == (12, 10)
    first = standing["items"][0]
    assert (first["id"], first["kind"], first["level"]) == (worst.id, "worker-down", "critical")
    assert (first["about"], first["since"], first["silenced"]) == ("w<1>", "2025-12-13T23:55:00Z", False)
    assert first["title"] != first["title_zh"]
    assert all(first[name] for name in ("title", "text", "title_zh", "text_zh"))
    async with house.client(address="192.0.2.7") as client:
        public = (await client.get("/api/overview")).json()
    assert (public["alerts_standing"], public["running"], public["hosts"]) == (None, [], [])
    assert public["failures"] == [{"kind": "NOT_FOUND", "repos": 1, "sample": []}]
    assert public["freshness"] == told["freshness"]


@pytest.mark.parametrize("key", ["https://h", "https://u:p@h/a b", "https://[bad/x"])
async def test_what_no_repo_can_be_called_is_not_told_to_the_public_and_keeps_nobody_from_the_rest(
    house, api_service, key
):
    """A worker tells what it syncs."""
    api_service.run_sync(key, 40.0)
    house.with_tokens()
    async with house.client(address="192.0.2.7") as client:
        answer = await client.get("/api/overview")
    assert (answer.status_code, answer.json()["running"]) == (200, [])


async def test_the_course_is_told_as_documented(client):
    told = (await client.get("/api/overview/course", params={"hours": 2})).json()
    high = {"high": {"live": 2, "fresh": 1, "worst_lag_s": 12.5}}
    whole = {"fresh_share": 0.5, "worst_lag_s": 12.5, "by_priority": high}
    assert told == {
        "step_s": 300.0,
        "items": [
            {
                "at": "2025-12-13T21:55:00Z",
                "polls": None,
                "changes": None,
                "received_bytes": None,
                "failing": 3,
            }
            | whole,
            {"at": "2025-12-13T23:55:00Z", "polls": 10, "changes": 2, "received_bytes": 3000, "failing": 1}
            | whole,
        ],
    }
    assert (await client.get("/api/overview/course?hours=168")).json()["step_s"] == 2100.0
    for wrong in ("0", "169", "1.5", "x"):
        assert (await client.get("/api/overview/course", params={"hours": wrong})).status_code == 422


# The board


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Shown:
    """What is made for a follower; ``made`` counts it."""

    def __init__(self, overview):
        self.overview = overview
        self.made = 0
        self.trouble = 0

    async def __call__(self):
        self.made += 1
        if self.trouble:
            self.trouble -= 1
            raise FailureError(Failure(FailureKind.UNKNOWN, "away"))
        return ShownOverview(self.overview, (), None)

    def later(self, by_s, **changes):
        """So much later, with nothing else changed than what is given."""
        lag_s = 12.5 + self.overview.now + by_s - self.begin
        freshness = {Priority.HIGH: ClassFreshness(2, 1, lag_s)}
        now = self.overview.now + by_s
        self.overview = replace(self.overview, now=now, worst_lag_s=lag_s, freshness=freshness, **changes)


@pytest.fixture
async def shown(api_service):
    made = Shown(await api_service.overview())
    made.begin = made.overview.now
    return made


def data(frame):
    head, text, *end = frame.decode().split("\n")
    assert (head, end) == ("event: overview", ["", ""])
    return json.loads(text.removeprefix("data: "))


async def until(what):
    async with asyncio.timeout(20):
        while not what():
            await asyncio.sleep(0.002)


async def test_all_followers_get_the_same_frame_and_the_next_only_when_something_changed(shown):
    board = OverviewBoard(gap_s=0.01)
    followers = [board.follow(shown, reader=True) for _ in range(20)]
    first = await asyncio.gather(*(anext(f) for f in followers))
    assert shown.made == 1
    assert all(frame is first[0] for frame in first)
    assert data(first[0])["polls_total"] == 7
    waiting = [asyncio.create_task(anext(f)) for f in followers]
    await until(lambda: shown.made >= 4)  # made again and again, by one of them
    shown.later(5.0)
    made = shown.made
    await until(lambda: shown.made >= made + 3)
    assert not any(task.done() for task in waiting)  # it is only later
    waiting[0].cancel()  # perhaps the one whose turn it is
    shown.later(2.0, polls_total=8)
    second = await asyncio.gather(*waiting[1:])
    assert all(frame is second[0] for frame in second)
    assert data(second[0])["polls_total"] == 8
    assert data(second[0])["worst_lag_s"] == pytest.approx(19.5)
    for follower in followers:
        await follower.aclose()
    made = shown.made
    await asyncio.sleep(0.05)
    assert shown.made == made  # nobody follows


async def test_who_comes_after_all_have_left_is_told_what_is_and_not_what_was(shown):
    board = OverviewBoard(gap_s=3600.0)
    async with contextlib.aclosing(board.follow(shown, reader=True)) as one:
        await anext(one)
        async with contextlib.aclosing(board.follow(shown, reader=True)) as other:
            shown.later(1.0, polls_total=9)
            assert data(await anext(other))["polls_total"] == 7  # at once, as the others know it
        assert shown.made == 1
    async with contextlib.aclosing(board.follow(shown, reader=True)) as late:
        assert data(await anext(late))["polls_total"] == 9


async def test_who_comes_when_nothing_but_time_has_gone_by_is_told_how_late_it_is_now(shown):
    board = OverviewBoard(gap_s=0.01)
    one = board.follow(shown, reader=True)
    await anext(one)
    waiting = asyncio.create_task(anext(one))
    shown.later(10_800.0)
    made = shown.made
    await until(lambda: shown.made >= made + 2)
    async with contextlib.aclosing(board.follow(shown, reader=True)) as late:
        assert data(await anext(late))["worst_lag_s"] == pytest.approx(10_812.5)
    assert not waiting.done()  # to those who were there nothing is new
    waiting.cancel()


async def test_who_comes_while_all_others_are_busy_is_told_what_is_and_not_what_was(shown):
    """They read slowly: nobody waits for the next frame, so nobody makes it."""
    clock = Clock()
    board = OverviewBoard(gap_s=3600.0, clock=clock)
    async with contextlib.aclosing(board.follow(shown, reader=True)) as busy:
        await anext(busy)
        clock.now += 3601.0
        shown.later(3601.0, polls_total=9)
        async with contextlib.aclosing(board.follow(shown, reader=True)) as late:
            assert data(await anext(late))["polls_total"] == 9
    assert shown.made == 2


async def test_readers_and_the_public_have_sides_of_their_own_and_trouble_is_waited_out(shown, api_service):
    public = Shown(replace(shown.overview, hosts=()))
    public.trouble = 2
    board = OverviewBoard(gap_s=0.01)
    one, other = board.follow(shown, reader=True), board.follow(public, reader=False)
    assert data(await anext(one))["hosts"]
    assert data(await anext(other))["hosts"] == []
    assert (shown.made, public.made) == (1, 3)
    await one.aclose()
    await other.aclose()
