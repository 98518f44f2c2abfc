"""A target follows its mirror through everything that sources do, and loses nothing of anybody else's."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from evermirror.core.push.plan import LastPut, Refusal
from evermirror.edge.git import push as push_module
from evermirror.edge.git import push_sending, put_file
from evermirror.edge.git import refless as refless_module
from evermirror.edge.git.credentials import Credential
from evermirror.edge.git.push_command import push_args, read_porcelain
from evermirror.edge.git.push_sending import PushSettings, Sending
from evermirror.edge.git.put_file import PutRecord, read_put, write_put
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.push import RefOutcome, put_digest
from evermirror.model.refs import Oid
from tests.edge.git.push_world import TARGET, PushWorld
from tests.support.gitrepo import run_git

MAIN = "refs/heads/main"


@pytest.fixture
async def world(tmp_path, upstream):
    made = PushWorld(tmp_path, upstream)
    yield made
    await made.prober.close()


def outcomes(pushed):
    return {ref.name: ref.outcome for ref in pushed.refs}


def pushes(world):
    """Commands that the server was asked to carry out."""
    return [r for r in world.upstream.requests if r.method == "POST" and "git-receive-pack" in r.path]


# Following


async def test_a_first_push_puts_branches_and_tags_and_nothing_else(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.tag("v1", annotated=True)
    repo.branch("team/a")
    for hidden in ("refs/pull/1/head", "refs/merge-requests/1/head", "refs/keep-around/1", "refs/notes/x"):
        repo.hidden_ref(hidden)
    assert await world.behind(repo, target)
    pushed = await world.sync_and_push(repo, target)
    world.assert_there(repo, target, pushed)
    assert (pushed.put_total, pushed.deleted_total, pushed.waiting_total) == (3, 0, 0)
    assert pushed.commit == repo.tip()
    assert pushed.sent_bytes > 0
    assert [step.phase for step in world.steps][-1] == "pushing"
    assert world.steps[-1].received_bytes == pushed.sent_bytes
    assert (pushed.started_at, pushed.ended_at) == (1000.0, 1000.0)


async def test_nothing_is_asked_of_anybody_while_the_target_is_level(world, monkeypatch):
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync_and_push(repo, target)
    world.upstream.requests.clear()
    assert not await world.behind(repo, target)
    pushed = await world.push(repo, target)
    assert (pushed.failure, pushed.changed, pushed.commit) == (None, False, repo.tip())
    assert world.upstream.requests == []

    async def no_process(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(world.git, "run", no_process)
    assert not await world.behind(repo, target)


async def test_force_reads_the_target_and_repairs_it(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("b")
    await world.sync_and_push(repo, target)
    target.delete_branch("b")
    assert (await world.push(repo, target)).changed is False
    pushed = await world.push(repo, target, force=True)
    assert outcomes(pushed) == {"refs/heads/b": RefOutcome.PUT}
    world.assert_there(repo, target, pushed)


async def test_every_kind_of_change_is_followed(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("gone")
    repo.branch("moves")
    repo.tag("v1")
    await world.sync_and_push(repo, target)
    repo.force_push()
    repo.delete_branch("gone")
    repo.tag("v1", annotated=True)
    repo.commit("moves")
    repo.commit("new")
    await world.sync(repo)
    assert await world.behind(repo, target)
    pushed = await world.push(repo, target)
    world.assert_there(repo, target, pushed)
    assert (pushed.put_total, pushed.deleted_total) == (4, 1)
    assert "refs/evermirror/kept" in "".join(run_git(world.path(repo), "for-each-ref")), "kept here"


async def test_a_branch_that_becomes_a_folder_of_branches_and_back(world):
    repo, target = world.upstream.create("x", commits=2), world.target()
    repo.branch("a")
    await world.sync_and_push(repo, target)
    repo.delete_branch("a")
    repo.commit("a/b")
    repo.commit("a/c")
    world.assert_there(repo, target, await world.sync_and_push(repo, target))
    repo.delete_branch("a/b")
    repo.delete_branch("a/c")
    repo.commit("a")
    world.assert_there(repo, target, await world.sync_and_push(repo, target))


async def test_a_target_of_old_that_shows_peeled_and_hidden_refs_in_its_one_list(world):
    world.upstream.protocol_v2 = False
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.tag("v1", annotated=True)
    target.hidden_ref("refs/merge-requests/1/head")
    await world.sync_and_push(repo, target)
    repo.tag("v1", annotated=True)
    repo.tag("v2", annotated=True)
    pushed = await world.sync_and_push(repo, target)
    assert (pushed.failure, pushed.put) == (None, put_digest(repo.public_refs()))
    hidden = {n: o for n, o in target.refs().items() if "merge-requests" in n}
    assert target.refs() == {**repo.public_refs(), **hidden}
    assert hidden


async def test_an_empty_source_and_one_that_fills_later(world):
    repo, target = world.upstream.create("x", commits=0), world.target()
    pushed = await world.sync_and_push(repo, target)
    assert (pushed.failure, pushed.put, pushed.commit) == (None, put_digest({}), None)
    repo.bulk_commits(2)
    world.assert_there(repo, target, await world.sync_and_push(repo, target))


@pytest.mark.slow  # git compares each ref with each that is there: half a minute, and more on a busy machine
@pytest.mark.timeout(600)
async def test_thousands_of_refs_go_in_commands_of_bounded_length(world, monkeypatch):
    repo, target = world.upstream.create("x", commits=2), world.target()
    target.git("config", "core.fsync", "none")  # else it is the disk that is measured
    repo.bulk_refs(2_200)  # git's time for a push grows with the square of it
    asked = []

    def noted(url, batch):
        asked.append(batch)
        return push_args(url, batch)

    monkeypatch.setattr(push_sending, "push_args", noted)
    pushed = await world.sync_and_push(repo, target)
    world.assert_there(repo, target, pushed)
    assert pushed.put_total == 2_201
    assert len(pushed.refs) == push_module.REFS_TOLD
    assert 5 <= len(asked) <= 9, "by 500 refs, or by the length of the command"


async def test_names_of_any_bytes_and_names_that_look_like_something_else(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    other = repo.commit("other")
    tip = repo.tip()
    repo.git("update-ref", f"refs/heads/{tip}", other)  # git would take the id of main for this branch
    repo.git("update-ref", f"refs/tags/{other}", tip)
    repo.branch("ünïcode-分支")
    repo.branch("-dash")
    repo.branch("a'b\"c$(d)&e;f")
    repo.git("update-ref", "--stdin", stdin=b"create refs/heads/latin-\xe9\xff " + tip.encode() + b"\n")
    pushed = await world.sync_and_push(repo, target)
    world.assert_there(repo, target, pushed)
    assert target.tip() == tip
    assert not await world.behind(repo, target)


async def test_a_branch_inside_of_which_another_ones_full_name_stands(world):
    """git cannot be told to push to refs/heads/main while there is a refs/heads/refs/heads/main."""
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("refs/heads/main")
    repo.branch("refs/heads/alone")
    pushed = await world.sync_and_push(repo, target)
    assert (pushed.failure.kind, pushed.failure.of_refs) == (FailureKind.PERMISSION_DENIED, True)
    assert outcomes(pushed)["refs/heads/refs/heads/main"] is RefOutcome.REFUSED
    assert set(target.refs()) == {MAIN, "refs/heads/refs/heads/alone"}
    target.git("update-ref", "refs/heads/refs/heads/main", target.tip())
    repo.commit()
    pushed = await world.sync_and_push(repo, target)
    assert outcomes(pushed)[MAIN] is RefOutcome.CONFLICT
    target.delete_branch("refs/heads/main")
    await world.push(repo, target)
    assert target.tip() == repo.tip()


async def test_sha256_repositories_where_both_sides_are(world):
    repo = world.upstream.create("x", commits=3, object_format="sha256")
    repo.tag("v1", annotated=True)
    target = world.target(object_format="sha256")
    world.assert_there(repo, target, await world.sync_and_push(repo, target))
    repo.force_push()
    world.assert_there(repo, target, await world.sync_and_push(repo, target))
    other = world.target("other")
    pushed = await world.push(repo, other)
    assert pushed.failure.kind is FailureKind.PERMISSION_DENIED
    assert "different hashes" in pushed.failure.hint


async def test_the_mirror_may_move_on_while_it_is_pushed(world, monkeypatch):
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync(repo)
    before = repo.public_refs()
    look = world.prober.probe
    looks = []

    async def look_and_sync(spec, mark):
        looks.append(spec.url)
        if len(looks) == 1:
            repo.force_push()
            await world.sync(repo)
        return await look(spec, mark)

    monkeypatch.setattr(world.prober, "probe", look_and_sync)
    pushed = await world.push(repo, target)
    assert target.refs() == before
    assert (pushed.failure, pushed.put) == (None, put_digest(before))
    assert await world.behind(repo, target)
    world.assert_there(repo, target, await world.push(repo, target))


async def test_two_pushes_to_one_target_come_one_after_the_other(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync(repo)
    both = await asyncio.gather(world.push(repo, target), world.push(repo, target))
    assert [p.failure for p in both] == [None, None]
    assert sorted(p.put_total for p in both) == [0, 1]
    world.assert_there(repo, target)


# What is not ours


async def test_refs_of_others_are_left_alone(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    target.git("config", "receive.hideRefs", "refs/merge-requests")
    theirs = target.commit("theirs")
    target.tag("their-tag", at="refs/heads/theirs")
    target.hidden_ref("refs/merge-requests/1/head")
    before = target.refs()
    repo.branch("b")
    pushed = await world.sync_and_push(repo, target)
    assert pushed.failure is None
    assert target.refs() == {**before, **repo.public_refs()}
    repo.delete_branch("b")
    repo.commit()
    pushed = await world.sync_and_push(repo, target, adopt=True)
    assert target.refs() == {**before, **repo.public_refs()}
    assert target.tip("theirs") == theirs
    assert pushed.put == put_digest(repo.public_refs())
    assert not await world.behind(repo, target)


async def test_what_somebody_else_pushed_waits_for_a_person_and_holds_nothing_up(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("b")
    await world.sync_and_push(repo, target)
    theirs = target.commit("b")
    repo.commit("b")
    repo.commit()
    pushed = await world.sync_and_push(repo, target)
    assert pushed.failure.kind is FailureKind.CONFLICT
    assert "refs/heads/b" in pushed.failure.message
    assert outcomes(pushed) == {"refs/heads/b": RefOutcome.CONFLICT, MAIN: RefOutcome.PUT}
    assert (pushed.put_total, pushed.waiting_total) == (1, 1)
    assert (target.tip("b"), target.tip()) == (theirs, repo.tip())
    assert await world.behind(repo, target)
    again = await world.push(repo, target)
    assert (again.failure.kind, target.tip("b")) == (FailureKind.CONFLICT, theirs)
    adopted = await world.push(repo, target, adopt=True)
    world.assert_there(repo, target, adopted)
    assert adopted.refs[0].old == theirs


async def test_a_branch_of_ours_that_others_went_on_with_is_not_deleted(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("b")
    await world.sync_and_push(repo, target)
    theirs = target.commit("b")
    repo.delete_branch("b")
    pushed = await world.sync_and_push(repo, target)
    assert (pushed.failure.kind, target.tip("b")) == (FailureKind.CONFLICT, theirs)


def goes_on(target):
    return target.commit("b")


def goes_back(target):
    target.git("update-ref", "refs/heads/b", "refs/heads/b~1")
    return target.tip("b")


@pytest.mark.parametrize("interfere", [goes_on, goes_back])
async def test_somebody_who_pushes_between_our_look_and_our_push_wins(world, monkeypatch, interfere):
    """Also where git would call ours a mere fast-forward of theirs: only the lease tells."""
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("b")
    await world.sync_and_push(repo, target)
    repo.commit("b")
    repo.commit()
    await world.sync(repo)
    look, theirs = world.prober.probe, []

    async def look_and_interfere(spec, mark):
        seen = await look(spec, mark)
        if not theirs:
            theirs.append(interfere(target))
        return seen

    monkeypatch.setattr(world.prober, "probe", look_and_interfere)
    pushed = await world.push(repo, target)
    assert outcomes(pushed) == {"refs/heads/b": RefOutcome.CONFLICT, MAIN: RefOutcome.PUT}
    assert (target.tip("b"), target.tip()) == (theirs[0], repo.tip())
    assert world.record(repo, target).last.refs["refs/heads/b"] != repo.tip("b")


async def test_somebody_who_makes_a_branch_before_we_do_keeps_it(world, monkeypatch):
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync_and_push(repo, target)
    repo.commit("b")
    await world.sync(repo)
    look, theirs = world.prober.probe, []

    async def look_and_interfere(spec, mark):
        seen = await look(spec, mark)
        if not theirs:
            theirs.append(target.branch("b"))  # ours is ahead of it
        return seen

    monkeypatch.setattr(world.prober, "probe", look_and_interfere)
    pushed = await world.push(repo, target)
    assert outcomes(pushed) == {"refs/heads/b": RefOutcome.CONFLICT}
    assert target.tip("b") == theirs[0]


async def test_a_ref_that_vanishes_before_we_delete_it_does_not_spoil_the_push(world, monkeypatch):
    repo, target = world.upstream.create("x", commits=3), world.target()
    for name in ("b", "c", "d"):
        repo.branch(name)
    await world.sync_and_push(repo, target)
    repo.delete_branch("b")
    repo.delete_branch("c")
    repo.commit()
    await world.sync(repo)
    look, looks = world.prober.probe, []

    async def look_and_interfere(spec, mark):
        seen = await look(spec, mark)
        looks.append(seen)
        if len(looks) == 1:
            target.delete_branch("b")
        return seen

    monkeypatch.setattr(world.prober, "probe", look_and_interfere)
    pushed = await world.push(repo, target)
    world.assert_there(repo, target, pushed)
    gone = dict.fromkeys(("refs/heads/b", "refs/heads/c"), RefOutcome.DELETED)
    assert outcomes(pushed) == {MAIN: RefOutcome.PUT, **gone}


# Who put what: files, digests, crashes


async def test_a_first_push_onto_an_older_copy_of_the_same_goes_forward(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("b")
    repo.tag("v1")
    run_git(repo.path, "push", "-q", str(target.path), "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")
    repo.bulk_commits(5)
    repo.force_push("b")
    await world.sync(repo)
    pushed = await world.push(repo, target)
    assert target.tip() == repo.tip(), "forward"
    assert outcomes(pushed) == {MAIN: RefOutcome.PUT, "refs/heads/b": RefOutcome.CONFLICT}
    assert world.record(repo, target).last.refs.keys() == {MAIN, "refs/tags/v1"}


async def test_a_first_push_knows_what_the_source_threw_away(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    run_git(repo.path, "push", "-q", str(target.path), "refs/heads/*:refs/heads/*")
    await world.sync(repo)
    repo.force_push()
    world.assert_there(repo, target, await world.sync_and_push(repo, target))


async def test_a_first_push_to_somebody_elses_repository_overwrites_nothing(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    target.bulk_commits(2)
    target.commit("b")
    before = target.refs()
    repo.commit("c")
    pushed = await world.sync_and_push(repo, target)
    assert outcomes(pushed) == {MAIN: RefOutcome.CONFLICT, "refs/heads/c": RefOutcome.PUT}
    assert target.refs() == {**before, "refs/heads/c": repo.tip("c")}


@pytest.mark.parametrize("foreign", [False, True])
async def test_a_worker_that_took_the_repo_over_knows_by_the_digest_what_is_ours(world, foreign):
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("b")
    repo.branch("c")
    await world.sync_and_push(repo, target)
    if foreign:
        target.commit("theirs")
    world.forget_file(repo)
    assert await world.behind(repo, target)
    repo.branch("still-here")  # so that the fresh clone has what it overwrites
    repo.git("update-ref", MAIN, repo.git("commit-tree", "-m", "unrelated", repo.git("write-tree")))
    repo.force_push("b")
    if not foreign:
        repo.delete_branch("c")
    await world.mirrors.discard(world.spec(repo).key, for_good=True)  # a fresh clone: nothing kept
    pushed = await world.sync_and_push(repo, target)
    assert pushed.failure is None
    assert {n: o for n, o in target.refs().items() if "theirs" not in n} == repo.public_refs()


@pytest.mark.parametrize("word", ["adopt", "accept"])
async def test_the_only_copy_of_a_history_is_not_overwritten_after_a_takeover(world, word):
    """Upstream was replaced, and a new worker clones what is there now: only the target has the rest."""
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("b")
    repo.branch("c")
    await world.sync_and_push(repo, target)
    before = target.refs()
    repo.git("update-ref", MAIN, repo.git("commit-tree", "-m", "unrelated", repo.git("write-tree")))
    repo.force_push("b")
    repo.delete_branch("c")
    repo.commit("new")
    await world.mirrors.discard(world.spec(repo).key, for_good=True)
    for _ in range(2):  # the first one leaves a file, which is no copy either
        pushed = await world.sync_and_push(repo, target)
        assert pushed.failure.kind is FailureKind.CONFLICT
        assert "nowhere else" in pushed.failure.message
        assert {n for n, o in outcomes(pushed).items() if o is RefOutcome.CONFLICT} == set(before)
        assert target.refs() == {**before, "refs/heads/new": repo.tip("new")}
    world.assert_there(repo, target, await world.push(repo, target, **{word: True}))


async def test_a_worker_that_took_the_repo_over_leaves_alone_what_nobody_told_it_of(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("b")
    repo.branch("same")
    await world.sync_and_push(repo, target)
    theirs = target.commit("b")
    repo.bulk_commits(2)
    repo.delete_branch("same")
    await world.mirrors.discard(world.spec(repo).key, for_good=True)
    pushed = await world.sync_and_push(repo, target)
    assert outcomes(pushed) == {"refs/heads/b": RefOutcome.CONFLICT, MAIN: RefOutcome.PUT}
    assert target.tip("b") == theirs
    assert "refs/heads/same" in target.refs(), "nobody knows that it was ours"


async def test_a_file_that_another_workers_push_made_old_is_not_believed_against_the_digest(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync_and_push(repo, target)
    old = world.record(repo, target)
    repo.force_push()
    await world.sync_and_push(repo, target)
    repo.force_push()
    await world.sync(repo)
    write_put(world.path(repo), TARGET, old)  # as if it had been away meanwhile
    world.assert_there(repo, target, await world.push(repo, target))


async def test_a_file_of_another_address_or_a_damaged_one_is_not_believed(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync_and_push(repo, target)
    other = world.target("other")
    assert await world.behind(repo, other)
    world.assert_there(repo, other, await world.push(repo, other))
    file = world.path(repo) / "evermirror-targets" / str(TARGET)
    file.write_bytes(file.read_bytes().replace(b"put ", b"may ", 1))
    assert world.record(repo, other) is None
    assert await world.behind(repo, other)
    world.assert_there(repo, other, await world.push(repo, other))


class Killed(BaseException):
    """Nothing that the code under test could handle."""


@pytest.mark.parametrize("moved_on", [False, True])
async def test_killed_between_the_push_and_its_record(world, monkeypatch, moved_on):
    """The file with the intents is there, the one with the results is not."""
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("b")
    await world.sync_and_push(repo, target)
    repo.force_push()
    repo.force_push("b")
    await world.sync(repo)
    written = []

    def write_intents_only(path, number, record):
        written.append(record)
        if len(written) > 1:
            raise Killed
        write_put(path, number, record)

    with monkeypatch.context() as patch:
        patch.setattr(push_module, "write_put", write_intents_only)
        with pytest.raises(Killed):
            await world.push(repo, target)
    pushed_then = repo.public_refs()
    assert target.refs() == pushed_then
    assert world.record(repo, target).last.pending == {n: (o,) for n, o in pushed_then.items()}
    assert await world.behind(repo, target)
    if moved_on:
        repo.force_push()
        repo.delete_branch("b")
    world.assert_there(repo, target, await world.sync_and_push(repo, target))


async def test_ended_in_the_middle_of_a_push(world):
    """The target has taken the refs, and its hook has not let git go yet."""
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync_and_push(repo, target)
    wait = target.path / "wait"
    wait.touch()
    world.hook(target, "post-receive", f"while [ -e {wait} ]; do sleep 0.05; done")
    first = repo.force_push()
    await world.sync(repo)
    task = asyncio.create_task(world.push(repo, target))
    while target.tip() != first:
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wait.unlink()
    world.unhook(target)
    repo.force_push()
    world.assert_there(repo, target, await world.sync_and_push(repo, target))


CHILD = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace as Thing
from tests.edge.git.push_world import PushWorld

async def main(root, host, source, target):
    world = PushWorld(Path(root), Thing(host=host, tls=False))
    await world.push(Thing(name="x", url=source), Thing(url=target))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_killed_in_the_middle_of_a_push_while_git_goes_on(world):
    """The next one waits until that git is gone: it has our lock."""
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync_and_push(repo, target)
    wait = target.path / "wait"
    wait.touch()
    world.hook(target, "post-receive", f"while [ -e {wait} ]; do sleep 0.05; done")
    first = repo.force_push()
    await world.sync(repo)
    words = [str(world.root), world.upstream.host, repo.url, target.url]
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, *words)
    while target.tip() != first:
        await asyncio.sleep(0.02)
    child.kill()
    await child.wait()
    repo.force_push()
    await world.sync(repo)
    again = asyncio.create_task(world.push(repo, target))
    await asyncio.sleep(1)
    assert not again.done()
    assert target.tip() == first
    world.unhook(target)
    wait.unlink()
    world.assert_there(repo, target, await again)


async def test_an_answer_that_got_lost_counts_as_what_is_there(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync_and_push(repo, target)
    repo.force_push()
    await world.sync(repo)
    world.hook(target, "post-receive", "exec >&- 2>&-; kill -9 $PPID")
    pushed = await world.push(repo, target)
    world.assert_there(repo, target, pushed)


async def test_a_target_that_says_yes_and_does_otherwise_is_no_success(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync_and_push(repo, target)
    old = target.tip()
    world.hook(target, "post-receive", f"git update-ref {MAIN} {old}")
    repo.commit()
    pushed = await world.sync_and_push(repo, target)
    assert pushed.failure.kind is FailureKind.UNKNOWN
    assert "differs" in pushed.failure.message
    assert pushed.put != put_digest(repo.public_refs())
    assert await world.behind(repo, target)


# Guards


async def test_a_mirror_that_lost_everything_is_not_followed_without_a_person(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    target.git("config", "receive.denyDeleteCurrent", "ignore")
    for i in range(9):
        repo.branch(f"b{i}")
    await world.sync_and_push(repo, target)
    before = target.refs()
    for i in range(8):
        repo.delete_branch(f"b{i}")
    repo.commit()
    pushed = await world.sync_and_push(repo, target)
    assert pushed.failure.kind is FailureKind.CONFLICT
    assert pushed.failure.context["guard"] == "shrunken"
    assert "8 of 10" in pushed.failure.message
    assert pushed.put == put_digest(before)
    assert target.refs() == before
    world.assert_there(repo, target, await world.push(repo, target, accept=True))
    for name in list(repo.public_refs()):
        repo.git("update-ref", "-d", name)
    pushed = await world.sync_and_push(repo, target)
    assert pushed.failure.context["guard"] == "emptied"
    assert target.refs() != {}
    assert (await world.push(repo, target, accept=True)).failure is None
    assert target.refs() == {}


async def test_who_is_out_of_contact_does_not_push(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    pushed = await world.sync_and_push(repo, target, may_push=lambda: False)
    assert pushed.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert target.refs() == {}
    assert pushes(world) == []
    assert world.record(repo, target).last == LastPut({}, {}), "nothing was begun, so nothing is pending"
    target.git("config", "core.fsync", "none")
    repo.bulk_refs(600)
    pushed = await world.sync_and_push(repo, target, may_push=lambda: not target.refs())
    assert pushed.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert 0 < len(target.refs()) < 601
    world.assert_there(repo, target, await world.push(repo, target))


@pytest.mark.timeout(60)
async def test_a_command_that_runs_is_ended_when_contact_is_lost(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    world.hook(target, "pre-receive", "while echo still thinking >&2; do sleep 0.1; done")
    pushed = await world.sync_and_push(repo, target, may_push=lambda: not world.steps and not pushes(world))
    assert pushed.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert "has not heard its coordinator" in pushed.failure.message
    assert "git push" in pushed.failure.git_command
    assert world.record(repo, target).last.pending.keys() == {MAIN}, "it may still come"
    assert target.refs() == {}


async def test_a_push_as_a_whole_ends_in_time(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.bulk_refs(20)
    world.hook(target, "pre-receive", "sleep 0.5")
    slow = world.make_pusher(batch_refs=2, whole_s=1.2)
    pushed = await world.sync_and_push(repo, target, pusher=slow)
    assert pushed.failure.kind in (FailureKind.NETWORK_TIMEOUT, FailureKind.UNKNOWN)
    assert "did not end within" in pushed.failure.message
    assert len(target.refs()) < 10
    world.unhook(target)
    world.assert_there(repo, target, await world.push(repo, target))


def test_the_more_refs_are_there_the_fewer_go_in_one_command():
    def refs_max(there):
        sending = object.__new__(Sending)
        sending.settings, sending.refs_there = PushSettings(batch_refs=500), there
        return sending.refs_max

    assert [refs_max(n) for n in (0, 40_000, 100_000, 10_000_000)] == [500, 500, 200, 10]


async def test_success_is_what_was_seen(world, monkeypatch):
    """The target takes everything, and cannot be looked at afterwards."""
    repo, target = world.upstream.create("x", commits=3), world.target()
    repo.branch("b")
    await world.sync_and_push(repo, target)
    repo.commit()
    repo.delete_branch("b")
    await world.sync(repo)
    look, looks = world.prober.probe, []

    async def fail_afterwards(spec, mark):
        looks.append(spec.url)
        if len(looks) == 2:
            raise FailureError(Failure(FailureKind.NETWORK_TIMEOUT, "gone for a moment"))
        return await look(spec, mark)

    monkeypatch.setattr(world.prober, "probe", fail_afterwards)
    pushed = await world.push(repo, target)
    assert target.refs() == repo.public_refs()
    assert pushed.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert "gone for a moment" in pushed.failure.message
    assert (pushed.put_total, pushed.deleted_total) == (1, 1)
    assert await world.behind(repo, target), "the next one looks"
    world.assert_there(repo, target, await world.push(repo, target))
    assert len(looks) == 3
    assert not await world.behind(repo, target)


async def test_a_stale_look_after_a_push_makes_nothing_foreign(world, monkeypatch):
    """A target with replicas, of which one lags behind."""
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync_and_push(repo, target)
    repo.force_push()
    await world.sync(repo)
    look, looks = world.prober.probe, []

    async def lag_behind(spec, mark):
        looks.append(await look(spec, mark))
        return looks[0] if len(looks) == 2 else looks[-1]

    monkeypatch.setattr(world.prober, "probe", lag_behind)
    pushed = await world.push(repo, target)
    assert "differs" in pushed.failure.message
    repo.force_push()
    world.assert_there(repo, target, await world.sync_and_push(repo, target))


async def test_there_is_no_mirror_yet(world):
    repo, target = world.upstream.create("x", commits=3), world.target()
    assert await world.behind(repo, target)
    pushed = await world.push(repo, target)
    assert pushed.failure.kind is FailureKind.UNKNOWN
    assert pushed.put is None


# Secrets and bounds


async def test_a_secret_appears_nowhere(tmp_path, upstream, monkeypatch):
    secret = "canary/secret+%40"
    world = PushWorld(tmp_path, upstream, [Credential("c", "robot", token=secret)])
    repo, target = upstream.create("x", commits=2), world.target()
    upstream.require_basic("robot", secret, "/target")
    world.hook(target, "update", f"echo the secret is {secret}; exit 1")
    started = []
    run = world.git.run

    async def spy(args, **more):
        started.append((args, more.get("stdin")))
        return await run(args, **more)

    monkeypatch.setattr(world.git, "run", spy)
    pushed = await world.sync_and_push(repo, target, credential="c")
    assert (pushed.failure.kind, pushed.failure.of_refs) == (FailureKind.PERMISSION_DENIED, True)
    assert "the secret is ***" in pushed.refs[0].reason
    assert any("push" in args for args, _ in started)
    assert secret not in repr(started) + repr(pushed)
    for file in (tmp_path / "mirrors").rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()
    await world.prober.close()


async def test_a_failure_says_what_was_tried_where_and_with_what(world):
    repo, target = world.upstream.create("x", commits=2), world.target()
    repo.bulk_refs(300)
    target.git("config", "http.receivepack", "false")
    failure = (await world.sync_and_push(repo, target)).failure
    assert failure.kind is FailureKind.PERMISSION_DENIED
    assert failure.git_command.startswith("git push --porcelain")
    assert "--force-with-lease=refs/heads/main:" in failure.git_command
    assert "(301 refs)" in failure.git_command
    assert len(failure.git_command) < 1000
    assert "403" in failure.stderr
    assert failure.context["source_url"] == repo.url
    assert failure.context["target_url"] == target.url
    assert failure.context["git_version"].startswith("2.")
    assert failure.context["system"].startswith(os.uname().sysname)
    assert failure.context["evermirror"]


def test_porcelain_is_read_to_the_letter():
    told = read_porcelain(
        b"To http://h/x\n"
        b"*\tabc:refs/heads/a\t[new branch]\n"
        b" \tabc:refs/heads/b\tabc..def\n"
        b"+\tabc:refs/heads/c\tabc...def (forced update)\n"
        b"-\t:refs/heads/d\t[deleted]\n"
        b"=\tabc:refs/heads/e\t[up to date]\n"
        b"!\tabc:refs/heads/f\t[rejected] (stale info)\n"
        b"!\tabc:refs/heads/g-\xff\t[remote rejected] (pre-receive hook declined)\n"
        b"!\tabc:refs/heads/h\t[remote rejected] (unpacker error)\n"
        b"!\tabc:refs/heads/i\t[remote failure] (remote failed to report status)\n"
        b"Done\n"
    )
    assert {n for n, t in told.items() if t.ok} == {f"refs/heads/{x}" for x in "abcde"}
    assert told["refs/heads/f"].stale
    assert told["refs/heads/g-\udcff"].reason == "pre-receive hook declined"
    assert not told["refs/heads/g-\udcff"].stale
    assert len(told) == 7, "of the last two nothing definite was said"


def test_the_file_holds_everything_and_survives_a_write_that_fails(tmp_path, monkeypatch):
    last = LastPut(
        {"refs/heads/a b": Oid("a" * 40), "refs/tags/\udcff": Oid("b" * 64)},
        {"refs/heads/c": (Oid("c" * 40), Oid("d" * 40))},
        {"refs/heads/e f\udcff": Refusal(Oid("e" * 40), "hook declined: much too large")},
    )
    record = PutRecord("https://h/x", "refs/heads/sum é", last)
    write_put(tmp_path, TARGET, record)
    assert read_put(tmp_path, TARGET, "https://h/x") == record
    assert read_put(tmp_path, TARGET, "https://h/y") is None

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(put_file.os, "fsync", full)
        with pytest.raises(FailureError) as caught:
            write_put(tmp_path, TARGET, replace(record, head=None))
    assert caught.value.failure.kind is FailureKind.DISK_FULL
    assert read_put(tmp_path, TARGET, "https://h/x") == record
    assert [p.name for p in (tmp_path / "evermirror-targets").iterdir()] == [str(TARGET)]


@pytest.mark.parametrize("cut", [0, 10, 60, -1, -70])
def test_a_file_that_is_not_whole_is_not_believed(tmp_path, cut):
    write_put(tmp_path, TARGET, PutRecord("https://h/x", None, LastPut({MAIN: Oid("a" * 40)})))
    path = put_file.put_path(tmp_path, TARGET)
    path.write_bytes(path.read_bytes()[:cut])
    assert read_put(tmp_path, TARGET, "https://h/x") is None


def test_two_writers_of_one_file_do_not_meet_and_leave_nothing(tmp_path, monkeypatch):
    """One was killed long ago, one is at it still."""
    first, second = (PutRecord("https://h/x", None, LastPut({MAIN: Oid(c * 40)})) for c in "ab")
    fsync = put_file.os.fsync
    turns = []

    def another_one_is_quicker(descriptor):
        turns.append(descriptor)
        if len(turns) == 1:
            write_put(tmp_path, TARGET, second)
        fsync(descriptor)

    monkeypatch.setattr(put_file.os, "fsync", another_one_is_quicker)
    write_put(tmp_path, TARGET, first)
    assert read_put(tmp_path, TARGET, "https://h/x") == first
    left = tmp_path / "evermirror-targets" / f"{TARGET}.abc.new"
    left.write_bytes(b"half of it")
    write_put(tmp_path, TARGET, second)
    assert left.exists(), "somebody may be writing it"
    os.utime(left, (1, 1))
    write_put(tmp_path, TARGET, second)
    assert [p.name for p in left.parent.iterdir()] == [str(TARGET)]


async def test_who_is_cancelled_while_the_file_is_written_keeps_the_lock_until_it_is(world, monkeypatch):
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync(repo)
    writing, go_on, written = threading.Event(), threading.Event(), []

    def slow(path, number, record):
        writing.set()
        go_on.wait(20)
        write_put(path, number, record)
        written.append(record)

    monkeypatch.setattr(push_module, "write_put", slow)
    task = asyncio.create_task(world.push(repo, target))
    await asyncio.to_thread(writing.wait, 20)
    task.cancel()
    await asyncio.wait([task], timeout=0.3)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(written) == 1


@pytest.mark.parametrize("name", ["config", "HEAD", "objects/info/alternates"])
async def test_the_place_to_push_from_is_mended_where_a_crash_left_it_empty(world, name):
    repo, target = world.upstream.create("x", commits=3), world.target()
    await world.sync_and_push(repo, target)
    place = world.path(repo) / "evermirror-targets" / "refless"
    (place / name).write_bytes(b"")
    repo.commit()
    world.assert_there(repo, target, await world.sync_and_push(repo, target))
    shutil.rmtree(place / "refs")
    repo.commit()
    world.assert_there(repo, target, await world.sync_and_push(repo, target))
    assert sorted(p.name for p in place.parent.iterdir()) == [str(TARGET), "refless"]


def test_the_place_to_push_from_is_durable_before_it_is_seen(world, monkeypatch):
    repo = world.path(world.upstream.create("x", commits=1))
    subprocess.run(["git", "init", "-q", "--bare", str(repo)], check=True)
    synced = []

    def note(folder):
        synced.append(sorted(p.name for p in folder.rglob("*") if p.is_file()))
        assert not (folder.parent / "refless").exists()

    monkeypatch.setattr(refless_module, "fsync_tree", note)
    refless_module.refless(repo)
    refless_module.refless(repo)
    assert synced == [["HEAD", "alternates", "config"]]
