"""What upstream throws away, seen through a whole node: kept, listed, restored, held back, brought back."""

from __future__ import annotations

import asyncio
import subprocess
import threading

import pytest

from evermirror.edge.git.maintain import Maintenance
from evermirror.model.access import Role
from evermirror.nodes.coordinator.tasks.tasks import Tasks
from evermirror.nodes.worker import caretaker
from tests.support.gitrepo import read_refs

SLOW = {"min_gap": "1h"}  # only what a test asks for is looked at


def transfers(upstream):
    """Requests for objects: what a poll never makes."""
    return [r for r in upstream.requests if r.service == "upload-pack" and b"command=fetch" in r.body]


async def mirrored(up, repo, **info):
    await up.add(repo.url, **info)
    await up.until_status(repo.name, "active")


async def ask(up, name, word, body=None, status=200):
    answer = await up.client.post(f"/api/repos/{up.key(name)}/-/{word}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def ended(up, task):
    for _ in range(500):
        seen = (await up.client.get(f"/api/tasks/{task['task_id']}")).json()
        if seen["status"] not in ("pending", "running"):
            return seen
        await asyncio.sleep(0.02)
    raise AssertionError(seen)


async def history(up, name, **query):
    answer = await up.client.get(f"/api/repos/{up.key(name)}/-/history", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def shown(up, name):
    return (await up.client.get(f"/api/repos/{up.key(name)}")).json()


def empty(repo):
    for name in repo.public_refs():
        repo.git("update-ref", "-d", name)


async def git(*words, cwd=None):
    done = await asyncio.to_thread(subprocess.run, ["git", *words], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def assert_restored(task, ref, oid):
    result = dict(task["result"])
    assert 0 <= result.pop("duration_s") < 60
    assert result.pop("worker")
    assert result == {"ref": ref, "oid": oid}


async def test_a_force_push_is_listed_restored_and_fetched(stage, upstream, tmp_path):
    repo = upstream.create("team/x", commits=3)
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        old = repo.public_refs()["refs/heads/main"]
        new = repo.force_push()
        result = (await up.sync("team/x"))["result"]
        assert result["kept_total"] == 1
        assert (result["kept"][0]["old"], result["kept"][0]["why"]) == (old, "rewritten")
        (item,) = (await history(up, "team/x"))["items"]
        assert (item["ref"], item["old"], item["new"], item["why"]) == (
            "refs/heads/main", old, new, "rewritten",
        )  # fmt: skip
        task = await ended(up, await ask(up, "team/x", "restore", {"ref": "main", "date": item["date"]}))
        assert (task["status"], task["result"]["oid"]) == ("success", old)
        assert task["result"]["ref"].startswith("refs/restored/")
        await git("init", "-q", str(tmp_path / "clone"))
        url = f"{up.node.url}/git/{up.key('team/x')}"
        await git("fetch", "-q", url, task["result"]["ref"], cwd=tmp_path / "clone")
        assert await git("rev-parse", "FETCH_HEAD", cwd=tmp_path / "clone") == old
        assert "refs/evermirror" not in await git("ls-remote", url)
        assert up.refs("team/x") == repo.public_refs()
        again = await up.sync("team/x", force=True)
        assert again["status"] in ("success", "skipped")
        assert read_refs(stage.mirror(up.key("team/x")))[task["result"]["ref"]] == old  # no sync removes it


async def test_a_deleted_branch_is_kept_and_restored_under_a_name_of_ones_own(stage, upstream):
    repo = upstream.create("team/x")
    repo.branch("gone")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        old = repo.public_refs()["refs/heads/gone"]
        repo.delete_branch("gone")
        await up.sync("team/x")
        (item,) = (await history(up, "team/x"))["items"]
        assert (item["ref"], item["old"], item["new"], item["why"]) == (
            "refs/heads/gone", old, None, "deleted",
        )  # fmt: skip
        body = {"ref": item["kept"], "as": "rescued"}
        task = await ended(up, await ask(up, "team/x", "restore", body))
        assert_restored(task, "refs/restored/rescued", old)
        audit = await up.node.coordinator._store.list_audit(10)
        assert "repo.restored-tip" in [entry.action for entry in audit]


async def test_restores_of_what_is_not_there_are_refused_in_words(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        for _ in range(2):
            repo.force_push()
            await up.sync("team/x")
        assert (await ask(up, "team/x", "restore", {"ref": "nope"}, 404))["detail"] == (
            "nothing is kept of 'nope'"
        )
        one, other = (item["date"] for item in (await history(up, "team/x"))["items"])
        alike = next(n for n in range(10, 0, -1) if one[:n] == other[:n])  # midnight may be between them
        day = one[:alike]
        problem = await ask(up, "team/x", "restore", {"ref": "main", "date": day}, 409)
        assert "2 tips" in problem["detail"]
        await ask(up, "team/x", "restore", {"ref": "main", "date": "yesterday"}, 422)
        await ask(up, "team/x", "restore", {"ref": "main", "date": "1999"}, 404)
        await ask(up, "team/nope", "restore", {"ref": "main"}, 404)
        task = await ended(up, await ask(up, "team/x", "restore", {"ref": "main", "as": "a..b"}))
        assert (task["status"], task["result"]["error_type"]) == ("failure", "CONFLICT")


async def test_the_history_comes_in_pages_newest_first(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        olds = []
        for _ in range(5):
            olds.append(repo.public_refs()["refs/heads/main"])
            repo.force_push()
            await up.sync("team/x")
        seen, query = [], {"limit": 2}
        while True:
            page = await history(up, "team/x", **query)
            assert page["total"] == 5
            seen += [item["old"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            query = {"limit": 2, "cursor": page["next_cursor"]}
        assert seen == olds[::-1]


async def test_an_emptied_upstream_is_held_back_until_a_person_confirms_it(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        await ask(up, "team/x", "confirm", status=409)
        before = up.refs("team/x")
        empty(repo)
        task = await up.sync("team/x")
        assert (task["status"], task["result"]["error_type"]) == ("failure", "CONFLICT")
        assert up.refs("team/x") == before
        told = await shown(up, "team/x")
        assert (told["status"], told["held"]["reason"], told["held"]["sightings"]) == ("held", "emptied", 1)
        assert "held back" in told["last_error"]["error_message"]
        await up.sync("team/x")
        assert (await shown(up, "team/x"))["held"]["sightings"] == 2
        assert any(
            "a guard holds back" in w for w in (await up.client.get("/api/overview")).json()["warnings"]
        )
    async with stage.up(schedule=SLOW) as up:  # a restart forgets nothing of it
        assert (await shown(up, "team/x"))["held"]["sightings"] >= 2
        task = await ended(up, await ask(up, "team/x", "confirm"))
        assert task["status"] == "success", task
        assert up.refs("team/x") == {}
        told = await shown(up, "team/x")
        assert (told["status"], told["held"], told["last_error"]) == ("active", None, None)
        assert [i["old"] for i in (await history(up, "team/x"))["items"]] == [before["refs/heads/main"]]


async def test_an_upstream_that_comes_back_is_no_longer_held(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        refs = repo.public_refs()
        empty(repo)
        await up.sync("team/x")
        for name, oid in refs.items():
            repo.git("update-ref", name, oid)
        assert (await up.sync("team/x"))["status"] == "skipped"
        told = await shown(up, "team/x")
        assert (told["status"], told["held"]) == ("active", None)


async def test_an_append_only_mirror_loses_nothing(stage, upstream):
    repo = upstream.create("team/x")
    repo.branch("side")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo, mode="append-only")
        old = repo.public_refs()
        repo.delete_branch("side")
        new = repo.force_push()
        await up.sync("team/x")
        here = up.refs("team/x")
        assert (here["refs/heads/side"], here["refs/heads/main"]) == (old["refs/heads/side"], new)
        assert old["refs/heads/main"] in [o for n, o in here.items() if n.startswith("refs/archive/")]
        assert (await up.sync("team/x"))["status"] == "skipped"  # equal to upstream as far as it is to be


async def test_a_removed_repo_is_brought_back_with_its_mirror_and_history(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        repo.force_push()
        await up.sync("team/x")
        kept = (await history(up, "team/x"))["items"]
        await ask(up, "team/x", "undelete", status=409)
        answer = await up.client.delete(f"/api/git_urls/{up.key('team/x')}")
        assert answer.status_code == 200

        async def gone():
            return not stage.mirror(up.key("team/x")).exists()

        await up.until(gone)
        upstream.requests.clear()
        assert await ask(up, "team/x", "undelete") == {"git_url": repo.url, "status": "restored"}
        assert (await up.sync("team/x"))["status"] in ("success", "skipped")
        assert up.refs("team/x") == repo.public_refs()
        assert transfers(upstream) == []
        assert (await history(up, "team/x"))["items"] == kept
        await ask(up, "team/never", "undelete", status=404)


async def test_a_repo_that_is_added_again_finds_its_mirror_in_the_trash(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        await up.client.delete(f"/api/git_urls/{up.key('team/x')}")

        async def discarded():
            return not stage.mirror(up.key("team/x")).exists()

        await up.until(discarded)
    upstream.requests.clear()
    async with stage.up(schedule=SLOW) as up:
        assert not stage.mirror(up.key("team/x")).exists()
        await mirrored(up, repo)
        assert up.refs("team/x") == repo.public_refs()
    assert transfers(upstream) == []


async def test_what_was_private_is_not_public_because_somebody_adds_it_again(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo, private=True)
        await up.client.delete(f"/api/git_urls/{up.key('team/x')}")
        await up.add(repo.url)
        assert (await shown(up, "team/x"))["private"] is True
        await up.add(repo.url, private=False)
        assert (await shown(up, "team/x"))["private"] is False


async def test_a_repo_that_left_the_list_can_be_brought_back_and_stays(stage, upstream, tmp_path):
    repos = [upstream.create(f"team/x{n}") for n in range(2)]
    listed = tmp_path / "urls.txt"
    listed.write_text("".join(f"{repo.url}\n" for repo in repos))
    catalog = {"sources": [str(listed)], "interval": "50ms"}
    async with stage.up(schedule=SLOW, catalog=catalog) as up:
        await up.until_status("team/x0", "active")
        listed.write_text(f"{repos[1].url}\n")

        async def gone():
            return not stage.mirror(up.key("team/x0")).exists()

        await up.until(gone)
        await ask(up, "team/x0", "undelete")
        await up.until_status("team/x0", "active")
        await asyncio.sleep(0.3)  # some more looks at the list
        assert up.refs("team/x0") == repos[0].public_refs()
        assert (await shown(up, "team/x0"))["source"] == "api"


async def test_a_restore_that_a_stop_cut_off_is_done_after_the_next_start(stage, upstream, monkeypatch):
    async def written_down_and_not_sent(self, command):
        return

    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        old = repo.tip()
        repo.force_push()
        await up.sync("team/x")
        monkeypatch.setattr(Tasks, "_give_out", written_down_and_not_sent)
        task = await ask(up, "team/x", "restore", {"ref": "main", "as": "later"})
    monkeypatch.undo()
    async with stage.up(schedule=SLOW) as up:
        assert_restored(await ended(up, task), "refs/restored/later", old)


async def test_a_sync_goes_before_upkeep(stage, upstream, monkeypatch):
    monkeypatch.setattr(caretaker, "SETTLE_S", 0.0)
    began = asyncio.Event()

    async def endless(self, repo, lock_fd, chance):
        began.set()
        await asyncio.sleep(3600)

    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        monkeypatch.setattr(Maintenance, "tend", endless)
        await mirrored(up, repo)
        await asyncio.wait_for(began.wait(), 20)
        tip = repo.commit()
        task = await up.sync("team/x")
        assert (task["status"], task["result"]["head_commit"]) == ("success", tip)


async def test_a_private_repos_history_is_not_there_for_the_public(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo, private=True)
        await up.node.coordinator._store.create_token("a", Role.ADMIN)
        await asyncio.sleep(1.1)  # the gate asks once a second whether tokens exist
        hidden = await up.client.get(f"/api/repos/{up.key('team/x')}/-/history")
        missing = await up.client.get(f"/api/repos/{up.key('team/y')}/-/history")
        assert hidden.status_code == 404
        assert hidden.text == missing.text.replace("team/y", "team/x")


async def test_upkeep_runs_while_clones_go_on(stage, upstream, tmp_path, monkeypatch):
    monkeypatch.setattr(caretaker, "SETTLE_S", 0.0)
    repo = upstream.create("team/x", commits=50)
    async with stage.up(schedule=SLOW, maintenance={"packs_max": 1}) as up:
        await mirrored(up, repo)
        path = stage.mirror(up.key("team/x"))
        stop = threading.Event()
        clones = asyncio.create_task(asyncio.to_thread(clone_until, stop, up, tmp_path))

        async def tended():
            return (path / "objects/info/commit-graphs/commit-graph-chain").exists()

        await up.until(tended)
        stop.set()
        assert await clones > 0
        upkeep = (await shown(up, "team/x"))["upkeep"]
        assert upkeep["packs"] >= 1
        assert upkeep["size_bytes"] > 0
        assert upkeep["checked_at"] is None


def clone_until(stop, up, tmp_path):
    count = 0
    while count == 0 or not stop.is_set():
        url = f"{up.node.url}/git/{up.key('team/x')}"
        done = subprocess.run(["git", "clone", "-q", url, tmp_path / f"c{count}"], capture_output=True)
        assert done.returncode == 0, done.stderr
        count += 1
    return count


async def test_a_mirror_that_fsck_finds_broken_is_replaced_with_its_history(stage, upstream, monkeypatch):
    monkeypatch.setattr(caretaker, "SPREAD_S", 0.0)
    repo = upstream.create("team/x", commits=20)
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        lost = repo.commit()  # in a pack of its own, which stays whole
        await up.sync("team/x")
        repo.force_push()
        await up.sync("team/x")
        path = stage.mirror(up.key("team/x"))
    pack = max((path / "objects/pack").glob("*.pack"), key=lambda p: p.stat().st_size)
    pack.chmod(0o600)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.write_bytes(data)
    settings = {"fsck_every": "1s", "full_every": "365d"}
    async with stage.up(schedule=SLOW, maintenance=settings) as up:

        async def replaced():
            return any("~damaged" in p.name for p in (stage.data / "mirrors/.trash").iterdir())

        await up.until(replaced)

        async def whole():
            return await asyncio.to_thread(is_whole, path)

        await up.until(whole)
        assert up.refs("team/x") == repo.public_refs()
        assert [tip["old"] for tip in (await history(up, "team/x"))["items"]] == [lost]
        subprocess.run(["git", "-C", path, "rev-list", "--objects", lost], check=True, capture_output=True)


def is_whole(path):
    return subprocess.run(["git", "-C", path, "fsck", "--full"], capture_output=True).returncode == 0


async def test_kept_tips_are_forgotten_when_their_time_is_over(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        repo.force_push()
        await up.sync("team/x")
        assert (await history(up, "team/x"))["total"] == 1
    async with stage.up(schedule=SLOW, keep={"retention": "10ms"}) as up:

        async def forgotten():
            return (await history(up, "team/x"))["total"] == 0

        await up.until(forgotten)


@pytest.mark.parametrize("word", ["restore", "confirm", "undelete"])
async def test_only_operators_change_what_is_shown(stage, upstream, word):
    repo = upstream.create("team/x")
    async with stage.up(schedule=SLOW) as up:
        await mirrored(up, repo)
        plain, _ = await up.node.coordinator._store.create_token("s", Role.SUBMITTER)
        answer = await up.client.post(
            f"/api/repos/{up.key('team/x')}/-/{word}",
            json={"ref": "main"},
            headers={"Authorization": f"Bearer {plain}"},
        )
        assert answer.status_code == 403
