"""What people order while a discovery runs, and what two discoveries and a hostile forge may not do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from evermirror.edge.forge import make
from evermirror.edge.forge.gitlab import GitLab
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.nodes.coordinator.discovery import discovering_forges
from tests.nodes.discovery_house import BASE, SOURCE_TOKEN, Following, following
from tests.support.forges.gitlab import GitLabServer

pytestmark = pytest.mark.timeout(120)

NO_TARGET = {"target_url": None, "target_credential": None}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[GitLabServer]:
    with GitLabServer(tmp_path / "source") as server:
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Iterator[GitLabServer]:
    with GitLabServer(tmp_path / "target") as server:
        server.add_group("mirrors")
        yield server


async def begun(it: Following, **more: object) -> dict:
    """One is under way: its listing is asked for and not answered."""
    it.source.fault("/projects", delay_s=25.0, times=1)
    answer = await it.client.post(BASE, json=it.body(**NO_TARGET, **more))
    assert answer.status_code == 201, answer.text

    async def listing() -> bool:
        return any("/projects" in path for path in it.source.asked("GET"))

    await it.up.until(listing)
    return answer.json()


# Orders while it runs


async def test_a_discovery_that_is_stopped_while_it_runs_stays_stopped(tmp_path, source, target):
    source.add_project("devops/a", commits=0)
    async with following(tmp_path, source, target) as it:
        await begun(it)
        stop = await it.client.put(f"{BASE}/1", json={"enabled": False})
        assert stop.status_code == 200, stop.text

        async def ended() -> bool:
            return (await it.get())["run"] is None

        await it.up.until(ended)
        await asyncio.sleep(1.5)
        now = await it.get()
        assert (now["enabled"], now["run"], now["next_run_at"]) == (False, None, None)
        assert await it.projects() == set()
        assert await it.states() == {}
    async with following(tmp_path, source, target) as it:
        assert not (await it.get())["enabled"]


async def test_a_discovery_that_is_changed_while_it_runs_goes_on_as_changed(tmp_path, source, target):
    for name in ("a", "b"):
        source.add_project(f"devops/{name}", commits=0)
    async with following(tmp_path, source, target) as it:
        before = await begun(it)
        change = await it.client.put(f"{BASE}/1", json={"exclude": ["devops/b"]})
        assert change.status_code == 200, change.text
        await it.ended(1, before["runs_ended"])
        await asyncio.sleep(1.0)
        now = await it.get()
        assert now["runs_ended"] == before["runs_ended"] + 1  # that which was stopped is none
        assert now["exclude"] == ["devops/b"]
        assert await it.projects() == {"devops/a"}


async def test_a_discovery_that_is_removed_while_it_runs_makes_nothing_more(tmp_path, source, target):
    source.add_project("devops/a", commits=0)
    async with following(tmp_path, source, target) as it:
        await begun(it)
        assert (await it.client.delete(f"{BASE}/1")).status_code < 300
        await asyncio.sleep(1.5)
        assert (await it.client.get(BASE)).json()["items"] == []
        assert await it.projects() == set()
        assert not it.up.node.supervisor.failures


# Answers that nobody foresaw


@pytest.mark.parametrize("question", ["find_group", "projects", "find_project", "create_project"])
async def test_whatever_a_forge_makes_us_stumble_over_is_a_failed_run(
    tmp_path, source, target, monkeypatch, question
):
    source.add_project("devops/a", commits=0)
    ill = True

    class Hostile(GitLab):
        pass

    real = getattr(GitLab, question)

    async def stumble(self, *args, **kwargs):
        if ill:
            raise ValueError("Exceeds the limit (4300 digits)")
        return await real(self, *args, **kwargs)

    setattr(Hostile, question, stumble)
    monkeypatch.setitem(make._CLIENTS, Forge.GITLAB, Hostile)
    async with following(tmp_path, source, target) as it:
        if question != "create_project":
            told = await it.preview()
            assert (told["state"], told["error"]["error_type"]) == ("failed", "UNKNOWN")
        last = (await it.create())["last_run"]
        assert (last["complete"], last["error"]["error_type"]) == (False, "UNKNOWN")
        assert "mistake" in last["error"]["error_message"]
        assert not it.up.node.supervisor.failures
        ill = False
        assert (await it.run())["last_run"]["complete"]
        assert await it.projects() == {"devops/a"}


# Gone and back


async def test_what_a_sync_missed_before_the_discovery_did_is_resumed_when_it_is_back(
    tmp_path, source, target
):
    for number in range(5):
        source.add_project(f"devops/p{number}", commits=1)
    async with following(tmp_path, source, target) as it:
        await it.create()
        for number in range(5):
            await it.equal(f"devops/p{number}", f"mirrors/p{number}")
        source.group_at("devops").visibility = "internal"
        source.tokens[SOURCE_TOKEN].sees = ("devops/p0", "devops/p3", "devops/p4")
        await it.trigger("devops/p1")

        async def paused() -> bool:
            return "NOT_FOUND" in str((await it.project("devops/p1"))["paused"])

        await it.up.until(paused)
        assert (await it.run())["last_run"]["gone"] == 2
        assert "no longer in" in (await it.project("devops/p1"))["paused"]

        async def quiet() -> bool:
            return "project-paused" not in await it.alerts()

        await it.up.until(quiet)  # that it is gone is the discovery's word now, and no trouble
        source.tokens[SOURCE_TOKEN].sees = None
        assert (await it.run())["last_run"]["returned"] == 2
        assert [(await it.project(f"devops/p{n}"))["enabled"] for n in range(5)] == [True] * 5


async def test_what_a_sync_missed_while_its_removal_was_held_goes_on_when_it_is_back(
    tmp_path, source, target
):
    for number in range(3):
        source.add_project(f"devops/p{number}", commits=1)
    async with following(tmp_path, source, target) as it:
        await it.create()
        await it.equal("devops/p1", "mirrors/p1")
        source.group_at("devops").visibility = "internal"
        source.tokens[SOURCE_TOKEN].sees = ("devops/p0",)
        await it.trigger("devops/p1")

        async def paused() -> bool:
            return "NOT_FOUND" in str((await it.project("devops/p1"))["paused"])

        await it.up.until(paused)
        assert (await it.run())["last_run"]["held"] == 2
        assert "NOT_FOUND" in (await it.project("devops/p1"))["paused"]
        source.tokens[SOURCE_TOKEN].sees = None
        assert (await it.run())["last_run"]["unchanged"] == 3
        assert (await it.project("devops/p1"))["enabled"]


async def test_what_was_kept_out_with_the_whole_group_goes_on_with_it(tmp_path, source, target):
    for name in ("a", "b"):
        source.add_project(f"devops/{name}", commits=1)
    async with following(tmp_path, source, target) as it:
        await it.create()
        await it.equal("devops/a", "mirrors/a")
        await it.client.put("/api/pull/projects/devops/b/config", json={"enabled": False})
        source.tokens[SOURCE_TOKEN].sees = ("nothing",)
        await it.trigger("devops/a")

        async def paused() -> bool:
            return bool((await it.project("devops/a"))["paused"])

        await it.up.until(paused)
        assert not (await it.run())["last_run"]["complete"]
        source.tokens[SOURCE_TOKEN].sees = None
        assert (await it.run())["last_run"]["unchanged"] == 2
        assert (await it.project("devops/a"))["enabled"]
        assert not (await it.project("devops/b"))["enabled"]  # a person's word


# Two discoveries


async def test_two_that_run_at_the_same_time_do_not_get_one_target(tmp_path, source, target):
    for number in range(4):
        source.add_project(f"a/x{number}", commits=1)
        source.add_project(f"b/x{number}", commits=2)
    async with following(tmp_path, source, target) as it:
        answers = await asyncio.gather(
            *(it.client.post(BASE, json=it.body(group, every=None)) for group in "ab")
        )
        for answer in answers:
            await it.ended(answer.json()["id"], 0)
        runs = [(await it.get(number))["last_run"] for number in (1, 2)]
        assert sum(run["created"] for run in runs) == 4
        assert sum(run["refused"] for run in runs) == 4
        urls = [t["url"] for name in await it.projects() for t in (await it.project(name))["targets"]]
        assert len(urls) == len(set(urls)) == 4
        clashes = [row for n in (1, 2) for row in (await it.found(n)).values() if row["state"] == "clash"]
        assert len(clashes) == 4
        assert all("belongs to" in row["why"] for row in clashes)


async def test_what_another_discovery_finds_is_not_paused_before_both_lost_it(tmp_path, source, target):
    source.add_project("devops/tools/a", commits=0)
    async with following(tmp_path, source, target) as it:
        await it.create(**NO_TARGET)
        second = await it.create("devops/tools", **NO_TARGET)
        assert await it.states(2) == {"devops/tools/a": "active"}
        change = await it.client.put(f"{BASE}/2", json={"exclude": ["*"]})
        assert change.status_code == 200, change.text
        await it.ended(2, second["runs_ended"])
        assert await it.states(2) == {"devops/tools/a": "gone"}
        assert (await it.project("devops/tools/a"))["enabled"]
        source.remove_project("devops/tools/a")
        await it.run(1, accept=True)
        await it.run(1, accept=True)
        assert not (await it.project("devops/tools/a"))["enabled"]


# Limits, and a person's word


async def test_forges_that_limit_us_for_long_keep_no_others_from_running(tmp_path, source, target):
    for group in ("a", "b"):
        source.add_project(f"{group}/x", commits=0)
    target.add_project("c/x", commits=0)
    async with following(tmp_path, source, target) as it:
        source.fault("/groups/", status=429, headers={"Retry-After": "600"}, times=None)
        for group in ("a", "b"):
            limited = await it.create(group, **NO_TARGET)
            assert limited["last_run"]["error"]["error_type"] == "RATE_LIMITED"
            assert limited["next_run_at"] is not None
        other = await it.create("c", **NO_TARGET, source_url=target.base_url, credential="target")
        assert other["last_run"]["created"] == 1


async def test_a_run_that_gets_further_before_each_limit_is_not_given_up(
    tmp_path, source, target, monkeypatch
):
    monkeypatch.setitem(make._CLIENTS, Forge.GITLAB, partial(GitLab, page_size=2))
    for number in range(5):
        source.add_project(f"devops/p{number}", commits=0)
    second, third = (f"id_after={source.project_at(path).id}" for path in ("devops/p1", "devops/p3"))
    limited = {"status": 429, "headers": {"Retry-After": "600"}, "times": None}

    async def failures(it: Following) -> int:
        return (await it.up.node.lead.store.load_discoveries())[0].failures

    source.fault(second, **limited)
    async with following(tmp_path, source, target) as it:
        await it.create(**NO_TARGET, every=None)
        assert await failures(it) == 1
    async with following(tmp_path, source, target) as it:  # a run that was cut short goes on at once
        await it.ended(1, 0)
        assert await failures(it) == 2  # no further than before
    source.heal()
    source.fault(third, **limited)
    async with following(tmp_path, source, target) as it:
        await it.ended(1, 0)
        assert await failures(it) == 1


async def test_the_waits_of_one_run_have_one_bound():
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    async def limited():
        raise FailureError(Failure(FailureKind.RATE_LIMITED, "slow down", retry_after_s=80.0))

    patience = discovering_forges.Patience(sleep=sleep)
    for _ in range(3):  # pages
        with pytest.raises(FailureError):
            await patience.ask(limited)
    assert sum(waits) <= discovering_forges.LIMIT_WAITS_S
    assert waits


async def test_an_acceptance_outlasts_a_failed_run_and_is_for_what_was_shown(tmp_path, source, target):
    for number in range(40):
        source.add_project(f"devops/p{number:02}", commits=0)
    async with following(tmp_path, source, target) as it:
        await it.create(**NO_TARGET)
        for number in range(14):
            source.archive(f"devops/p{number:02}")
        assert (await it.run())["last_run"]["held"] == 14
        source.fault("/projects", status=400, body='{"message":"ill"}', times=1)
        assert not (await it.run(accept=True))["last_run"]["complete"]
        last = (await it.run())["last_run"]
        assert (last["held"], last["gone"]) == (0, 14)
        for number in range(14, 26):
            source.archive(f"devops/p{number:02}")
        assert (await it.run())["last_run"]["held"] == 12
        for number in range(26, 36):
            source.archive(f"devops/p{number:02}")
        last = (await it.run(accept=True))["last_run"]
        assert (last["held"], last["gone"]) == (22, 0)  # 12 were shown
        assert (await it.run())["last_run"]["held"] == 22
        assert (await it.run(accept=True))["last_run"]["gone"] == 22
