"""A small change comes by the short way: as checked as by ``git fetch``, and by that where it does not."""

from __future__ import annotations

import re
import subprocess

import pytest

from evermirror.edge.git.environment import PACK_BYTES_MAX
from evermirror.edge.git.keep import HeldBack
from evermirror.edge.git.pktline import encode
from evermirror.edge.git.short_fetch import FRAMES_MAX, HAVES_MAX
from evermirror.edge.relay.ask import HolderFailed
from evermirror.errors import EvermirrorError
from evermirror.model.failure import FailureError
from tests.edge.git.short_world import Short
from tests.support.gitrepo import read_refs, run_git


@pytest.fixture
def short(tmp_path, upstream) -> Short:
    return Short(tmp_path, upstream)


SHORT = ["index-pack", "rev-list"]


async def test_a_push_takes_two_processes_and_tells_what_is_new(short, upstream):
    repo = upstream.create("x")
    await short.sync(repo)
    repo.bulk_commits(4, gap_s=0)
    assert await short.sync(repo) == SHORT
    short.world.assert_equal(repo)
    assert short.outcome.commits == 4
    assert short.outcome.received_bytes > 0
    assert not short.outcome.kept
    assert not any("staging" in name for name in read_refs(short.world.path(repo)))


async def test_several_branches_and_tags_new_and_moved(short, upstream):
    repo = upstream.create("x")
    await short.sync(repo)
    repo.commit("main")
    repo.branch("more")
    repo.commit("more")
    repo.tag("v1", annotated=True)
    assert await short.sync(repo) == [*SHORT, "update-ref"]
    short.world.assert_equal(repo)


async def test_a_rewrite_is_seen_as_one_and_its_old_tip_kept(short, upstream):
    repo = upstream.create("x")
    await short.sync(repo)
    old = repo.tip()
    repo.force_push()
    commands = await short.sync(repo)
    assert commands[:2] == SHORT
    short.world.assert_equal(repo)
    assert [tip.old for tip in short.outcome.kept] == [old]


async def test_commits_with_a_wrong_clock_are_asked_for_twice(short, upstream):
    repo = upstream.create("x")
    await short.sync(repo)
    repo.bulk_commits(2, when=1_000_000_000)  # long before what is here
    assert await short.sync(repo) == SHORT
    assert len(short.asked) == 2
    assert b"done" not in short.asked[0]
    assert b"0009done\n" in short.asked[1]
    short.world.assert_equal(repo)


async def test_haves_are_bounded_and_those_of_changed_refs_come_first(short, upstream):
    repo = upstream.create("x", commits=3 * HAVES_MAX)
    for n, oid in enumerate(repo.git("rev-list", "main").split()[: 2 * HAVES_MAX]):
        repo.branch(f"b{n:04}", oid)
    await short.sync(repo)
    old = repo.tip("b0100")
    repo.commit("b0100")
    assert await short.sync(repo) == SHORT
    haves = re.findall(rb"have ([0-9a-f]{40})", short.asked[0])
    assert len(haves) == HAVES_MAX
    assert haves[0].decode() == old


async def test_sha256_is_said(short, upstream):
    repo = upstream.create("x", object_format="sha256")
    await short.sync(repo)
    repo.commit()
    assert await short.sync(repo) == SHORT
    short.world.assert_equal(repo)


# Where git itself has to do it


def cut(answer):
    return answer[:-30]


def without_end(answer):
    return answer.removesuffix(b"0000")


def nothing_in_common(answer):
    return b"0014acknowledgments\n0008NAK\n0000"


def shallow(answer):
    return answer.replace(b"0001000dpackfile\n", b"00010011shallow-info\n0001000dpackfile\n")


def an_error(answer):
    return b"0014ERR go away now\n"


def too_large(answer):
    return answer + bytes(PACK_BYTES_MAX)


def flipped(answer):
    middle = answer.index(b"PACK") + 40
    return answer[:middle] + bytes([answer[middle] ^ 0x40]) + answer[middle + 1 :]


def away(answer):
    raise EvermirrorError("no line")


def reset(answer):
    raise ConnectionResetError("by its peer")


def failed(answer):
    raise HolderFailed("git failed there")


def many_frames(answer):
    return answer.replace(b"packfile\n", b"packfile\n" + encode(b"\2.") * FRAMES_MAX)


def many_in_common(answer):
    acks = b"".join(encode(b"ACK %040x\n" % n) for n in range(HAVES_MAX))
    return answer.replace(b"acknowledgments\n", b"acknowledgments\n" + acks)


def no_frames(answer):
    return b"<html>"


FAULTS = [cut, without_end, nothing_in_common, shallow, an_error, too_large, flipped, away, no_frames]
FAULTS += [reset, failed, many_frames, many_in_common]


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_is_odd_is_left_to_git(short, upstream, fault):
    repo = upstream.create("x")
    await short.sync(repo)
    repo.commit()
    short.change = fault
    assert "fetch" in await short.sync(repo)
    short.world.assert_equal(repo)
    packs = list((short.world.path(repo) / "objects/pack").glob("*.pack"))
    assert len(packs) == 2, "of what came by the short way nothing stays"


def pack_of(repo, *oids):
    """Just these objects."""
    listed = "".join(f"{oid}\n" for oid in oids).encode()
    command = ["git", "pack-objects", "--stdout", "-q"]
    return subprocess.run(command, cwd=repo.path, input=listed, capture_output=True, check=True).stdout


def with_pack(pack):
    return b"0014acknowledgments\n000aready\n0001000dpackfile\n%04x\1%b0000" % (len(pack) + 5, pack)


async def test_a_pack_that_lacks_an_object_is_not_believed(short, upstream):
    repo = upstream.create("x")
    await short.sync(repo)
    repo.commit()
    short.change = lambda answer: with_pack(
        pack_of(repo, repo.tip())
    )  # without the tree that the commit needs
    commands = await short.sync(repo)
    assert commands[0] == "index-pack"
    assert "fetch" in commands
    short.world.assert_equal(repo)


async def test_nor_one_whose_lack_only_the_history_shows(short, upstream):
    repo = upstream.create("x")
    await short.sync(repo)
    tree = repo.git("rev-parse", "main^{tree}")
    first = repo.commit()
    second = repo.git("commit-tree", tree, "-p", first, "-m", "as it was")
    repo.git("update-ref", "refs/heads/main", second)
    here = short.world.path(repo)
    run_git(here, "unpack-objects", "-q", stdin=pack_of(repo, first))
    assert run_git(here, "cat-file", "-t", first) == "commit", "it is here, and what it needs is not"
    short.change = lambda answer: with_pack(pack_of(repo, second))
    commands = await short.sync(repo)
    assert commands[:3] == ["index-pack", "rev-list", "fetch"]
    short.world.assert_equal(repo)


async def test_a_malformed_object_is_refused_on_both_ways(short, upstream):
    repo = upstream.create("x")
    await short.sync(repo)
    blob = repo.git("hash-object", "-w", "--stdin", stdin="x")
    tree = repo.git("mktree", stdin=f"100644 blob {blob}\t.git\n")
    bad = repo.git("commit-tree", tree, "-p", "main", "-m", "x")
    repo.git("update-ref", "refs/heads/main", bad)
    with pytest.raises(FailureError, match="malformed object"):
        await short.sync(repo)
    assert short.ran[0] == "index-pack"
    assert read_refs(short.world.path(repo))["refs/heads/main"] != bad


async def test_force_asks_git_for_everything_again(short, upstream):
    repo = upstream.create("x")
    repo.branch("other")
    await short.sync(repo)
    repo.commit()
    assert "fetch" in await short.sync(repo, force=True)
    assert short.asked == []


async def test_what_a_guard_holds_back_is_staged_and_need_not_come_again(short, upstream):
    repo = upstream.create("x")
    await short.sync(repo)
    fresh = upstream.create("unrelated", commits=0)
    fresh.commit(files={"other": "history"}, message="unrelated")
    repo.git("fetch", "--quiet", str(fresh.path), "+refs/heads/main:refs/heads/main")
    with pytest.raises(HeldBack):
        await short.sync(repo)
    staged = [name for name in read_refs(short.world.path(repo)) if "staging" in name]
    assert staged == [f"refs/evermirror/staging/{repo.tip()}"]
    commands = await short.sync(repo, accept=True)
    assert "fetch" not in commands
    assert "index-pack" not in commands
    short.world.assert_equal(repo)
