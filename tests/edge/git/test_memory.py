"""Small packs that unpack to much: git's memory is bounded, and what needs more is refused with a reason."""

from __future__ import annotations

import asyncio
import hashlib
import struct
import subprocess
import zlib

import pytest

from evermirror.edge.git import transfer
from evermirror.edge.git.classify import CAUSE, MEMORY, OBJECT_TOO_LARGE, SHORTAGE, classify
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import OBJECT_BYTES_AT_ONCE, GitSettings
from evermirror.edge.git.fsck import MEMORY_REFUSAL_S
from evermirror.edge.git.serve import GitServer
from evermirror.model.failure import FailureError, FailureKind
from tests.edge.git.mirror_world import World
from tests.support.gitrepo import run_git

MB = 1_000_000
MEMORY_BYTES = 72 * MB  # of one git process: a small repository takes 30
BOMB_BYTES = 80 * MB  # more than git streams, and more than fits
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def commit(repo, tree, message=b"x\n"):
    """Make it main's tip."""
    who = b"A <a@example.com> 1700000000 +0000"
    raw = b"tree %b\nauthor %b\ncommitter %b\n\n%b" % (tree.encode(), who, who, message)
    oid = repo.git("hash-object", "-w", "-t", "commit", "--stdin", stdin=raw).strip()
    repo.git("update-ref", "refs/heads/main", oid)


def with_blobs(repo, *blobs):
    lines = "".join(f"100644 blob {blob}\tfile{n}\n" for n, blob in enumerate(blobs))
    commit(repo, repo.git("mktree", stdin=lines).strip())


def blob_bomb(repo):
    """80 kB of pack."""
    with_blobs(repo, repo.git("hash-object", "-w", "--stdin", stdin=bytes(BOMB_BYTES)).strip())
    repo.git("repack", "-adq")


def commit_bomb(repo):
    """Commits, trees and tags are never streamed."""
    repo.git("mktree", stdin="")
    commit(repo, EMPTY_TREE, b"x" * BOMB_BYTES)
    repo.git("repack", "-adq")


def delta_bomb(repo):
    """A delta of 1 kB that copies the same 64 kB again and again."""
    base = bytes(range(256)) * 256
    base_oid = hashlib.sha1(b"blob %d\0%b" % (len(base), base), usedforsecurity=False)
    times = BOMB_BYTES // len(base)
    delta = _varint(len(base)) + _varint(len(base) * times) + b"\x80" * times  # copy 64 KiB from 0
    data = b"PACK" + struct.pack(">II", 2, 2)
    data += _head(3, len(base)) + zlib.compress(base)
    data += _head(7, len(delta)) + base_oid.digest() + zlib.compress(delta)
    pack = data + hashlib.sha1(data, usedforsecurity=False).digest()
    words = ["git", "index-pack", "--stdin"]
    subprocess.run(words, cwd=repo.path, input=pack, check=True, capture_output=True)
    found = repo.git("cat-file", "--batch-check", "--batch-all-objects").splitlines()
    large = next(line.split()[0] for line in found if line.endswith(f" {len(base) * times}"))
    with_blobs(repo, base_oid.hexdigest(), large)


def _varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _head(kind, size):
    first, rest = kind << 4 | size & 15, size >> 4
    return bytes([first | 0x80]) + _varint(rest) if rest else bytes([first])


async def test_blobs_of_zeros_are_mirrored_and_served_within_the_memory_of_a_small_repository(
    tmp_path, upstream
):
    world = World(tmp_path, upstream, memory_bytes=MEMORY_BYTES, object_bytes=16 * MB)
    repos = [upstream.create(f"zeros{n}", commits=0) for n in range(2)]
    blob_bomb(repos[0])
    for repo in repos[1:]:
        run_git(repo.path, "fetch", "-q", str(repos[0].path), "+refs/*:refs/*")
    await asyncio.gather(*(world.sync(repo) for repo in repos))
    server = GitServer(world.git)
    for repo in repos:
        assert world.public(repo) == repo.public_refs()
        body = b"0011command=fetch0001000fno-progress" + f"0032want {repo.tip()}\n0009done\n0000".encode()
        sent = [chunk async for chunk in server.upload_pack(world.path(repo), _once(body), "version=2")]
        assert 50_000 < sum(map(len, sent)) < 1 * MB
    for words in (["fsck", "--full"], ["repack", "-adq"], ["rev-list", "--objects", "--all"]):
        await world.git.run(words, repo=world.path(repos[0]))


async def _once(body):
    yield body


@pytest.mark.parametrize("bomb", [commit_bomb, delta_bomb])
@pytest.mark.parametrize(
    ("bounds", "cause", "setting"),
    [
        ({"memory_bytes": 4000 * MB, "object_bytes": 32 * MB}, OBJECT_TOO_LARGE, "limits.git_object"),
        ({"memory_bytes": MEMORY_BYTES}, MEMORY, "limits.git_memory"),
    ],
)
async def test_a_bomb_is_refused_with_its_reason_and_not_fetched_again_before_something_changes(
    tmp_path, upstream, bomb, bounds, cause, setting
):
    repo = upstream.create("bomb", commits=0)
    bomb(repo)
    world = World(tmp_path, upstream, **bounds)
    with pytest.raises(FailureError) as first:
        await world.sync(repo)
    failure = first.value.failure
    assert (failure.kind, failure.context[CAUSE], failure.corrupt) == (FailureKind.UNKNOWN, cause, False)
    assert setting in failure.hint
    assert not world.path(repo).exists()
    assert not list((tmp_path / "mirrors/.incoming").iterdir())
    before = len(_fetches(upstream))
    with pytest.raises(FailureError) as second:
        await world.sync(repo)
    assert second.value.failure.message == failure.message
    assert len(_fetches(upstream)) == before
    generous = World(tmp_path, upstream, memory_bytes=4000 * MB, object_bytes=1000 * MB)
    await generous.sync(repo)
    assert generous.public(repo) == repo.public_refs()


def _fetches(upstream):
    return [r for r in upstream.requests if b"command=fetch" in r.body]


async def test_a_pack_that_claims_two_thousand_million_objects_is_refused(tmp_path):
    """git makes room for all of them before it reads the first."""
    git = Git(GitSettings(tmp_path, memory_bytes=4000 * MB, object_bytes=1000 * MB))
    run_git(tmp_path, "init", "-q", "--bare", "x.git")
    pack = b"PACK" + struct.pack(">II", 2, 0x7FFFFFF0) + bytes(100)
    for env, cause in ((git.settings.taking_in, OBJECT_TOO_LARGE), ({}, MEMORY)):
        with pytest.raises(FailureError) as error:
            await git.run(["index-pack", "--stdin"], repo=tmp_path / "x.git", stdin=pack, env=env)
        assert error.value.failure.context[CAUSE] == cause


async def test_a_mirror_whose_check_lacks_memory_is_not_called_damaged(tmp_path, upstream):
    repo = upstream.create("bomb", commits=0)
    commit_bomb(repo)
    world = World(tmp_path, upstream)
    await world.sync(repo)
    inode = world.path(repo).stat().st_ino
    poor = World(tmp_path, upstream, memory_bytes=MEMORY_BYTES)
    repo.git("update-ref", "refs/heads/other", repo.tip())
    with pytest.raises(FailureError):
        await poor.sync(repo, force=True)
    assert world.path(repo).stat().st_ino == inode
    assert not (tmp_path / "mirrors/.trash").exists() or not list((tmp_path / "mirrors/.trash").iterdir())


async def test_packs_with_large_objects_are_taken_in_one_at_a_time_and_each_with_one_thread(
    tmp_path, upstream, monkeypatch
):
    """Each thread of index-pack holds a delta's base and result, and each fetch has an index-pack."""
    repos = [upstream.create(f"large{n}", commits=0) for n in range(3)]
    for repo in repos:
        delta_bomb(repo)
    world = World(tmp_path, upstream, object_bytes=1000 * MB)
    run, limits, large, most = world.git.run, [], 0, 0

    async def watched(args, **more):
        nonlocal large, most
        if args[0] != "fetch":
            return await run(args, **more)
        limit = int(more["env"]["GIT_ALLOC_LIMIT"])
        limits.append(limit)
        assert ("pack.threads", "1") in more["config"]
        large += limit > BOMB_BYTES
        most = max(most, large)
        try:
            return await run(args, **more)
        finally:
            large -= limit > BOMB_BYTES

    monkeypatch.setattr(world.git, "run", watched)
    await asyncio.gather(*(world.sync(repo) for repo in repos))
    assert sorted(limits) == [OBJECT_BYTES_AT_ONCE] * 3 + [1000 * MB] * 3
    assert most == 1
    for repo in repos:
        assert world.public(repo) == repo.public_refs()


async def test_who_waits_long_for_a_turn_with_a_large_pack_tries_again_later(tmp_path, upstream, monkeypatch):
    repo = upstream.create("large", commits=0)
    delta_bomb(repo)
    world = World(tmp_path, upstream, object_bytes=1000 * MB)
    monkeypatch.setattr(transfer, "LARGE_WAIT_S", 0.01)
    async with world.git.large_pack:
        with pytest.raises(FailureError, match="waited"):
            await world.sync(repo)
    await world.sync(repo)
    assert world.public(repo) == repo.public_refs()


async def test_a_refusal_for_lack_of_memory_ends_after_a_day(tmp_path, upstream):
    """It may have been the machine that had none left, and not the pack that needs too much."""
    repo = upstream.create("bomb", commits=0)
    delta_bomb(repo)
    now = 1_800_000_000.0
    world = World(tmp_path, upstream, memory_bytes=MEMORY_BYTES, clock=lambda: now)
    for passed, comes in ((0.0, True), (MEMORY_REFUSAL_S - 1, False), (MEMORY_REFUSAL_S, True)):
        now = 1_800_000_000.0 + passed
        before = len(_fetches(upstream))
        with pytest.raises(FailureError) as error:
            await world.sync(repo)
        assert error.value.failure.context[CAUSE] == MEMORY
        assert "a day has passed" in error.value.failure.hint
        assert (len(_fetches(upstream)) > before) is comes


@pytest.mark.parametrize(
    "words",
    [
        "error: cannot fork() for index-pack: Cannot allocate memory",
        "error: cannot fork() for index-pack: Resource temporarily unavailable",
        "fatal: unable to create thread: Resource temporarily unavailable",
        "error: cannot create async thread: Resource temporarily unavailable",
    ],
)
async def test_a_shortage_of_processes_or_threads_refuses_nothing(tmp_path, upstream, monkeypatch, words):
    repo = upstream.create("honest", commits=1)
    world = World(tmp_path, upstream)
    run, short = world.git.run, True

    async def scarce(args, **more):
        if args[0] == "fetch" and short:
            said = f"{words}\nfatal: fetch-pack: unable to fork off index-pack\n"
            raise FailureError(classify(128, said))
        return await run(args, **more)

    monkeypatch.setattr(world.git, "run", scarce)
    with pytest.raises(FailureError) as error:
        await world.sync(repo)
    assert error.value.failure.context[CAUSE] == SHORTAGE
    short = False
    await world.sync(repo)
    assert world.public(repo) == repo.public_refs()
