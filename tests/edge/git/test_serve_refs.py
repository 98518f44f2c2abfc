"""What is answered from files is what git answers, byte for byte."""

from __future__ import annotations

import asyncio
import random
import subprocess
import threading
import time

import pytest

from evermirror.core.keep.names import KEPT
from evermirror.edge.git import serve
from evermirror.edge.git.incoming import MIRROR_CONFIG
from evermirror.edge.git.lsrefs import request_body
from evermirror.edge.git.pktline import encode
from evermirror.edge.git.ref_files import SERVED_BYTES_MAX, read_ref_files
from evermirror.edge.git.refs import OWN_NAMESPACE
from evermirror.edge.git.serve import GitServer, ServeSettings
from evermirror.edge.git.serve_refs import list_refs
from evermirror.edge.git.serve_tips import TipsReader
from tests.edge.git.mirror_world import World
from tests.support.gitrepo import clean_git_env, run_git

PUBLIC = ("refs/heads/", "refs/tags/")


@pytest.fixture(params=["sha1", "sha256"])
def repo(request, upstream):
    made = upstream.create("x", commits=3, object_format=request.param)
    with (made.path / "config").open("a") as config:
        config.write(MIRROR_CONFIG)
    return made


def format_of(repo):
    return "sha256" if len(repo.tip()) == 64 else "sha1"


def by_git(repo, request, *, kept=False):
    shown = [("uploadpack.hideRefs", f"!{KEPT.rstrip('/')}")] if kept else []
    config = [("uploadpack.hideRefs", OWN_NAMESPACE.rstrip("/")), *shown]
    env = {**clean_git_env(repo.path), "GIT_PROTOCOL": "version=2", "GIT_CONFIG_COUNT": str(len(config))}
    for n, (key, value) in enumerate(config):
        env |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
    argv = ["git", "upload-pack", "--strict", "--stateless-rpc", str(repo.path)]
    return subprocess.run(argv, env=env, input=request, capture_output=True, check=True).stdout


def from_files(repo, request, *, kept=False):
    return list_refs(repo.path, request, OWN_NAMESPACE, (KEPT,) if kept else ())


@pytest.mark.parametrize("seed", range(6))
def test_as_git_says_it(repo, seed):
    chance = random.Random(seed)
    names = [
        "refs/heads/main",
        "refs/heads/ä",
        "refs/heads/a/b",
        "refs/heads/a-b",
        "refs/tags/v1",
        "refs/tags/v2",
    ]
    names += ["refs/pull/1/head", KEPT + "20250101T000000Z/heads/main", OWN_NAMESPACE + "staging/x"]
    for name in chance.sample(names, chance.randint(1, len(names))):
        repo.git("update-ref", name, "main")
        if chance.random() < 0.3:
            repo.git("pack-refs", "--all", "--prune")
    if chance.random() < 0.5:
        repo.tag("annotated", annotated=True)
    if chance.random() < 0.3:
        repo.set_head("gone")
    for kept in (False, True):
        for prefixes in (PUBLIC, (*PUBLIC, KEPT), (), ("refs/",), ("refs/heads/a",)):
            request = request_body(prefixes, "evermirror/1", format_of(repo))
            told = from_files(repo, request, kept=kept)
            assert told is not None
            assert told == by_git(repo, request, kept=kept)


def test_without_a_prefix_all_is_told_and_without_the_word_no_symref(repo):
    said = f"object-format={format_of(repo)}\n".encode()
    request = encode(b"command=ls-refs\n") + encode(said) + b"00010000"
    assert from_files(repo, request) == by_git(repo, request)
    assert b"symref" not in from_files(repo, request)


@pytest.mark.parametrize("word", [b"peel\n", b"unborn\n", b"what-is-new\n"])
def test_words_that_need_more_than_files_are_gits(repo, word):
    request = request_body(PUBLIC, "a", format_of(repo)).removesuffix(b"0000") + encode(word) + b"0000"
    assert from_files(repo, request) is None


def test_a_question_that_git_would_not_answer_is_gits(repo):
    other = "sha1" if format_of(repo) == "sha256" else "sha256"
    request = request_body(PUBLIC, "a", format_of(repo))
    assert from_files(repo, request) is not None
    assert from_files(repo, request_body(PUBLIC, "a", other)) is None
    assert from_files(repo, request + b"0000") is None
    assert from_files(repo, request[:-6]) is None
    assert from_files(repo, request.replace(b"command=ls-refs", b"command=ls-wrong")[:-1]) is None


def _hides(repo):
    repo.configure([("transfer.hideRefs", "refs/heads/secret")])


def _includes(repo):
    repo.configure([("include.path", "other")])


def _hides_another(repo):
    config = repo.path / "config"
    config.write_text(config.read_text().replace("= refs/evermirror\n", "= refs/heads/secret\n"))


def _hides_one_that_looks_like_ours(repo):
    config = repo.path / "config"
    config.write_text(config.read_text().replace("= refs/evermirror\n", "= refs/Evermirror\n"))


def _impossible_name(repo):
    (repo.path / "refs" / "heads" / "a..b").write_text(repo.tip() + "\n")


def _more_than_we_read(repo):
    lines = (f"{repo.tip()} refs/tags/t{n:07}\n" for n in range(SERVED_BYTES_MAX // 58))
    (repo.path / "packed-refs").write_text("".join(lines))


def _no_branch(repo):
    (repo.path / "HEAD").write_text(repo.tip() + "\n")


def _symbolic(repo):
    repo.git("symbolic-ref", "refs/heads/other", "refs/heads/main")


NOT_PLAIN = [_hides, _hides_another, _hides_one_that_looks_like_ours, _includes, _no_branch, _symbolic]
NOT_PLAIN += [_impossible_name, _more_than_we_read]


@pytest.mark.parametrize("odd", NOT_PLAIN)
def test_a_mirror_that_is_not_plain_is_gits(repo, odd):
    request = request_body(PUBLIC, "a", format_of(repo))
    assert from_files(repo, request) is not None
    odd(repo)
    assert from_files(repo, request) is None


async def test_the_server_starts_no_git_for_it_and_sees_each_change(tmp_path, upstream, monkeypatch):
    world = World(tmp_path, upstream)
    origin = upstream.create("x")
    await world.sync(origin)
    path = world.path(origin)
    server = GitServer(world.git, ServeSettings())
    request = request_body(PUBLIC, "a")

    def no_git(ask):
        raise AssertionError("git was started")

    monkeypatch.setattr(server, "_argv", no_git)

    async def asked():
        async def body():
            yield request

        return b"".join([piece async for piece in server.upload_pack(path, body(), "version=2")])

    assert origin.tip().encode() in await asked()
    for _ in range(3):
        tip = run_git(path, "commit-tree", "main^{tree}", "-p", "main", "-m", "next")
        run_git(path, "update-ref", "refs/heads/main", tip)
        assert tip.encode() in await asked()


async def test_who_asks_much_waits_in_line(tmp_path, upstream, monkeypatch):
    """Each prefix is another question, and no answer to it is in memory."""
    world = World(tmp_path, upstream)
    origin = upstream.create("x")
    await world.sync(origin)
    path = world.path(origin)
    server = GitServer(world.git, ServeSettings(packs_max=2))
    inside, most, guard = 0, 0, threading.Lock()

    def slow(*args):
        nonlocal inside, most
        with guard:
            inside += 1
            most = max(most, inside)
        time.sleep(0.02)
        with guard:
            inside -= 1
        return list_refs(*args)

    monkeypatch.setattr(serve, "list_refs", slow)

    async def asked(n):
        async def body():
            yield request_body((f"refs/heads/m{n}", "refs/heads/main"), "a")

        return b"".join(
            [piece async for piece in server.upload_pack(path, body(), "version=2", client=f"{n}")]
        )

    for settled in (False, True):  # without a fingerprint, and with one
        if settled:
            await asyncio.sleep(0.3)
        most = 0
        assert len(set(await asyncio.gather(*(asked(n) for n in range(8))))) == 1
        assert most == 2


async def test_of_many_refs_git_tells_who_may_ask_for_what(tmp_path, upstream):
    world = World(tmp_path, upstream)
    repo = upstream.create("x")
    ran, run = [], world.git.run

    async def noted(args, **more):
        ran.append(args[0])
        return await run(args, **more)

    world.git.run = noted
    reader = TipsReader(world.git)
    few = await reader.read(repo.path, None)
    assert ran == []
    _more_than_we_read(repo)
    assert await reader.read(repo.path, None) != few
    assert ran == ["for-each-ref"]


def test_loose_files_are_bounded_as_packed_ones_are(repo):
    for n in range(10):
        repo.git("update-ref", f"refs/heads/b{n}", "main")
    assert len(read_ref_files(repo.path, 2_000)) == 11
    assert read_ref_files(repo.path, 300) is None
