"""Syncs on demand over HTTP, with a real upstream: who shares one, what is waited for, what is told."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

from evermirror.edge.store.recorder import Recorder
from evermirror.nodes.coordinator.tasks import task_searches
from tests.nodes.test_all_in_one import transfers

DOC = Path(__file__).parents[2] / "docs" / "api.md"
NEVER = "0123456789" * 4
QUIET = {"schedule": {"min_gap": "1h"}}  # nobody looks but who is asked


async def test_a_commit_that_is_pushed_while_one_waits_is_found(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(**QUIET) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        repo.branch("later")
        coming = repo.commit(branch="later")  # its id is known before it is there
        repo.delete_branch("later")
        upstream.requests.clear()
        waiting = asyncio.create_task(up.sync("team/x", min_commit=coming))
        await asyncio.sleep(3.0)
        assert not waiting.done()

        async def missed():  # its first look has ended
            return any(t["phase"] == "waiting for the commit" for t in await running_of(up))

        await up.until(missed)
        (task_id,) = {t["task_id"] for t in await running_of(up)}
        shown = (await up.client.get(f"/api/tasks/{task_id}")).json()
        assert (shown["status"], shown["phase"]) == ("running", "waiting for the commit")
        pushed = time.monotonic()
        repo.git("branch", "later", coming)
        task = await waiting
        assert time.monotonic() - pushed < 12, "the next look is 4 s after the last at most"
        assert task["status"] == "success"
        assert {"ref": "refs/heads/later", "old": None, "new": coming} in task["result"]["changes"]
        assert task["task_id"] == task_id
        assert len(transfers(upstream)) == 1


async def tasks_of(up):
    return (await up.client.get(f"/api/repos/{up.key('team/x')}/-/tasks")).json()["items"]


async def running_of(up):
    running = [t["task_id"] for t in await tasks_of(up) if t["status"] == "running"]
    return [(await up.client.get(f"/api/tasks/{task_id}")).json() for task_id in running]


async def test_a_commit_that_never_comes_is_told_in_time(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(**QUIET) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        began = time.monotonic()
        task = await up.sync("team/x", min_commit=NEVER, wait=4)
        assert 3.0 < time.monotonic() - began < 12
        assert task["status"] == "failure"
        assert task["result"]["error_type"] == "NOT_FOUND"
        told = re.search(
            rf"do not contain commit {NEVER}: (\d) looks in \d s", task["result"]["error_message"]
        )
        assert told is not None
        assert 2 <= int(told[1]) <= 4  # at 0, 1, 3 and 4 s, where the machine is quick enough
        assert (await up.repo("team/x")).status.value == "active"
        began = time.monotonic()
        task = await up.sync("team/x", min_commit=NEVER, within=0)
        assert task["status"] == "failure"
        assert "looks in" not in task["result"]["error_message"]
        assert time.monotonic() - began < 8, "one look decides"


async def test_fifty_who_wait_share_one_fetch_and_get_the_same(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(**QUIET) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        upstream.stall_after_bytes = 0
        first = asyncio.create_task(up.sync("team/x"))  # they come while this one looks
        waiters = up.node.coordinator.tasks._waiters
        while not waiters._events:
            await asyncio.sleep(0.01)
        while any(t["status"] == "pending" for t in await tasks_of(up)):
            await asyncio.sleep(0.01)
        old, new = repo.tip(), repo.commit()
        upstream.requests.clear()
        asking = [asyncio.create_task(up.sync("team/x", priority="high")) for _ in range(50)]

        async def all_wait():
            return sum(map(len, waiters._events.values())) == 51

        await up.until(all_wait)
        upstream.stall_after_bytes = None
        answers = await asyncio.gather(*asking)
        await first
        assert len(transfers(upstream)) == 1
        assert len({json.dumps(a) for a in answers}) == 1
        changes = [*(await first)["result"]["changes"], *answers[0]["result"]["changes"]]
        assert changes == [{"ref": "refs/heads/main", "old": old, "new": new}]


async def test_whoever_adds_repos_by_asking_for_them_has_their_first_clones(stage, upstream):
    repos = [upstream.create(f"team/n{n}") for n in range(6)]
    async with stage.up(**QUIET) as up:
        for repo in repos:
            asked = {"git_url": repo.url, "additional_params": {"wait": 30}}
            task = (await up.client.post("/api/tasks", json=asked)).json()
            assert (task["status"], task["result"]["first"]) == ("success", True)
            assert task["result"]["changes"] == [{"ref": "refs/heads/main", "old": None, "new": repo.tip()}]
        assert len(transfers(upstream)) == len(repos)


async def test_a_clone_shows_its_phase_and_how_far_the_whole_is(stage, upstream):
    repo = upstream.create("team/x")
    for _ in range(8):
        repo.big_blob(100_000)
    async with stage.up(**QUIET) as up:
        upstream.stall_after_bytes = 500_000
        answer = await up.client.post("/api/tasks", json={"git_url": repo.url})
        path = f"/api/tasks/{answer.json()['task_id']}"
        shown = []

        async def looked():
            shown.append((await up.client.get(path)).json())
            return shown[-1]["phase"] == "receiving" and shown[-1]["progress"] is not None

        await up.until(looked)
        assert shown[-1]["status"] == "running"
        assert 5 <= int(shown[-1]["progress"].rstrip("%")) < 70, "receiving is a part of the whole"
        upstream.stall_after_bytes = None

        async def ended():
            shown.append((await up.client.get(path)).json())
            return shown[-1]["status"] == "success"

        await up.until(ended)
        assert (shown[-1]["progress"], shown[-1]["phase"]) == ("100%", None)
        told = [int(s["progress"].rstrip("%")) for s in shown if s["progress"] is not None]
        assert told == sorted(told)


async def test_a_stop_answers_who_waits_and_the_task_goes_on_after_the_start(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(**QUIET) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        upstream.delay_s = 20.0
        body = {"git_url": repo.url, "additional_params": {"wait": 60}}
        waiting = asyncio.create_task(up.client.post("/api/tasks", json=body))
        while not up.node.coordinator.tasks._waiters._events:
            await asyncio.sleep(0.01)
        up.node.coordinator.tasks.stop_waiting()  # as the front does when it is left
        answer = await waiting
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        task_id = re.search(r"task (\d+) goes on", answer.json()["detail"])[1]
    upstream.delay_s = 0.0
    async with stage.up(**QUIET) as up:

        async def ended():
            return (await up.client.get(f"/api/tasks/{task_id}")).json()["status"] in ("success", "skipped")

        await up.until(ended)


async def test_an_answer_to_who_waits_is_not_held_up_by_the_recorder(stage, upstream, monkeypatch):
    """Results may wait for others before they are written; nobody who waits for one notices."""
    monkeypatch.setitem(Recorder.__init__.__kwdefaults__, "flush_s", 60.0)
    repo = upstream.create("team/x")
    async with stage.up(**QUIET) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        began = time.monotonic()
        assert (await up.sync("team/x"))["status"] == "skipped"
        assert (await up.sync("team/x", min_commit=NEVER, within=0))["status"] == "failure"
        repo.commit()
        assert (await up.sync("team/x"))["status"] == "success"
        assert time.monotonic() - began < 20.0


# What is documented


def example() -> dict:
    """The task in docs/api.md."""
    part = DOC.read_text().partition("## GET /api/tasks/{task_id}")[2].partition("\n## ")[0]
    return json.loads(re.search(r"```json\n(.*?)```", part, re.S)[1])


def shape(value, path=""):
    """The names in it, and what is below each; numbers are alike."""
    match value:
        case dict() if path != ".result.phases_s":
            return {name: shape(v, f"{path}.{name}") for name, v in value.items()}
        case list():
            return [shape(v, path) for v in value]
        case bool() | None:
            return value if value is None else "bool"
        case int() | float():
            return "number"
    return type(value).__name__


async def test_a_task_is_as_it_is_documented(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(**QUIET) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        repo.commit()
        task = await up.sync("team/x")
        assert shape(task) == shape(example())
        assert task["result"]["worker"]
        assert 0 < task["result"]["duration_s"] < 30
        table = DOC.read_text().partition("| in `result` | is |")[2].partition("\n\n")[0]
        named = set(re.findall(r"`(\w+)`", "".join(r.split("|")[1] for r in table.splitlines()[2:])))
        assert named == {*task["result"], "pushes"}
        failed = await up.sync("team/x", min_commit=NEVER, within=0)
        assert set(failed["result"]) == {"error_type", "error_message", "hint", "duration_s", "worker"}


async def test_one_commit_too_many_to_wait_for_is_told_and_one_look_is_there(stage, upstream, monkeypatch):
    monkeypatch.setattr(task_searches, "SEARCHES_OF_REPO", 1)
    repo = upstream.create("team/x")
    async with stage.up(**QUIET) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")

        async def ask(commit, within):
            params = {"min_commit": commit, "within": within}
            asked = {"git_url": repo.url, "additional_params": params}
            return await up.client.post("/api/tasks", json=asked)

        assert (await ask(NEVER, 60)).status_code == 200
        refused = await ask("a" * 40, 60)
        assert (refused.status_code, "already being waited for" in refused.json()["detail"]) == (503, True)
        assert (await ask("a" * 40, 0)).status_code == 200
        assert (await ask(NEVER, 90)).status_code == 200
