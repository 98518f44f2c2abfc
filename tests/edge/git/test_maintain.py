"""Upkeep on real mirrors: smaller and faster afterwards, never less, and never in anybody's way."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from evermirror.core.maintain.facts import DAY_S, Job, RepoUpkeep, UpkeepSettings
from evermirror.core.maintain.plan import LOOSE_REFS_MAX
from evermirror.edge.git import folder
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.maintain import Maintenance
from evermirror.edge.git.upkeep import PAST_FILE, is_damaged, read_past, read_upkeep
from evermirror.model.failure import Failure, FailureError, FailureKind
from tests.edge.git.mirror_world import World
from tests.support.gitrepo import UpstreamRepo, clean_git_env, read_refs, run_git
from tests.support.processes import children_of_me, wait_for_no_children

HIDDEN = "refs/evermirror/kept/20261115T203000123Z/rewritten-gone/refs%2Fheads%2Fmain"


class Clock:
    def __init__(self):
        self.now = time.time()

    def __call__(self):
        return self.now


@pytest.fixture
def git(tmp_path):
    return Git(GitSettings(tmp_path / "data"))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def maintenance(git, clock):
    return Maintenance(git, clock=clock)


def make_mirror(tmp_path, packs=25, blob_bytes=200, name="x.git"):
    """A mirror as fetches leave it: one pack for each; a rewritten tip that only a hidden ref keeps."""
    repo = UpstreamRepo.init(tmp_path / name, "x", "")
    for n in range(packs):
        repo.commit(files={f"file{n % 7}": random.Random(n).randbytes(blob_bytes)})
        repo.git("repack", "-q", "-d")
    repo.git("update-ref", HIDDEN, repo.tip())
    repo.git("update-ref", "refs/heads/main", "refs/heads/main~1")
    repo.commit()
    repo.git("repack", "-q", "-d")
    return repo


def everything(path):
    """All that refs reach, hidden ones too."""
    return sorted(run_git(path, "rev-list", "--objects", "--all").splitlines())


def sound(path):
    done = subprocess.run(
        ["git", "fsck", "--full", "--strict"], cwd=path, capture_output=True, check=False, text=True
    )
    return done.returncode == 0


def leftovers(path):
    return [
        p for p in path.rglob("*") if p.name.startswith(("tmp_", ".tmp-")) or p.suffix in (".lock", ".new")
    ]


def pack_of(path):
    return max((path / "objects/pack").glob("*.pack"), key=lambda p: p.stat().st_size)


def corrupt(pack):
    """Turn bytes in the middle of a pack."""
    pack.chmod(0o644)
    with open(pack, "r+b") as file:
        file.seek(pack.stat().st_size // 2)
        there = file.read(16)
        file.seek(-16, os.SEEK_CUR)
        file.write(bytes(b ^ 0xFF for b in there))


# What is gained, and that nothing is lost


async def test_many_fetches_become_few_packs_with_everything_in_them(tmp_path, upstream):
    world = World(tmp_path, upstream)
    repo = upstream.create("x", commits=3)
    for _ in range(24):
        repo.commit()
        await world.sync(repo)
    path = world.path(repo)
    run_git(path, "update-ref", HIDDEN, "refs/heads/main")
    objects, refs = everything(path), read_refs(path)
    maintenance = Maintenance(world.git)
    tended = await maintenance.tend(path, None, 0.9)
    assert tended.result is not None
    assert tended.result.job is Job.GEOMETRIC
    assert tended.result.failure is None
    assert tended.result.damaged is None
    assert tended.result.before.pack_count == 24
    assert tended.facts.pack_count < 5
    assert tended.facts.has_bitmap
    assert tended.facts.has_midx
    assert tended.facts.has_commit_graph
    assert (everything(path), read_refs(path)) == (objects, refs)
    repo.commit()
    await world.sync(repo)
    run_git(path, "update-ref", "-d", HIDDEN)
    world.assert_equal(repo)


@pytest.mark.parametrize("job", list(Job))
async def test_each_job_keeps_every_object_and_ref_and_is_remembered(tmp_path, maintenance, clock, job):
    repo = make_mirror(tmp_path)
    objects, refs = everything(repo.path), read_refs(repo.path)
    result = await maintenance.run(repo.path, job, None)
    assert (result.failure, result.damaged) == (None, None)
    assert (everything(repo.path), read_refs(repo.path)) == (objects, refs)
    assert result.after.done_at(job) == clock.now
    assert result.after == await maintenance.facts(repo.path)
    assert sound(repo.path)
    assert leftovers(repo.path) == []


async def test_what_no_ref_reaches_survives_a_full_repack_until_it_expires(tmp_path, git, clock):
    repo = make_mirror(tmp_path)
    lost = repo.git("rev-parse", HIDDEN)
    repo.git("update-ref", "-d", HIDDEN)
    kept = await Maintenance(git).run(repo.path, Job.FULL, None)
    assert kept.failure is None
    assert kept.after.pack_count == 1
    assert kept.after.cruft_bytes > 0
    assert repo.git("cat-file", "-t", lost) == "commit"
    again = await Maintenance(git).run(repo.path, Job.GEOMETRIC, None)  # does not mix it up with the rest
    assert again.failure is None
    assert again.after.cruft_bytes == kept.after.cruft_bytes
    time.sleep(2.1)
    await Maintenance(git, UpkeepSettings(cruft_expiry_s=1.0)).run(repo.path, Job.FULL, None)
    with pytest.raises(AssertionError):
        repo.git("cat-file", "-t", lost)
    assert sound(repo.path)


async def test_loose_refs_are_packed(tmp_path, maintenance):
    repo = make_mirror(tmp_path, packs=2)
    for n in range(LOOSE_REFS_MAX + 1):
        (repo.path / f"refs/heads/b{n}").write_text(repo.tip() + "\n")
    refs = read_refs(repo.path)
    tended = await maintenance.tend(repo.path, None, 0.5)
    assert tended.result is not None
    assert tended.result.job is Job.PACK_REFS
    assert tended.result.before.loose_refs == LOOSE_REFS_MAX + 3
    assert tended.facts.loose_refs == 0
    assert read_refs(repo.path) == refs


async def test_a_mirror_comes_to_rest_and_its_figures_are_true(tmp_path, maintenance, clock):
    repo = make_mirror(tmp_path)
    jobs = []
    while (tended := await maintenance.tend(repo.path, None, 0.0)).result is not None:
        jobs.append(tended.result.job)
        assert tended.result.failure is None
        assert len(jobs) < 6
    assert jobs == [Job.GEOMETRIC, Job.FULL, Job.FSCK]
    assert clock.now < tended.due.at <= clock.now + 30 * DAY_S
    facts = tended.facts
    assert facts.last_repack_at == facts.done_at(Job.FULL) == facts.last_fsck_at == clock.now
    assert facts.pack_count == len(list((repo.path / "objects/pack").glob("*.pack"))) == 1
    assert facts.pack_bytes == pack_of(repo.path).stat().st_size
    assert facts.pack_bytes < facts.size_bytes < folder.size_of(repo.path)


async def test_an_empty_mirror_needs_nothing_and_survives_everything(tmp_path, maintenance):
    repo = UpstreamRepo.init(tmp_path / "empty.git", "x", "")
    assert (await maintenance.tend(repo.path, None, 0.5)).result is None
    for job in Job:
        result = await maintenance.run(repo.path, job, None)
        assert (result.failure, result.damaged) == (None, None)


async def test_a_mirror_of_sha256_is_kept_up_too(tmp_path, maintenance):
    repo = UpstreamRepo.init(tmp_path / "sha256.git", "x", "", object_format="sha256")
    repo.commit()
    for job in Job:
        result = await maintenance.run(repo.path, job, None)
        assert (result.failure, result.damaged) == (None, None)


# In nobody's way


async def clone(tmp_path, source, name):
    target = tmp_path / name
    process = await asyncio.create_subprocess_exec(
        "git",
        "clone",
        "-q",
        "--mirror",
        "--no-local",
        str(source),
        str(target),
        env=clean_git_env(tmp_path),
        stderr=subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    refs = read_refs(target)
    assert sound(target)
    shutil.rmtree(target)
    return refs


async def test_clones_that_run_while_the_mirror_is_repacked_again_and_again_finish_whole(tmp_path, git):
    repo = make_mirror(tmp_path, packs=12, blob_bytes=60_000)
    stop = asyncio.Event()

    async def read(reader):
        clones = 0
        while not stop.is_set():
            refs = await clone(tmp_path, repo.path, f"copy{reader}-{clones}")
            assert "refs/heads/main" in refs
            clones += 1
        return clones

    maintenance = Maintenance(git)
    readers = [asyncio.create_task(read(n)) for n in range(3)]
    done = []
    for n in range(8):
        for _ in range(3):
            await asyncio.to_thread(repo.commit, files={f"new{n}": random.Random(n).randbytes(30_000)})
            await asyncio.to_thread(repo.git, "repack", "-q", "-d")
        result = await maintenance.run(repo.path, Job.FULL if n % 2 else Job.GEOMETRIC, None)
        assert (result.failure, result.damaged) == (None, None)
        done.append(result)
    stop.set()
    clones = await asyncio.gather(*readers)
    assert sum(clones) >= 6
    assert len(done) == 8


async def test_git_works_at_the_lowest_priority_with_one_thread(tmp_path, maintenance):
    repo = make_mirror(tmp_path, packs=8, blob_bytes=1_000_000)
    seen = {}

    async def watch():
        while True:
            for child in children_of_me():
                if "pack-objects" in child.command:
                    with suppress(ProcessLookupError):
                        seen[child.pid] = os.getpriority(os.PRIO_PROCESS, child.pid)
            await asyncio.sleep(0.002)

    watching = asyncio.create_task(watch())
    assert (await maintenance.run(repo.path, Job.FULL, None)).failure is None
    watching.cancel()
    assert seen
    assert set(seen.values()) == {19}


async def test_the_lock_is_inherited_so_that_it_outlives_us(tmp_path, maintenance):
    repo = make_mirror(tmp_path, packs=3)
    locks = folder.Locks(tmp_path / "locks", 1.0)
    async with locks.hold("x" * 32) as descriptor:
        result = await maintenance.run(repo.path, Job.GEOMETRIC, descriptor)
    assert result.failure is None


# Bounded, and clean when it is broken off


def repacking():
    words = ("git repack", "pack-objects")
    return [c for c in children_of_me() if any(w in c.command for w in words) and c.state != "Z"]


async def test_a_job_that_takes_too_long_is_ended_and_leaves_a_sound_mirror(tmp_path, git, clock):
    repo = make_mirror(tmp_path, packs=8, blob_bytes=3_000_000)
    objects = everything(repo.path)
    started = time.monotonic()
    maintenance = Maintenance(git, UpkeepSettings(time_limit_s=0.1), clock=clock)
    result = await maintenance.run(repo.path, Job.FULL, None)
    assert time.monotonic() - started < 5
    assert result.damaged is None
    assert result.failure is not None
    assert "did not end within" in result.failure.message
    assert "time_limit" in result.failure.hint
    assert result.after.past[Job.FULL].failures == 1
    assert result.after.done_at(Job.FULL) is None
    assert wait_for_no_children() == []
    assert leftovers(repo.path) == []
    assert everything(repo.path) == objects
    assert sound(repo.path)
    assert (await Maintenance(git).run(repo.path, Job.FULL, None)).failure is None


@pytest.mark.parametrize("job", [Job.GEOMETRIC, Job.FULL])
async def test_a_job_broken_off_at_any_moment_leaves_a_sound_and_clean_mirror(tmp_path, maintenance, job):
    repo = make_mirror(tmp_path, packs=6, blob_bytes=100_000)
    objects = everything(repo.path)
    shutil.copytree(repo.path, tmp_path / "trial.git")
    started = time.monotonic()
    await maintenance.run(tmp_path / "trial.git", job, None)
    whole_s = time.monotonic() - started
    cancelled = 0
    for n in range(8):
        path = tmp_path / f"broken{n}.git"
        shutil.copytree(repo.path, path)
        started = time.monotonic()
        task = asyncio.create_task(maintenance.run(path, job, None))
        done, _ = await asyncio.wait({task}, timeout=whole_s * n / 8)
        if done:  # a machine that was busy at first is quicker now
            whole_s = min(whole_s, time.monotonic() - started)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            cancelled += 1
            assert job not in read_past(path) or read_past(path)[job].failures == 0
        assert wait_for_no_children() == []
        assert leftovers(path) == []
        assert everything(path) == objects
        assert sound(path)
    assert cancelled >= 3


@pytest.mark.parametrize("job", [Job.GEOMETRIC, Job.FULL])
async def test_a_git_killed_at_any_moment_leaves_a_sound_mirror_that_the_next_job_tidies(
    tmp_path, maintenance, job
):
    repo = make_mirror(tmp_path, packs=6, blob_bytes=100_000)
    objects = everything(repo.path)
    failed = 0
    for n in range(8):
        path = tmp_path / f"killed{n}.git"
        shutil.copytree(repo.path, path)
        task = asyncio.create_task(maintenance.run(path, job, None))
        while not task.done() and not repacking():
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.01 * n)
        for child in repacking():
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        result = await task
        failed += result.failure is not None
        assert result.damaged is None
        assert leftovers(path) == []
        assert everything(path) == objects
        assert sound(path)
        retried = await maintenance.run(path, job, None)
        assert retried.failure is None
        assert {p.suffix for p in path.glob("objects/pack/pack-*")} >= {".pack", ".idx"}
        assert everything(path) == objects
    assert failed >= 1


async def test_locks_of_a_git_that_was_killed_together_with_us_hold_up_nothing(tmp_path, maintenance):
    repo = make_mirror(tmp_path, packs=3)
    await maintenance.run(repo.path, Job.COMMIT_GRAPH, None)
    for name in (
        "objects/info/commit-graphs/commit-graph-chain.lock",
        "objects/pack/multi-pack-index.lock",
        "packed-refs.lock",
    ):
        (repo.path / name).write_text("")
    repo.commit()
    for job in Job:
        assert (await maintenance.run(repo.path, job, None)).failure is None
    assert leftovers(repo.path) == []


@pytest.mark.parametrize("job", [Job.GEOMETRIC, Job.FULL])
async def test_packs_that_a_kill_left_without_an_index_are_adopted_if_whole_and_removed_if_not(
    tmp_path, maintenance, job
):
    repo = make_mirror(tmp_path, packs=3)
    objects = everything(repo.path)
    half = repo.path / "objects/pack" / ("pack-" + "0" * 40 + ".pack")
    half.write_bytes(pack_of(repo.path).read_bytes()[:-30])
    alone = half.with_suffix(".rev")
    alone.write_bytes(b"x")
    pack_of(repo.path).with_suffix(".idx").unlink()  # all that there is of some objects
    assert (await maintenance.facts(repo.path)).pack_count == 3
    result = await maintenance.run(repo.path, job, None)
    assert result.failure is None
    assert not half.exists()
    assert not alone.exists()
    assert everything(repo.path) == objects
    assert sound(repo.path)


# Damage


async def test_fsck_finds_turned_bytes_in_a_pack_and_nothing_in_a_healthy_mirror(tmp_path, maintenance):
    repo = make_mirror(tmp_path, packs=3, blob_bytes=50_000)
    healthy = await maintenance.run(repo.path, Job.FSCK, None)
    assert not is_damaged(repo.path)
    assert (healthy.failure, healthy.damaged) == (None, None)
    corrupt(pack_of(repo.path))
    result = await maintenance.run(repo.path, Job.FSCK, None)
    assert result.failure is None
    assert result.damaged is not None
    assert result.damaged.corrupt
    assert "damaged" in result.damaged.message
    assert "fsck" in result.damaged.git_command
    assert result.damaged.stderr
    assert str(tmp_path) not in result.damaged.message
    assert is_damaged(repo.path)
    assert result.after.last_fsck_at == healthy.after.last_fsck_at  # the last time that all was well


async def test_fsck_finds_a_missing_object_a_broken_ref_and_a_lost_head(tmp_path, maintenance):
    for n, harm in enumerate(
        [
            lambda path: pack_of(path).unlink(),
            lambda path: (path / "refs/heads/main").write_text("1" * 40 + "\n"),
            lambda path: (path / "HEAD").unlink(),
            lambda path: (path / "packed-refs").write_text("nonsense\n"),
        ]
    ):
        repo = make_mirror(tmp_path, packs=2, name=f"{n}.git")
        harm(repo.path)
        result = await maintenance.run(repo.path, Job.FSCK, None)
        assert result.damaged is not None, n
        assert result.damaged.corrupt


async def test_a_repack_that_stumbles_over_damage_has_it_confirmed(tmp_path, maintenance):
    repo = make_mirror(tmp_path, packs=3, blob_bytes=50_000)
    pack_of(repo.path).unlink()
    result = await maintenance.run(repo.path, Job.FULL, None)
    assert result.damaged is not None
    assert result.damaged.corrupt
    assert leftovers(repo.path) == []


async def test_damaged_indexes_over_sound_objects_are_removed_and_made_anew(tmp_path, maintenance):
    repo = make_mirror(tmp_path)
    await maintenance.run(repo.path, Job.GEOMETRIC, None)
    for damaged in [
        *repo.path.glob("objects/info/commit-graphs/*.graph"),
        repo.path / "objects/pack/multi-pack-index",
    ]:
        damaged.chmod(0o644)
        with open(damaged, "r+b") as file:
            file.seek(damaged.stat().st_size // 2)
            file.write(b"\xff" * 8)
    result = await maintenance.run(repo.path, Job.FSCK, None)
    assert result.damaged is None
    assert result.failure is None
    assert not result.after.has_midx
    assert not result.after.has_commit_graph
    assert sound(repo.path)
    assert (await maintenance.tend(repo.path, None, 0.99)).facts.has_commit_graph


async def test_an_index_is_made_again_and_a_pack_goes_whose_objects_are_elsewhere(tmp_path, maintenance):
    path = make_mirror(tmp_path, packs=3).path
    before = everything(path)
    kept = {p.name: p.read_bytes() for p in (path / "objects/pack").iterdir()}
    run_git(path, "repack", "-a", "-d", "-q", "-F", "--window=0")
    whole = pack_of(path)
    for name, data in kept.items():
        (path / "objects/pack" / name).write_bytes(data)
    broken = path / "objects/pack" / next(name for name in sorted(kept) if name.endswith(".pack"))
    broken.write_bytes(broken.read_bytes()[:-30])
    index = whole.with_suffix(".idx")
    index.chmod(0o600)
    index.write_bytes(index.read_bytes()[:-10] + bytes(10))
    result = await maintenance.run(path, Job.FSCK, None)
    assert (result.damaged, result.failure) == (None, None)
    assert not broken.exists()
    assert not broken.with_suffix(".idx").exists()
    assert whole.exists()
    assert everything(path) == before
    assert sound(path)
    assert not is_damaged(path)


async def test_a_broken_pack_with_objects_of_its_own_stays_for_the_clone_that_replaces_it(
    tmp_path, maintenance
):
    path = make_mirror(tmp_path, packs=3).path
    files = sorted(p.name for p in (path / "objects/pack").iterdir())
    corrupt(pack_of(path))
    result = await maintenance.run(path, Job.FSCK, None)
    assert result.damaged is not None
    assert {f for f in files if f.startswith("pack-")} <= {p.name for p in (path / "objects/pack").iterdir()}
    assert is_damaged(path)


@pytest.mark.parametrize("when", ["verify-pack", "index-pack", "second fsck"])
@pytest.mark.parametrize(
    "trouble", [FailureError(Failure(FailureKind.UNKNOWN, "git did not end within 1 h")), OSError(28, "full")]
)
async def test_damage_is_told_also_where_mending_does_not_come_to_its_end(
    tmp_path, git, clock, monkeypatch, trouble, when
):
    path = make_mirror(tmp_path, packs=3).path
    files = {p.name for p in (path / "objects/pack").iterdir()}
    corrupt(pack_of(path))
    run, checks = git.run, 0

    async def failing(words, **more):
        nonlocal checks
        checks += words[0] == "fsck"
        if words[0] == when or checks == 2:
            raise trouble
        return await run(words, **more)

    monkeypatch.setattr(git, "run", failing)
    result = await Maintenance(git, clock=clock).run(path, Job.FSCK, None)
    assert result.damaged is not None
    assert result.damaged.corrupt
    assert is_damaged(path)
    assert files <= {p.name for p in (path / "objects/pack").iterdir()}


async def test_what_a_kill_left_aside_is_put_back(tmp_path, maintenance):
    path = make_mirror(tmp_path, packs=3).path
    before = everything(path)
    (path / "evermirror-broken").mkdir()
    for file in list((path / "objects/pack").iterdir()):
        file.rename(path / "evermirror-broken" / file.name)
    result = await maintenance.run(path, Job.FSCK, None)
    assert result.damaged is None
    assert everything(path) == before
    assert not (path / "evermirror-broken").exists()


async def test_harmless_defects_of_honest_histories_are_no_damage(tmp_path, maintenance):
    repo = make_mirror(tmp_path, packs=2)
    tree = repo.git("rev-parse", "refs/heads/main^{tree}")
    odd = f"tree {tree}\nauthor A <a@b> 1 +051800\ncommitter A <a@b> 1 +0000\n\nx\n"
    oid = repo.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=odd)
    worse = f"tree {tree}\nauthor A <a@b> 1 +0000\n\nno committer\n"  # nothing that we would fetch today
    oid2 = repo.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=worse)
    repo.git("update-ref", "refs/heads/odd", oid)
    (repo.path / "refs/heads/worse").write_text(oid2 + "\n")
    result = await maintenance.run(repo.path, Job.FSCK, None)
    assert (result.failure, result.damaged) == (None, None)


# What cannot be done is told


async def test_a_mirror_that_borrows_objects_is_not_repacked_and_says_why(tmp_path, maintenance):
    pool = make_mirror(tmp_path, name="pool.git")
    repo = UpstreamRepo.init(tmp_path / "member.git", "x", "")
    (repo.path / "objects/info").mkdir(exist_ok=True)
    (repo.path / "objects/info/alternates").write_text(f"{pool.path}/objects\n")
    repo.git("update-ref", "refs/heads/main", pool.tip())
    for job in (Job.GEOMETRIC, Job.FULL):
        result = await maintenance.run(repo.path, job, None)
        assert result.failure is not None
        assert result.failure.kind is FailureKind.CONFLICT
        assert "borrows" in result.failure.message
        assert result.damaged is None
    for job in (Job.PACK_REFS, Job.COMMIT_GRAPH, Job.FSCK):
        assert (await maintenance.run(repo.path, job, None)).failure is None
    assert sound(repo.path)


async def test_a_repack_for_which_the_disk_has_no_room_is_not_begun(tmp_path, maintenance, monkeypatch):
    repo = make_mirror(tmp_path, packs=2)
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: real._replace(free=100))
    result = await maintenance.run(repo.path, Job.FULL, None)
    assert result.failure is not None
    assert result.failure.kind is FailureKind.DISK_FULL
    assert result.after.pack_count == result.before.pack_count


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"full": 3}', '{"sing": {}}', '{"full": {"done_at": "x"}}', "\x00"]
)
async def test_a_memory_that_cannot_be_read_is_empty(tmp_path, text):
    repo = make_mirror(tmp_path, packs=2)
    (repo.path / PAST_FILE).write_text(text)
    assert read_upkeep(repo.path).past == {}


async def test_the_figures_of_a_mirror_that_is_gone_are_nothing(tmp_path, maintenance):
    facts = await maintenance.facts(tmp_path / "nowhere.git")
    assert replace(facts, packs_id="") == RepoUpkeep()
