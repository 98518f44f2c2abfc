"""A mirror follows its upstream through everything that upstreams do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess

import pytest

from evermirror.edge.git.folder import Locks, folder_id
from evermirror.edge.git.mirror import MirrorSettings
from evermirror.edge.git.refs import STAGING, LocalRefs, plan_refs, transaction_input
from evermirror.edge.git.transfer import STEP_FILE
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.refs import Oid, RefSnapshot
from evermirror.model.repo import RepoKey
from tests.edge.git.mirror_world import World, mirror_git
from tests.support.gitrepo import read_head, run_git
from tests.support.processes import children_of_me, wait_for_no_children


@pytest.fixture
def world(tmp_path, upstream):
    return World(tmp_path, upstream)


async def test_first_sync_mirrors_branches_tags_and_head_but_no_host_private_refs(world):
    repo = world.upstream.create("team/x", commits=3)
    repo.tag("v1", annotated=True)
    repo.hidden_ref("refs/pull/1/head")
    steps = []
    outcome = await world.sync(repo, on_progress=steps.append)
    world.assert_equal(repo)
    assert outcome.first
    assert outcome.commits == 3
    assert len(outcome.push_times) == 3
    assert outcome.received_bytes > 0
    assert outcome.size_bytes > outcome.received_bytes
    assert {c.name for c in outcome.changes} == {"refs/heads/main", "refs/tags/v1"}
    assert (await world.mirrors.read_refs(world.spec(repo).key)).digest() == outcome.after.digest()
    assert steps[-1].received_bytes == outcome.received_bytes
    assert await world.mirrors.held() == [world.spec(repo).key]


async def test_a_new_commit_is_fetched_and_told(world):
    repo = world.upstream.create("x", commits=3)
    await world.sync(repo)
    tip = repo.commit(when=1_700_000_000)
    outcome = await world.sync(repo)
    world.assert_equal(repo)
    assert not outcome.first
    assert (outcome.commits, outcome.push_times) == (1, (1_700_000_000.0,))
    assert [c.new for c in outcome.changes] == [tip]
    assert await world.mirrors.has_commit(world.spec(repo).key, tip)
    assert not await world.mirrors.has_commit(world.spec(repo).key, "0" * 40)
    assert not await world.mirrors.has_commit(world.spec(repo).key, "--help")


async def test_only_what_changed_is_asked_for(world):
    repo = world.upstream.create("x", commits=3)
    repo.branch("other")
    await world.sync(repo)
    seen_before = len(world.upstream.requests)
    tip = repo.commit()
    spec = world.spec(repo)
    seen = await world.look(spec)
    world.upstream.requests.clear()
    await world.sync(repo, seen=seen)
    assert seen_before > 0
    posts = [r for r in world.upstream.requests if r.service == "upload-pack"]
    assert len(posts) == 1, "one round trip for the pack, none for a list of refs"
    assert posts[0].body.count(b"want ") == 1
    assert tip.encode() in posts[0].body


async def test_nothing_is_asked_where_the_objects_are_here(world):
    repo = world.upstream.create("x", commits=3)
    repo.branch("old")
    await world.sync(repo)
    repo.delete_branch("old")
    repo.tag("here")
    seen = await world.look(world.spec(repo))
    world.upstream.requests.clear()
    outcome = await world.sync(repo, seen=seen)
    assert world.upstream.requests == []
    assert {(c.name, c.new is None) for c in outcome.changes} == {
        ("refs/heads/old", True),
        ("refs/tags/here", False),
    }
    world.assert_equal(repo)


async def test_a_branch_that_becomes_a_folder_of_branches_and_back(world):
    repo = world.upstream.create("x", commits=2)
    repo.branch("a")
    await world.sync(repo)
    repo.delete_branch("a")
    repo.commit("a/b")
    repo.commit("a/c")
    await world.sync(repo)
    world.assert_equal(repo)
    repo.delete_branch("a/b")
    repo.delete_branch("a/c")
    repo.commit("a")
    await world.sync(repo)
    world.assert_equal(repo)


async def test_force_push_deleted_branch_moved_tag_and_renamed_head(world):
    repo = world.upstream.create("x", commits=3)
    repo.branch("gone")
    repo.tag("v1")
    await world.sync(repo)
    repo.force_push()
    repo.delete_branch("gone")
    repo.tag("v1", annotated=True)
    repo.branch("trunk")
    repo.set_head("trunk")
    repo.delete_branch("main")
    await world.sync(repo)
    world.assert_equal(repo)
    assert read_head(world.path(repo)) == "refs/heads/trunk"


async def test_an_empty_upstream_is_mirrored_and_followed_when_it_fills_and_empties(world):
    repo = world.upstream.create("x", commits=0)
    outcome = await world.sync(repo)
    assert outcome.first
    assert outcome.after == RefSnapshot({}, None)
    world.assert_equal(repo)
    repo.commit()
    assert not (await world.sync(repo)).first
    world.assert_equal(repo)
    assert (await world.mirrors.read_refs(world.spec(repo).key)).head == "refs/heads/main"
    repo.delete_branch("main")
    outcome = await world.sync(repo, accept=True)
    world.assert_equal(repo)
    assert await world.mirrors.read_refs(world.spec(repo).key) == outcome.after


async def test_a_sha256_upstream_also_where_it_was_empty_at_first(world):
    full = world.upstream.create("full", commits=2, object_format="sha256")
    await world.sync(full)
    world.assert_equal(full)
    empty = world.upstream.create("empty", commits=0, object_format="sha256")
    await world.sync(empty)
    empty.commit()
    await world.sync(empty)
    world.assert_equal(empty)


async def test_an_old_server_that_speaks_only_the_first_protocol(world):
    world.upstream.protocol_v2 = False
    repo = world.upstream.create("x", commits=3)
    await world.sync(repo)
    repo.commit()
    repo.tag("v1", annotated=True)
    await world.sync(repo)
    world.assert_equal(repo)


async def test_an_upstream_that_moves_between_look_and_fetch_is_looked_at_again(world):
    world.upstream.protocol_v2 = False  # which refuses what it does not advertise
    repo = world.upstream.create("x", commits=3)
    old = await world.look(world.spec(repo))
    repo.force_push()
    outcome = await world.sync(repo, seen=old)
    assert outcome.after != old
    world.assert_equal(repo)


async def test_an_upstream_that_always_moves_is_given_up_after_three_rounds(world):
    repo = world.upstream.create("x", commits=3)
    await world.sync(repo)
    looks = []

    async def never_there():
        looks.append(1)
        return RefSnapshot({"refs/heads/main": Oid(f"{len(looks):040x}")}, "refs/heads/main")

    with pytest.raises(FailureError) as caught:
        await world.sync(repo, seen=await never_there(), reprobe=never_there)
    assert len(looks) == 3
    assert "changed while it was fetched" in caught.value.failure.message
    world.assert_equal(repo)


async def test_force_fetches_though_nothing_changed(world):
    repo = world.upstream.create("x", commits=3)
    await world.sync(repo)
    outcome = await world.sync(repo, force=True)
    assert outcome.changes == ()
    world.assert_equal(repo)


async def test_names_that_are_ours_or_impossible_are_refused(world):
    repo = world.upstream.create("x", commits=1)
    tip = repo.tip()
    for name in (
        "refs/evermirror/staging/x",
        "refs/heads/a..b",
        "refs/heads/a\nb",
        "--upload-pack=x",
        "refs/heads/",
    ):
        with pytest.raises(FailureError) as caught:
            await world.sync(repo, seen=RefSnapshot({name: tip}, None))
        assert "impossible ref" in caught.value.failure.message
    assert await world.mirrors.held() == []


async def test_strange_but_legal_ref_names_survive_byte_by_byte_and_never_reach_argv(world, monkeypatch):
    repo = world.upstream.create("x", commits=1)
    names = [
        "refs/heads/-option",
        "refs/heads/$(touch${IFS}pwned)",
        "refs/heads/ü;x",
        b"refs/heads/\xff\xfe".decode("utf-8", "surrogateescape"),
        "refs/tags/'\"`",
    ]
    lines = b"".join(
        b"create %b\0%b\0" % (n.encode("utf-8", "surrogateescape"), repo.tip().encode()) for n in names
    )
    repo.git("update-ref", "-z", "--stdin", stdin=lines)
    repo.git("symbolic-ref", "HEAD", names[0])
    real, argvs = world.git.run, []

    async def recorded(args, **options):
        argvs.append(" ".join(args))
        return await real(args, **options)

    monkeypatch.setattr(world.git, "run", recorded)
    outcome = await world.sync(repo)
    assert set(names) <= set(outcome.after.refs)
    world.assert_equal(repo)
    assert argvs
    assert not any(name in argv for name in names for argv in argvs), "names go through stdin and files only"


async def test_two_syncs_of_one_repo_wait_for_each_other(world):
    repo = world.upstream.create("x", commits=3)
    outcomes = await asyncio.gather(*(world.sync(repo) for _ in range(4)))
    assert sorted(o.first for o in outcomes) == [False, False, False, True]
    world.assert_equal(repo)


async def test_a_second_process_is_kept_out_by_the_lock_on_disk(world, tmp_path):
    repo = world.upstream.create("x", commits=3)
    await world.sync(repo)
    repo.commit()
    other = World(tmp_path, world.upstream, settings=MirrorSettings(lock_wait_s=0.2))

    async with world.mirrors._locks.hold(folder_id(world.spec(repo).key)):
        with pytest.raises(FailureError, match="another process"):
            await other.sync(repo)
    await other.sync(repo)
    world.assert_equal(repo)


async def test_a_crash_between_the_transactions_is_finished_by_the_next_sync(world, monkeypatch):
    repo = world.upstream.create("x", commits=2)
    repo.branch("a")
    await world.sync(repo)
    repo.delete_branch("a")
    repo.commit("a/b")
    real = world.git.run

    async def first_transaction_only(args, **options):
        if args[0] == "update-ref":
            first, _, _ = options["stdin"].partition(b"commit\0")
            await real(args, **{**options, "stdin": first + b"commit\0"})
            raise asyncio.CancelledError
        return await real(args, **options)

    monkeypatch.setattr(world.git, "run", first_transaction_only)
    with pytest.raises(asyncio.CancelledError):
        await world.sync(repo)
    monkeypatch.undo()
    left = run_git(world.path(repo), "for-each-ref", "--format=%(refname)").split()
    assert "refs/heads/a" not in left
    assert any(name.startswith(STAGING) for name in left)
    seen = await world.look(world.spec(repo))
    world.upstream.requests.clear()
    await world.sync(repo, seen=seen)
    assert world.upstream.requests == [], "what was staged is not fetched twice"
    world.assert_equal(repo)


async def test_locks_and_temporary_files_of_killed_gits_are_removed(world):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    path = world.path(repo)
    (path / "refs" / "heads").mkdir(parents=True, exist_ok=True)
    (path / "objects" / "ab").mkdir()
    leftovers = [
        "HEAD.lock", "packed-refs.lock", "packed-refs.new", "config.lock", "refs/heads/main.lock",
        "objects/pack/tmp_pack_AbCdEf", "objects/pack/tmp_idx_x", "objects/ab/tmp_obj_x", "objects/tmp_obj_y",
    ]  # fmt: skip
    for name in leftovers:
        (path / name).write_bytes(b"x")
    repo.commit()
    await world.sync(repo)
    assert [name for name in leftovers if (path / name).exists()] == []
    world.assert_equal(repo)


async def test_a_git_that_is_killed_in_the_middle_leaves_nothing_that_stops_the_next_sync(world):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    repo.big_blob(2_000_000)
    seen = await world.look(world.spec(repo))
    world.upstream.stall_after_bytes = 500_000
    pack = world.path(repo) / "objects" / "pack"

    def kill_when_receiving(_):
        for child in children_of_me():
            if "index-pack" in child.command and list(pack.glob("tmp_pack_*")):
                os.kill(child.pid, signal.SIGKILL)
                world.upstream.stall_after_bytes = None

    with pytest.raises(FailureError):
        await world.sync(repo, seen=seen, on_progress=kill_when_receiving)
    world.upstream.stall_after_bytes = None
    await world.sync(repo)
    assert not list(pack.glob("tmp_*"))
    world.assert_equal(repo)


async def test_the_lock_outlives_us_while_a_git_still_works_there(world, tmp_path):

    async with Locks(tmp_path / "locks", 0.1).hold("name") as descriptor:
        orphan = subprocess.Popen(["sleep", "60"], pass_fds=(descriptor,))
    with pytest.raises(FailureError, match="another process"):
        async with Locks(tmp_path / "locks", 0.1).hold("name"):
            pass
    orphan.kill()
    orphan.wait()
    async with Locks(tmp_path / "locks", 0.1).hold("name"):
        pass


async def test_a_damaged_pack_is_replaced_by_a_fresh_clone_and_kept_as_trash(world, tmp_path):
    repo = world.upstream.create("x", commits=5)
    await world.sync(repo)
    pack = next((world.path(repo) / "objects" / "pack").glob("*.pack"))
    pack.chmod(0o644)
    data = bytearray(pack.read_bytes())
    data[20:-40] = bytes(len(data) - 60)
    pack.write_bytes(data)
    repo.commit()
    outcome = await world.sync(repo)
    world.assert_equal(repo)
    assert not outcome.first
    assert len(list((tmp_path / "mirrors" / ".trash").iterdir())) == 1


@pytest.mark.parametrize("lost", ["HEAD", "objects", "refs", "packed-refs"])
async def test_a_mirror_with_a_part_missing_is_whole_again_after_a_sync(world, lost):
    repo = world.upstream.create("x", commits=5)
    await world.sync(repo)
    path = world.path(repo) / lost
    path.rename(world.root / "taken")
    repo.commit()
    await world.sync(repo)
    world.assert_equal(repo)


async def test_damage_that_fsck_does_not_confirm_replaces_nothing(world, monkeypatch, tmp_path):

    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    repo.commit()

    async def accuse(*_, **__):
        raise FailureError(Failure(FailureKind.UNKNOWN, "said to be corrupt", corrupt=True))

    monkeypatch.setattr("evermirror.edge.git.transfer.Transfer.fetch", accuse)
    with pytest.raises(FailureError) as caught:
        await world.sync(repo)
    assert not caught.value.failure.corrupt
    assert list((tmp_path / "mirrors" / ".trash").iterdir()) == []


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
async def test_an_upstream_that_refuses_changes_nothing_here(world, status):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    before = await world.mirrors.read_refs(world.spec(repo).key)
    repo.commit()
    seen = await world.look(world.spec(repo))
    world.upstream.fail_with(status)
    with pytest.raises(FailureError) as caught:
        await world.sync(repo, seen=seen)
    expected = {
        401: FailureKind.NOT_FOUND,
        403: FailureKind.AUTH_FAILED,
        404: FailureKind.NOT_FOUND,
        429: FailureKind.RATE_LIMITED,
    }
    assert caught.value.failure.kind is expected.get(status, FailureKind.NETWORK_TIMEOUT)
    assert not caught.value.failure.corrupt
    assert await world.mirrors.read_refs(world.spec(repo).key) == before


async def test_a_clone_that_breaks_is_not_visible(world):
    repo = world.upstream.create("x", commits=2)
    repo.big_blob(300_000)
    seen = await world.look(world.spec(repo))
    world.upstream.drop_after_bytes = 100_000
    with pytest.raises(FailureError) as caught:
        await world.sync(repo, seen=seen)
    assert caught.value.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert await world.mirrors.held() == []
    assert not world.path(repo).exists()
    world.upstream.heal()
    world.upstream.drop_after_bytes = None
    await world.sync(repo)
    world.assert_equal(repo)


async def test_a_large_clone_that_breaks_goes_on_in_steps_and_keeps_what_arrived(tmp_path, upstream):
    world = World(tmp_path, upstream, settings=MirrorSettings(steps_after_bytes=0))
    repo = upstream.create("x", commits=1)
    for _ in range(14):
        repo.commit(files={"same.bin": os.urandom(60_000)})
    repo.commit("side")
    repo.tag("v1", annotated=True)
    seen = await world.look(world.spec(repo))
    upstream.drop_after_bytes = 700_000  # less than all of it, more than any step
    with pytest.raises(FailureError):
        await world.sync(repo, seen=seen)
    incoming = next((tmp_path / "mirrors" / ".incoming").iterdir())
    assert (incoming / STEP_FILE).exists()
    assert await world.mirrors.held() == []
    await world.mirrors.tidy()
    assert incoming.exists(), "young enough to go on with"
    await world.sync(repo, seen=seen)
    world.assert_equal(repo)
    assert not (world.path(repo) / STEP_FILE).exists()
    assert not (world.path(repo) / "shallow").exists()


@pytest.mark.parametrize("first", [True, False])
async def test_an_upstream_that_cuts_its_history_short_is_not_taken_in(tmp_path, upstream, first):
    world, repo = World(tmp_path, upstream), upstream.create("x", commits=3)
    if not first:
        await world.sync(repo)
    for _ in range(3):
        repo.commit()
    cut = repo.path / "shallow"
    cut.write_text(repo.tip() + "\n")
    with pytest.raises(FailureError, match="shallow"):
        await world.sync(repo)
    cut.unlink()
    if not first:
        mirror_git(world.path(repo), "fsck", "--full")  # raises where a link is broken
    await world.sync(repo)
    world.assert_equal(repo)


async def test_steps_go_on_from_the_depth_that_arrived(tmp_path, upstream):
    world = World(tmp_path, upstream, settings=MirrorSettings(steps_after_bytes=0))
    repo = upstream.create("x", commits=1)
    for _ in range(30):
        repo.commit(files={"same.bin": os.urandom(30_000)})
    seen = await world.look(world.spec(repo))
    upstream.drop_after_bytes = 400_000  # depth 1 and 10 pass, 100 does not
    for _ in range(2):
        with pytest.raises(FailureError):
            await world.sync(repo, seen=seen)
    incoming = next((tmp_path / "mirrors" / ".incoming").iterdir())
    assert (incoming / STEP_FILE).read_text() == "10"
    upstream.drop_after_bytes = None
    outcome = await world.sync(repo, seen=seen)
    world.assert_equal(repo)
    assert outcome.received_bytes < 30 * 30_000 - 5 * 30_000, "the first ten did not come twice"


async def test_a_repo_beyond_the_size_limit_is_stopped_and_leaves_nothing(tmp_path, upstream):
    world = World(tmp_path, upstream, settings=MirrorSettings(max_repo_size=200_000))
    repo = upstream.create("x", commits=1)
    repo.big_blob(3_000_000)
    with pytest.raises(FailureError) as caught:
        await world.sync(repo)
    assert "max_repo_size" in caught.value.failure.message
    assert list((tmp_path / "mirrors" / ".incoming").iterdir()) == []


async def test_a_stalled_upstream_is_ended_by_the_watchdog(tmp_path, upstream):
    world = World(tmp_path, upstream, no_progress_s=1.0)
    repo = upstream.create("x", commits=1)
    repo.big_blob(500_000)
    seen = await world.look(world.spec(repo))
    upstream.stall_after_bytes = 100_000
    with pytest.raises(FailureError) as caught:
        await world.sync(repo, seen=seen)
    upstream.stall_after_bytes = None
    assert caught.value.failure.kind is FailureKind.NETWORK_TIMEOUT


async def test_five_thousand_refs_come_change_and_go(world):
    repo = world.upstream.create("x", commits=2)
    repo.bulk_refs(5_000, "refs/heads/many/")
    tree = repo.git("rev-parse", "refs/heads/main^{tree}")
    stream = "".join(
        f"commit refs/tags/t{i}\ncommitter A <a@b> 1700000000 +0000\ndata 1\nx\nM 040000 {tree} \n\n"
        for i in range(1_500)
    )
    repo.git("fast-import", "--quiet", stdin=stream + "done\n")
    outcome = await world.sync(repo)
    assert len(outcome.changes) == 5_001 + 1_500
    world.assert_equal(repo)
    repo.commit()
    await world.sync(repo)
    for_all = "".join(f"delete {name}\n" for name in repo.refs() if name != "refs/heads/main")
    repo.git("update-ref", "--stdin", stdin=for_all)
    await world.sync(repo, accept=True)
    world.assert_equal(repo)


async def test_discarded_mirrors_go_to_the_trash_and_are_removed_when_old(world, tmp_path):
    repo = world.upstream.create("x", commits=1)
    await world.sync(repo)
    assert await world.mirrors.size(world.spec(repo).key) > 0
    assert await world.mirrors.discard(world.spec(repo).key)
    assert not await world.mirrors.discard(world.spec(repo).key)
    assert await world.mirrors.held() == []
    await world.mirrors.tidy()
    trash = tmp_path / "mirrors" / ".trash"
    assert len(list(trash.iterdir())) == 1
    world.mirrors._clock = lambda: 4e9
    await world.mirrors.tidy()
    assert list(trash.iterdir()) == []


async def test_a_key_too_long_for_a_readable_path_is_still_found_on_disk(world):
    repo = world.upstream.create("x", commits=1)
    spec = world.spec(repo)
    long = type(spec)(RepoKey(f"{spec.host}/" + "é" * 400), spec.url, spec.host)
    seen = await world.look(spec)
    await world.mirrors.sync(long, ("127.0.0.1",), seen, lambda: world.look(spec))
    assert await world.mirrors.held() == [long.key]


async def test_cancelled_syncs_leave_no_process_and_no_folder(world):

    repo = world.upstream.create("x", commits=1)
    repo.big_blob(500_000)
    seen = await world.look(world.spec(repo))
    world.upstream.stall_after_bytes = 100_000
    receiving = asyncio.Event()
    task = asyncio.create_task(world.sync(repo, seen=seen, on_progress=lambda _: receiving.set()))
    await receiving.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    world.upstream.stall_after_bytes = None
    assert list((world.root / "mirrors" / ".incoming").iterdir()) == []
    left = [c for c in await asyncio.to_thread(wait_for_no_children) if "fetch" in c.command]
    assert left == []


def test_staging_is_emptied_in_the_transaction_that_makes_refs_public():

    a, b = Oid("a" * 40), Oid("b" * 40)
    local = LocalRefs(RefSnapshot({"refs/heads/x": a}, None), frozenset({b}))
    text = transaction_input(plan_refs(local, RefSnapshot({"refs/heads/x/y": b}, None)))
    first, second = text.split(b"commit\0")[:2]
    assert first == b"start\0delete refs/heads/x\0%b\0prepare\0" % a.encode()
    assert b"create refs/heads/x/y\0%b\0" % b.encode() in second
    assert b"delete %b%b\0%b\0" % (STAGING.encode(), b.encode(), b.encode()) in second
