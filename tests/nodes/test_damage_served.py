"""A mirror that is damaged while it is served: clients get clean answers, and it is whole again soon."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from contextlib import asynccontextmanager

import pytest

from evermirror.core.maintain import suspects
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import RepoKey
from evermirror.nodes.damage_checks import DamageChecks
from tests.support import damage
from tests.support.gitrepo import run_git

SLOW = {"min_gap": "1h"}  # only what a test asks for is looked at
DAMAGES = [
    damage.truncate_pack,
    damage.flip_pack_bytes,
    damage.flip_index_bytes,
    damage.null_ref,
    damage.remove_head,
    damage.null_packed_refs,
]


def is_whole(path):
    return subprocess.run(["git", "-C", path, "fsck", "--full"], capture_output=True).returncode == 0


def is_unmarked(path):
    return not (path / "evermirror-broken").exists()


def clone(url, target, version):
    shutil.rmtree(target, ignore_errors=True)
    words = ["git", "-c", f"protocol.version={version}", "clone", "-q", "--mirror", url, str(target)]
    return subprocess.run(words, capture_output=True, text=True)


async def listings(up, url):
    """What clients are told, by each protocol; without a word that is no object's id."""
    for headers in ({}, {"Git-Protocol": "version=1"}, {"Git-Protocol": "version=2"}):
        answer = await up.client.get(f"{url}/info/refs?service=git-upload-pack", headers=headers)
        assert answer.status_code in (200, 503)
        assert b"0" * 40 + b" refs" not in answer.content
        if answer.status_code == 503:
            assert int(answer.headers["Retry-After"]) > 0
            assert b"Traceback" not in answer.content


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("harm", DAMAGES)
async def test_a_client_that_meets_damage_has_the_mirror_mended_at_once(
    stage, upstream, tmp_path, caplog, capsys, harm, version
):
    repo = upstream.create("team/x", commits=5)
    async with stage.up(schedule=SLOW) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        path = stage.mirror(up.key("team/x"))
        await asyncio.to_thread(harm, path)
        url = f"{up.node.url}/git/{up.key('team/x')}"

        async def cloned():
            await listings(up, url)
            return (await asyncio.to_thread(clone, url, tmp_path / "c", version)).returncode == 0

        await up.until(cloned)
        assert run_git(tmp_path / "c", "rev-parse", "main").strip() == repo.tip()
        await up.until(lambda: asyncio.to_thread(is_whole, path))
        assert up.refs("team/x") == repo.public_refs()
        await up.until(lambda: asyncio.to_thread(is_unmarked, path))
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    assert "Exception" not in caplog.text


@pytest.mark.parametrize("harm", [damage.flip_index_bytes, damage.truncate_pack])
async def test_what_is_elsewhere_in_the_mirror_is_mended_while_upstream_is_away(
    stage, upstream, tmp_path, harm
):
    """An index is made from its pack; a pack whose objects are in another one goes."""
    repo = upstream.create("team/x", commits=5)
    async with stage.up(schedule=SLOW) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        path = stage.mirror(up.key("team/x"))
        if harm is damage.truncate_pack:
            kept = {p.name: p.read_bytes() for p in (path / "objects/pack").iterdir()}
            run_git(path, "repack", "-a", "-d", "-F", "--window=0", "--depth=0")
            for name, data in kept.items():
                (path / "objects/pack" / name).write_bytes(data)
            assert len(list((path / "objects/pack").glob("*.pack"))) == 2
        upstream.close()
        await asyncio.to_thread(harm, path)
        url = f"{up.node.url}/git/{up.key('team/x')}"

        async def cloned():
            return (await asyncio.to_thread(clone, url, tmp_path / "c", 2)).returncode == 0

        await up.until(cloned)
        await up.until(lambda: asyncio.to_thread(is_whole, path))


async def test_damage_met_while_upstream_is_away_is_mended_when_it_is_back(
    stage, upstream, tmp_path, monkeypatch
):
    monkeypatch.setattr(suspects, "DAMAGED_REST_S", 0.0)  # clients remind us at once
    repo = upstream.create("team/x", commits=5)
    async with stage.up(schedule=SLOW) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        path = stage.mirror(up.key("team/x"))
        upstream.fail_with(503)
        await asyncio.to_thread(damage.truncate_pack, path)
        url = f"{up.node.url}/git/{up.key('team/x')}"
        failed = await asyncio.to_thread(clone, url, tmp_path / "c", 2)
        assert failed.returncode != 0
        await up.until(lambda: asyncio.to_thread((path / "evermirror-damaged").exists))
        upstream.heal()

        async def cloned():
            return (await asyncio.to_thread(clone, url, tmp_path / "c", 2)).returncode == 0

        await up.until(cloned)
        assert await asyncio.to_thread(is_whole, path)


async def test_damage_is_checked_also_where_upkeep_is_off_and_kept_tips_stay_for_ever(
    stage, upstream, tmp_path
):
    repo = upstream.create("team/x", commits=5)
    off = {"maintenance": {"enabled": False}, "keep": {"retention": "forever"}}
    async with stage.up(schedule=SLOW, **off) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        path = stage.mirror(up.key("team/x"))
        await asyncio.to_thread(damage.truncate_pack, path)
        url = f"{up.node.url}/git/{up.key('team/x')}"

        async def cloned():
            return (await asyncio.to_thread(clone, url, tmp_path / "c", 2)).returncode == 0

        await up.until(cloned)
        assert await asyncio.to_thread(is_whole, path)


class SlowMirrors:
    """Whose checks never get the mirror's lock."""

    def __init__(self, root):
        self.root = root
        self.waiting = asyncio.Semaphore(0)

    def path(self, key):
        return self.root

    @asynccontextmanager
    async def locked(self, key):
        self.waiting.release()
        await asyncio.Event().wait()
        yield 0


async def test_a_check_that_is_cut_short_is_made_when_checks_run_again(tmp_path):
    """As where a loop beside it broke: its supervisor runs all of them again."""
    now = 0.0
    mirrors = SlowMirrors(tmp_path)
    checks = DamageChecks(mirrors, None, lambda key: None, clock=lambda: now)
    checks.suspect(RepoKey("h/x"), Failure(FailureKind.UNKNOWN, "damaged", corrupt=True))
    for _ in range(3):
        running = asyncio.create_task(checks.run())
        async with asyncio.timeout(10):
            await mirrors.waiting.acquire()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        now += suspects.AGAIN_S


async def test_a_mirror_that_left_while_it_was_checked_can_be_suspected_when_it_is_back(tmp_path):
    key, evidence = RepoKey("h/x"), Failure(FailureKind.UNKNOWN, "damaged", corrupt=True)
    mirrors = SlowMirrors(tmp_path / "x")
    checks = DamageChecks(mirrors, None, lambda key: None)
    running = asyncio.create_task(checks.run())
    for _ in range(2):
        mirrors.root.mkdir()
        checks.suspect(key, evidence)
        async with asyncio.timeout(10):
            await mirrors.waiting.acquire()
        mirrors.root.rmdir()
        await checks.make_way(key)
        await asyncio.sleep(0)  # until the loop has judged the check that was broken off
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
