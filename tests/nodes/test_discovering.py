"""Discovery in one process, over the API: a group of one GitLab followed into another, with real git."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from evermirror.edge.forge import make
from evermirror.edge.forge.gitlab import GitLab
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.nodes.coordinator.discovery import discovering_forges
from tests.nodes.discovery_house import following
from tests.support.forges.gitlab import GitLabServer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[GitLabServer]:
    with GitLabServer(tmp_path / "source") as server:
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Iterator[GitLabServer]:
    with GitLabServer(tmp_path / "target") as server:
        server.add_group("mirrors")
        yield server


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three projects to a page."""
    monkeypatch.setitem(make._CLIENTS, Forge.GITLAB, partial(GitLab, page_size=3))


async def test_a_group_is_found_made_pushed_and_equal_and_what_changes_is_followed(tmp_path, source, target):
    core = source.add_project("devops/core", commits=2, description="The core")
    deep = source.add_project("devops/tools/deep/x", commits=1)
    deep.hidden_ref("refs/merge-requests/1/head")
    source.add_project("elsewhere/other", commits=1)
    async with following(tmp_path, source, target) as it:
        first = await it.create(priority="high", sync_interval=30)
        assert first["last_run"] | {"began_at": 0, "ended_at": 0} == {
            "began_at": 0, "ended_at": 0, "complete": True, "found": 2, "chosen": 2, "created": 2,
            "unchanged": 0, "renamed": 0, "gone": 0, "returned": 0, "refused": 0, "held": 0, "held_why": None,
            "error": None,
        }  # fmt: skip
        assert await it.projects() == {"devops/core", "devops/tools/deep/x"}
        await it.equal("devops/core", "mirrors/core")
        await it.equal("devops/tools/deep/x", "mirrors/tools/deep/x")
        row = target.project_at("mirrors/core")
        assert row is not None
        assert (row.description, row.visibility) == ("The core", "private")
        project = await it.project("devops/core")
        assert (project["priority"], project["sync_interval"]) == ("high", 30)
        # One is new, one is renamed, and one goes
        source.add_project("devops/fresh", commits=1)
        source.rename_project("devops/core", "devops/renamed")
        source.remove_project("devops/tools/deep/x")
        second = await it.run()
        last = second["last_run"]
        assert (last["created"], last["renamed"], last["gone"]) == (1, 1, 1)
        assert await it.states() == {
            "devops/core": "renamed",
            "devops/fresh": "active",
            "devops/renamed": "active",
            "devops/tools/deep/x": "gone",
        }
        await it.equal("devops/fresh", "mirrors/fresh")
        source.repo("devops/renamed").commit()
        await it.trigger("devops/renamed")
        await it.equal("devops/renamed", "mirrors/core")  # the same target as before
        assert target.project_at("mirrors/renamed") is None
        for name, why in (
            ("devops/core", "renamed to devops/renamed"),
            ("devops/tools/deep/x", "no longer in"),
        ):
            old = await it.project(name)
            assert not old["enabled"]
            assert why in str(old["paused"])
        assert target.project_at("mirrors/tools/deep/x") is not None
        assert core is not None
        third = await it.run()
        assert third["last_run"]["unchanged"] == 2


async def test_a_removed_project_that_returns_is_resumed_unless_a_person_spoke(tmp_path, source, target):
    for name in "abcdef":
        source.add_project(f"devops/{name}", commits=1)
    async with following(tmp_path, source, target) as it:
        await it.create()
        for name in ("a", "b", "c"):
            source.archive(f"devops/{name}")  # archived ones are not asked for: gone
        assert (await it.run())["last_run"]["gone"] == 3
        assert not (await it.project("devops/a"))["enabled"]
        put = await it.client.put("/api/pull/projects/devops/b/config", json={"enabled": True})
        assert put.status_code == 200
        put = await it.client.put("/api/pull/projects/devops/c/config", json={"enabled": False})
        assert put.status_code == 200
        await it.run()
        assert (await it.project("devops/b"))["enabled"]  # a person's word stands
        for name in ("a", "b", "c"):
            source.archive(f"devops/{name}", archived=False)
        assert (await it.run())["last_run"]["returned"] == 3
        on = {name: (await it.project(f"devops/{name}"))["enabled"] for name in ("a", "b", "c")}
        assert on == {"a": True, "b": True, "c": False}


async def test_a_renamed_project_goes_on_as_people_set_it(tmp_path, source, target):
    for name in ("a", "b"):
        source.add_project(f"devops/{name}", commits=1)
    async with following(tmp_path, source, target) as it:
        await it.create()
        change = {"priority": "critical", "sync_interval": 7, "max_retries": 9}
        await it.client.put("/api/pull/projects/devops/a/config", json=change)
        await it.client.put("/api/pull/projects/devops/b/config", json={"enabled": False})
        for name in ("a", "b"):
            source.rename_project(f"devops/{name}", f"devops/{name}{name}")
        assert (await it.run())["last_run"]["renamed"] == 2
        after = await it.project("devops/aa")
        assert {name: after[name] for name in change} == change
        assert after["enabled"]
        assert [t["url"].rpartition("/")[2] for t in after["targets"]] == ["a.git"]
        assert not (await it.project("devops/bb"))["enabled"]


async def test_an_empty_project_waits_for_its_first_push_without_an_alarm(tmp_path, source, target):
    source.add_project("devops/empty", commits=0)
    async with following(tmp_path, source, target) as it:
        assert (await it.create())["last_run"]["created"] == 1

        async def looked_at() -> bool:
            return (await it.project("devops/empty"))["last_sync_at"] is not None

        await it.up.until(looked_at)
        assert await it.alerts() == {}
        source.repo("devops/empty").commit()
        await it.trigger("devops/empty")
        await it.equal("devops/empty", "mirrors/empty")


async def test_a_dry_run_changes_nothing_anywhere(tmp_path, source, target):
    source.add_project("devops/core", commits=1)
    source.add_project("devops/tools/x", commits=1)
    target.add_project("mirrors/core")
    async with following(tmp_path, source, target) as it:
        told = await it.preview(exclude=["*/nothing"])
        assert told["state"] == "done", told
        assert {(s["step"], s["path"], s["makes_target"]) for s in told["steps"]} == {
            ("create", "devops/core", False),
            ("create", "devops/tools/x", True),
        }
        assert (told["outcome"]["found"], told["counts"]["create"]) == (2, 2)
        assert {r.method for server in (source, target) for r in server.requests} == {"GET"}
        assert (await it.client.get("/api/pull/discoveries")).json()["items"] == []
        assert await it.projects() == set()
        store = it.up.node.lead.store
        assert await store.load_discoveries() == ()
        assert (await it.client.get("/api/git_urls")).json()["items"] == []
        again = await it.preview()
        assert again["id"] != told["id"]


async def test_a_crash_in_mid_listing_goes_on_from_the_cursor(tmp_path, source, target, small_pages):
    for number in range(7):
        source.add_project(f"devops/p{number}", commits=1)
    pages = "/projects?"
    async with following(tmp_path, source, target) as it:
        source.fault("id_after", delay_s=5.0, times=None)  # the second page comes late: time for a crash
        answer = await it.client.post("/api/pull/discoveries", json=it.body())
        assert answer.status_code == 201

        async def first_page() -> bool:
            run = (await it.get())["run"]
            return run is not None and run["found"] >= 3

        await it.up.until(first_page)
    source.heal()
    before = len([path for path in source.asked("GET") if "/projects?" in path])
    assert before
    async with following(tmp_path, source, target) as it:
        done = await it.ended(1, 0)
        assert (done["last_run"]["found"], done["last_run"]["created"]) == (7, 7)
    later = [path for path in source.asked("GET") if pages in path][before:]
    assert later
    assert all("id_after" in path for path in later), later  # the first page was not asked for again


async def test_a_stop_while_targets_are_made_loses_nothing(tmp_path, source, target):
    for number in range(6):
        source.add_project(f"devops/p{number}", commits=1)
    async with following(tmp_path, source, target) as it:
        target.fault("/projects", method="POST", delay_s=0.5, done=False, times=None)
        await it.client.post("/api/pull/discoveries", json=it.body())

        async def some() -> bool:
            return len(await it.projects()) >= 2

        await it.up.until(some)
    target.heal()
    async with following(tmp_path, source, target) as it:

        async def all_there() -> bool:
            return len(await it.projects()) == 6

        await it.up.until(all_there, 40.0)
        for number in range(6):
            await it.equal(f"devops/p{number}", f"mirrors/p{number}")
        states = set((await it.states()).values())
        assert states == {"active"}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"status": 401, "body": '{"message":"401 Unauthorized"}'}, "AUTH_FAILED"),
        ({"status": 403, "body": '{"message":"403 Forbidden"}'}, "PERMISSION_DENIED"),
        ({"status": 404, "body": '{"message":"404 Group Not Found"}'}, "NOT_FOUND"),
        ({"status": 200, "body": "<html>not json"}, "UNKNOWN"),
    ],
)
async def test_an_answer_that_is_none_ends_the_run_and_the_next_goes_on(
    tmp_path, source, target, small_pages, fault, kind
):
    for number in range(5):
        source.add_project(f"devops/p{number}", commits=1)
    async with following(tmp_path, source, target) as it:
        source.fault("id_after", times=None, **fault)  # the second page
        first = await it.create()
        last = first["last_run"]
        assert (last["complete"], last["created"], last["error"]["error_type"]) == (False, 0, kind)
        assert last["error"]["error_message"]
        assert await it.projects() == set()
        source.heal()
        again = await it.run()
        assert (again["last_run"]["complete"], again["last_run"]["created"]) == (True, 5)


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503},
        {"cut": 40},
        {"status": 429, "headers": {"Retry-After": "1"}},
    ],
)
async def test_weather_in_mid_listing_is_sat_out(tmp_path, source, target, small_pages, fault):
    for number in range(5):
        source.add_project(f"devops/p{number}", commits=1)
    async with following(tmp_path, source, target) as it:
        source.fault("id_after", times=1, **fault)
        first = await it.create()
        assert (first["last_run"]["complete"], first["last_run"]["created"]) == (True, 5)


async def test_a_failed_listing_pauses_nothing(tmp_path, source, target):
    source.add_project("devops/a", commits=1)
    async with following(tmp_path, source, target) as it:
        await it.create()
        for status in (404, 403, 401):
            source.fault("/groups/", status=status, body="{}", times=None)
            last = (await it.run())["last_run"]
            assert not last["complete"]
            source.heal()
        assert (await it.project("devops/a"))["enabled"]
        assert "discovery-failed" in await it.alerts()
        await it.run()

        async def over() -> bool:
            return "discovery-failed" not in await it.alerts()

        await it.up.until(over)


async def test_a_group_that_is_renamed_while_it_is_listed(tmp_path, source, target, small_pages):
    for number in range(5):
        source.add_project(f"devops/p{number}", commits=1)
    async with following(tmp_path, source, target) as it:
        source.fault("id_after", delay_s=4.0, times=1)  # time to rename it before the second page is made
        await it.client.post("/api/pull/discoveries", json=it.body())

        async def begun() -> bool:
            run = (await it.get())["run"]
            return run is not None and run["found"] > 0

        await it.up.until(begun)
        source.rename_group("devops", "platform")
        done = await it.ended(1, 0)
        assert (done["last_run"]["complete"], done["last_run"]["created"]) == (True, 5)
        assert await it.projects() == {f"platform/p{number}" for number in range(5)}
        await it.equal("platform/p0", "mirrors/p0")
        # And between two runs: all are renamed, and keep their targets
        source.rename_group("platform", "devops")
        again = await it.run()
        assert again["last_run"]["renamed"] == 5
        rows = await it.found()
        assert rows["devops/p0"]["target_url"].endswith("/mirrors/p0.git")
        assert rows["platform/p0"]["state"] == "renamed"


async def test_many_removals_wait_for_a_person(tmp_path, source, target):
    for number in range(12):
        source.add_project(f"devops/p{number:02}", commits=0)
    async with following(tmp_path, source, target) as it:
        await it.create(target_url=None, target_credential=None)
        for number in range(11):
            source.archive(f"devops/p{number:02}")
        held = await it.run()
        assert (held["last_run"]["held"], held["last_run"]["gone"]) == (11, 0)
        assert (await it.project("devops/p00"))["enabled"]

        async def told() -> bool:
            return "discovery-held" in await it.alerts()

        await it.up.until(told)
        accepted = await it.run(accept=True)
        assert (accepted["last_run"]["held"], accepted["last_run"]["gone"]) == (0, 11)
        assert not (await it.project("devops/p00"))["enabled"]


async def test_a_rate_limit_is_waited_for_where_people_see_it():
    waits, shown, left = [], [], [3]

    async def sleep(seconds):
        waits.append(seconds)

    async def question():
        if left[0]:
            left[0] -= 1
            raise FailureError(Failure(FailureKind.RATE_LIMITED, "slow down", retry_after_s=70.0))
        return "answer"

    patience = discovering_forges.Patience(shown.append, sleep)
    assert await patience.ask(question) == "answer"
    assert waits == [70.0] * 3
    assert shown == [70.0, 0.0] * 3

    async def too_long():
        raise FailureError(Failure(FailureKind.RATE_LIMITED, "tomorrow", retry_after_s=86_400.0))

    with pytest.raises(FailureError):
        await patience.ask(too_long)
    assert len(waits) == 3
