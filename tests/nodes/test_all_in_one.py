"""One process that polls, fetches and remembers, against a real upstream."""

from __future__ import annotations

import asyncio
import subprocess

from evermirror.nodes.all_in_one import UpOptions


def transfers(upstream):
    """Requests for objects: what a poll never makes."""
    return [r for r in upstream.requests if r.service == "upload-pack" and b"command=fetch" in r.body]


async def test_an_added_url_is_mirrored_then_follows_a_push_and_can_be_cloned(stage, upstream, tmp_path):
    repo = upstream.create("team/x", commits=3)
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        assert up.refs("team/x") == repo.public_refs()
        tip = repo.commit()

        async def followed():
            return (await up.repo("team/x")).head_commit == tip

        await up.until(followed)
        clone = tmp_path / "clone"
        done = await asyncio.to_thread(
            subprocess.run,
            ["git", "clone", "-q", f"{up.node.url}/git/{up.key('team/x')}", clone],
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr
        assert subprocess.check_output(["git", "-C", clone, "rev-parse", "HEAD"], text=True).strip() == tip


async def test_a_restart_clones_and_fetches_nothing_that_is_there(stage, upstream):
    for n in range(3):
        upstream.create(f"team/x{n}")
    async with stage.up() as up:
        for n in range(3):
            await up.add(upstream.url(f"team/x{n}.git"))
        for n in range(3):
            await up.until_status(f"team/x{n}", "active")
    upstream.requests.clear()
    async with stage.up() as up:
        task = await up.sync("team/x1")
        assert task["status"] == "skipped"
        assert (await up.repo("team/x1")).digest is not None
    assert transfers(upstream) == []


async def test_a_lost_local_file_costs_a_poll_and_no_fetch(stage, upstream):
    upstream.create("team/x")
    async with stage.up() as up:
        await up.add(upstream.url("team/x.git"))
        await up.until_status("team/x", "active")
    for file in stage.data.glob("worker.db*"):
        file.unlink()
    upstream.requests.clear()
    async with stage.up() as up:
        assert (await up.sync("team/x"))["status"] == "skipped"
    assert transfers(upstream) == []


async def test_a_mirror_deleted_by_hand_is_cloned_again_at_the_next_start(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        path = stage.mirror(up.key("team/x"))
    subprocess.run(["rm", "-rf", path], check=True)
    async with stage.up() as up:
        assert (await up.sync("team/x"))["status"] in ("success", "skipped")
        assert up.refs("team/x") == repo.public_refs()


async def test_a_task_tells_which_refs_moved(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule={"min_gap": "1h"}) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        old, new = repo.tip(), repo.commit()
        task = await up.sync("team/x")
        assert task["status"] == "success"
        assert task["result"]["changes"][0] == {"ref": "refs/heads/main", "old": old, "new": new}
        assert task["result"]["commits"] == 1


async def test_callers_of_one_repo_share_a_run_and_all_are_answered(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule={"min_gap": "1h"}) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        upstream.delay_s = 0.3
        repo.commit()
        upstream.requests.clear()
        tasks = await asyncio.gather(*(up.sync("team/x") for _ in range(20)))
        assert {t["status"] for t in tasks} <= {"success", "skipped"}
        assert "success" in {t["status"] for t in tasks}
        assert len(transfers(upstream)) == 1


async def test_a_commit_that_is_not_there_fails_its_caller_alone(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule={"min_gap": "1h"}) as up:
        await up.add(repo.url)
        assert (await up.sync("team/x", min_commit=repo.tip()))["status"] in ("success", "skipped")
        task = await up.sync("team/x", min_commit="0123456789" * 4, within=0)
        assert task["status"] == "failure"
        assert task["result"]["error_type"] == "NOT_FOUND"
        assert (await up.repo("team/x")).status.value == "active"


async def test_an_upstream_that_is_gone_keeps_its_mirror_and_is_told(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule={"min_gap": "1h"}) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        before = up.refs("team/x")
        upstream.delete(repo)
        task = await up.sync("team/x")
        assert task["status"] == "failure"
        record = await up.repo("team/x")
        assert record.status.value == "gone"
        assert up.refs("team/x") == before


async def test_a_removed_repo_leaves_its_mirror_in_the_trash(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        answer = await up.client.delete(f"/api/git_urls/{up.key('team/x')}")
        assert answer.status_code < 300, answer.text

        async def in_trash():
            return any((stage.data / "mirrors" / ".trash").iterdir())

        await up.until(in_trash)
        assert not stage.mirror(up.key("team/x")).exists()
        assert (await up.client.get(f"/api/repos/{up.key('team/x')}")).status_code == 404


async def test_a_repo_removed_while_it_is_cloned_ends_its_task_and_its_git(stage, upstream):
    repo = upstream.create("team/x")
    repo.big_blob(2_000_000)
    upstream.stall_after_bytes = 100_000
    async with stage.up() as up:
        await up.add(repo.url)
        task = asyncio.create_task(up.sync("team/x"))

        async def syncing():
            return bool(up.node.worker.status().running)

        await up.until(syncing)
        await up.client.delete(f"/api/git_urls/{up.key('team/x')}")
        assert (await task)["status"] == "failure"

        async def ended():
            return not up.node.worker.status().running

        await up.until(ended)
        upstream.stall_after_bytes = None


async def test_a_task_that_a_stop_interrupted_is_finished_after_the_restart(stage, upstream):
    repo = upstream.create("team/x")
    repo.big_blob(2_000_000)
    upstream.stall_after_bytes = 100_000
    async with stage.up() as up:
        await up.add(repo.url)
        answer = await up.client.post("/api/tasks", json={"git_url": repo.url})
        task_id = answer.json()["task_id"]

        async def syncing():
            return bool(up.node.worker.status().running)

        await up.until(syncing)
    upstream.stall_after_bytes = None
    async with stage.up() as up:

        async def done():
            task = (await up.client.get(f"/api/tasks/{task_id}")).json()
            return task["status"] in ("success", "skipped")  # skipped: the schedule's own poll came first

        await up.until(done)
        assert up.refs("team/x") == repo.public_refs()


async def test_a_full_disk_stops_clones_and_lets_fetches_go_on(stage, upstream):
    first, second = upstream.create("team/first"), upstream.create("team/second")
    async with stage.up() as up:
        await up.add(first.url)
        await up.until_status("team/first", "active")
    async with stage.up(fleet={"disk_high": 0.000001}) as up:
        await up.add(second.url)
        tip = first.commit()
        assert (await up.sync("team/first"))["status"] in ("success", "skipped")
        assert (await up.repo("team/first")).head_commit == tip
        assert (await up.repo("team/second")).status.value == "pending"
        overview = (await up.client.get("/api/overview")).json()
        assert overview["accepting_clones"] is False


async def test_a_catalog_file_is_followed_and_its_problems_are_told(stage, upstream, tmp_path):
    one, two = upstream.create("team/one"), upstream.create("team/two")
    file = tmp_path / "urls.txt"
    file.write_text(f"{one.url} priority=high\nnot a url\n")
    async with stage.up(catalog={"sources": [str(file)]}) as up:
        await up.until_status("team/one", "active")
        assert (await up.repo("team/one")).spec.priority.value == "high"
        warnings = (await up.client.get("/api/overview")).json()["warnings"]
        assert any("urls.txt:2" in w for w in warnings)
        file.write_text(f"{one.url}\n{two.url}\n")
        up.node.catalog.look_now()
        await up.until_status("team/two", "active")
        file.write_text(f"{two.url}\n")
        up.node.catalog.look_now()

        async def gone():
            return (await up.client.get(f"/api/repos/{up.key('team/one')}")).status_code == 404

        await up.until(gone)


async def test_what_the_api_set_is_laid_over_the_catalog(stage, upstream, tmp_path):
    repo = upstream.create("team/one")
    file = tmp_path / "urls.txt"
    file.write_text(f"{repo.url} priority=high\n")
    async with stage.up(catalog={"sources": [str(file)]}) as up:
        await up.add(repo.url, priority="low")
        assert (await up.repo("team/one")).spec.priority.value == "low"
    async with stage.up(catalog={"sources": [str(file)]}) as up:
        assert (await up.repo("team/one")).spec.priority.value == "low"


async def test_a_catalog_that_lost_most_of_its_repos_is_held_back_until_confirmed(stage, upstream, tmp_path):
    seed = upstream.create("team/r0", commits=1)
    urls = [seed.url] + [upstream.copy(seed, f"team/r{n}").url for n in range(1, 12)]
    file = tmp_path / "urls.txt"
    file.write_text("\n".join(urls))
    async with stage.up(catalog={"sources": [str(file)]}) as up:
        file.write_text(urls[0])
        up.node.catalog.look_now()

        async def warned():
            return any("held back" in w for w in up.node.catalog.warnings)

        await up.until(warned)
        assert (await up.client.get("/api/overview")).json()["total_repos"] == 12
    async with stage.up(UpOptions(accept_removals=True), catalog={"sources": [str(file)]}) as up:
        assert (await up.client.get("/api/overview")).json()["total_repos"] == 1


async def test_a_poll_that_saw_no_change_writes_no_task(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        before = up.node.worker.status().polls_total

        async def polled_again():
            return up.node.worker.status().polls_total > before + 5

        await up.until(polled_again)
        tasks = (await up.client.get(f"/api/repos/{up.key('team/x')}/-/tasks")).json()
        assert len(tasks["items"]) == 1


async def test_rate_limited_hosts_are_left_alone(stage, upstream):
    one, two = upstream.create("team/one"), upstream.create("team/two")
    async with stage.up() as up:
        for repo in (one, two):
            await up.add(repo.url)
        for name in ("team/one", "team/two"):
            await up.until_status(name, "active")
        upstream.fail_with(429, {"Retry-After": "600"}, b"slow down")

        async def waiting():
            return any(h.state == "waiting" for h in up.node.worker.status().hosts)

        await up.until(waiting)
        asked = len(upstream.requests)
        await asyncio.sleep(0.5)
        assert len(upstream.requests) <= asked + 1
        assert (await up.repo("team/one")).consecutive_failures == 0


async def test_a_repo_that_a_catalog_file_names_is_not_removed_behind_its_back(stage, upstream, tmp_path):
    repo = upstream.create("team/one")
    file = tmp_path / "urls.txt"
    file.write_text(f"{repo.url}\n")
    async with stage.up(catalog={"sources": [str(file)]}) as up:
        answer = await up.client.delete(f"/api/git_urls/{up.key('team/one')}")
        assert answer.status_code == 409
        assert "Remove its line" in answer.json()["hint"]
        assert (await up.client.get(f"/api/repos/{up.key('team/one')}")).status_code == 200


async def test_the_first_poll_of_a_repo_that_a_task_added_is_the_tasks_own(stage, upstream):
    for n in range(5):
        repo = upstream.create(f"team/x{n}")
        async with stage.up() as up:
            assert (await up.sync(f"team/x{n}"))["status"] == "success"
            assert up.refs(f"team/x{n}") == repo.public_refs()


async def test_a_restart_in_chunks_polls_nothing_that_was_polled_a_moment_ago(stage, upstream, monkeypatch):
    monkeypatch.setattr("evermirror.core.fleet.draft.COMMAND_ITEMS", 3)
    seed = upstream.create("team/r0", commits=1)
    names = [f"team/r{n}" for n in range(10)]
    for name in names[1:]:
        upstream.copy(seed, name)
    async with stage.up(schedule={"min_gap": "1h"}) as up:
        for name in names:
            await up.add(upstream.url(f"{name}.git"))
        for name in names:
            await up.until_status(name, "active")
    upstream.requests.clear()
    async with stage.up(schedule={"min_gap": "1h"}) as up:

        async def all_there() -> bool:
            return up.node.worker.status().repos == 10

        await up.until(all_there)
        await asyncio.sleep(0.5)
        assert upstream.requests == [], "all were polled a moment ago"
        assert up.node.worker.status().repos == 10
