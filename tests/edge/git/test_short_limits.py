"""What the short way costs at most, and what it leaves behind when it is cut off."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from evermirror.edge.git import folder, refs, short_fetch
from evermirror.edge.git.short_fetch import AVOIDED_S, ShortWay
from evermirror.edge.relay.ask import HolderAway, HolderLacks, HolderRefused
from evermirror.model.failure import FailureError
from tests.edge.git.short_world import Short
from tests.support.gitrepo import read_refs

SHORT = ["index-pack", "rev-list"]


@pytest.fixture
def short(tmp_path, upstream) -> Short:
    return Short(tmp_path, upstream)


@pytest.mark.parametrize(("place", "name"), [(refs, "move_refs"), (folder, "clean_leftovers")])
async def test_a_cancelled_sync_keeps_the_lock_until_its_thread_has_written(
    short, upstream, monkeypatch, place, name
):
    repo = upstream.create("x")
    await short.sync(repo)
    repo.commit()
    begun, ended = threading.Event(), threading.Event()
    real = getattr(place, name)

    def slow(*args):
        begun.set()
        time.sleep(0.3)
        done = real(*args)
        ended.set()
        return done

    monkeypatch.setattr(place, name, slow)
    job = asyncio.create_task(short.sync(repo))
    while not begun.is_set():
        await asyncio.sleep(0.005)
    for _ in range(2):  # once more changes nothing
        job.cancel()
        await asyncio.sleep(0.01)
    async with short.world.mirrors.locked(short.world.spec(repo).key):
        assert ended.is_set(), "nobody else has the lock while it writes"
    with pytest.raises(asyncio.CancelledError):
        await job
    monkeypatch.undo()
    await short.sync(repo)
    short.world.assert_equal(repo)


async def test_an_answer_that_drips_is_given_up_and_git_asks(short, upstream, monkeypatch):
    monkeypatch.setattr(short_fetch, "ASK_S_MAX", 0.2)
    repo = upstream.create("x")
    await short.sync(repo)
    repo.commit()
    short.drips = True
    async with asyncio.timeout(20):
        assert "fetch" in await short.sync(repo)
    short.world.assert_equal(repo)


async def test_a_long_answer_is_read_in_a_thread(short, upstream, monkeypatch):
    monkeypatch.setattr(short_fetch, "PARSE_APART_BYTES", 10)
    real, threads = short_fetch._read, []

    def read(answer):
        threads.append(threading.current_thread())
        return real(answer)

    monkeypatch.setattr(short_fetch, "_read", read)
    repo = upstream.create("x")
    await short.sync(repo)
    repo.commit()
    assert await short.sync(repo) == SHORT
    assert threads
    assert threading.main_thread() not in threads


async def test_no_paths_are_printed_that_nobody_reads(short, upstream):
    repo = upstream.create("x")
    await short.sync(repo)
    repo.commit(files={"a-long-path/of-a-file": "x"})
    assert await short.sync(repo) == SHORT
    listing = short.completed[-1][2]
    assert repo.git("rev-parse", "main:a-long-path/of-a-file").encode() in listing
    assert b"a-long-path" not in listing


async def test_a_listing_that_is_too_long_is_left_to_git(short, upstream, monkeypatch):
    monkeypatch.setattr(short_fetch, "LISTING_BYTES_MAX", 100)
    repo = upstream.create("x")
    await short.sync(repo)
    repo.commit()
    assert (await short.sync(repo))[:3] == [*SHORT, "fetch"]
    short.world.assert_equal(repo)
    assert len(list((short.world.path(repo) / "objects/pack").glob("*.pack"))) == 2


async def test_what_was_in_vain_twice_in_a_row_is_not_asked_for_an_hour(short, upstream):
    now = 0.0
    short.world.mirrors._short = ShortWay(lambda: now)
    repo = upstream.create("x")
    await short.sync(repo)

    async def asked(change):
        repo.commit()
        short.change = change
        commands = await short.sync(repo)
        return len(short.asked), "fetch" in commands

    def well(answer):
        return answer

    def badly(answer):
        return b"<html>"

    assert await asked(badly) == (1, True)
    assert short.outcome.received_bytes > len(b"<html>")
    assert await asked(well) == (1, False)  # once is no rule
    assert await asked(badly) == (1, True)
    assert await asked(badly) == (1, True)
    assert await asked(well) == (0, True)
    now = AVOIDED_S + 1
    assert await asked(well) == (1, False)
    assert await asked(badly) == (1, True)
    assert await asked(well) == (1, False)


@pytest.mark.parametrize("said", [HolderAway("busy", 30.0), HolderRefused("no"), HolderLacks("gone")])
async def test_a_holder_that_says_no_is_not_asked_again_by_git(short, upstream, said):
    repo = upstream.create("x")
    await short.sync(repo)
    repo.commit()

    def refuse(answer):
        raise said

    short.change = refuse
    with pytest.raises(type(said)):
        await short.sync(repo)
    assert len(short.asked) == 1
    assert short.ran == []


async def test_a_rename_that_fails_leaves_no_lock_and_what_came_need_not_come_again(
    short, upstream, monkeypatch
):
    repo = upstream.create("x")
    names = ["main", *(f"b{n}" for n in range(4))]
    for name in names[1:]:
        repo.branch(name)
    await short.sync(repo)
    for name in names:
        repo.commit(name)
    real, renamed = os.rename, []

    def rename(old, new):
        if os.fsencode(old).endswith(b".lock"):
            renamed.append(new)
            if len(renamed) == 3:
                raise OSError(5, "Input/output error")
        real(old, new)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(FailureError):
        await short.sync(repo)
    assert len(renamed) == 3
    path = short.world.path(repo)
    assert not list(path.rglob("*.lock"))
    tips = {repo.tip(name) for name in names}
    staged = {oid for name, oid in read_refs(path).items() if "staging" in name}
    assert staged == tips
    args, more, _ = short.completed[-1]
    assert args[0] == "update-ref"
    assert more["keep_fds"], "git keeps the lock for as long as it writes"
    monkeypatch.undo()
    commands = await short.sync(repo)
    assert "fetch" not in commands
    assert "index-pack" not in commands
    short.world.assert_equal(repo)


async def test_its_progress_is_told(short, upstream):
    repo = upstream.create("x")
    await short.sync(repo)
    repo.commit()
    steps = []
    assert await short.sync(repo, on_progress=steps.append) == SHORT
    assert [step.phase for step in steps] == ["receiving", "checking"]
    assert all(step.received_bytes > 0 for step in steps)
