"""Malformed objects: one repository for each message id of git's fsck, fetched, judged, allowed, refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from evermirror.core.fsck import BY_ID, DEFECTS, REF_IDS, Verdict
from evermirror.core.maintain.facts import Job
from evermirror.edge.git import damage, environment
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.fsck import FORCED_EVERY_S, FSCK_ID, Complaints, fetch_config, is_unjudged
from evermirror.edge.git.maintain import Maintenance
from evermirror.model.failure import Failure, FailureError, FailureKind
from tests.edge.git.mirror_world import World
from tests.edge.git.short_world import Short
from tests.support.defects import (
    FILE_OID,
    FOLDER_OID,
    NEVER_SAID,
    NOWHERE,
    RECIPES,
    by,
    make_big_files_small,
    modules,
    of_tree,
    submodule,
)
from tests.support.gitrepo import run_git
from tests.support.hostile import sends_pack, twist

NAME = "bad/x"
SLOW = {"gitattributesLarge"}  # a file of 100 MB
GIT_SETTINGS = subprocess.run(
    ["git", "help", "--config-for-completion"], capture_output=True, text=True, check=True
).stdout.split()
KNOWN = {s.removeprefix("fsck.") for s in GIT_SETTINGS if s.startswith("fsck.")} - {"skipList"} - REF_IDS


def hold_small_files_only(monkeypatch):
    """From now on our gits take files of 10 kB for too large to be held in memory."""
    config = (*environment._FIXED_CONFIG, ("core.bigFileThreshold", "10k"))
    monkeypatch.setattr(environment, "_FIXED_CONFIG", config)


def ids(*verdicts: Verdict) -> list[object]:
    """Those that the git here knows, and can be brought to say."""
    named = [d.id for d in DEFECTS if d.verdict in verdicts and d.id in KNOWN - NEVER_SAID]
    return [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in named]


@pytest.fixture
def world(tmp_path, upstream):
    return World(tmp_path, upstream)


def upstream_with(world: World, name: str):
    """An upstream whose newest change has this defect, over a good first one that is mirrored or not."""
    repo = world.upstream.create(NAME, commits=1)
    recipe = RECIPES[name]()
    if BY_ID[name].verdict is Verdict.UNREADABLE:
        twist(world.upstream, sends_pack(recipe.tip, recipe.pack))
    else:
        recipe.put_into(repo)
    return repo


async def refused(sync) -> Failure:
    with pytest.raises(FailureError) as caught:
        await sync
    return caught.value.failure


def fetches(world: World) -> int:
    return sum(b"command=fetch" in request.body for request in world.upstream.requests)


def test_every_message_id_of_this_git_has_a_verdict_and_a_repository():
    assert KNOWN - set(BY_ID) == set()
    assert KNOWN - set(RECIPES) - NEVER_SAID == set()
    assert set(BY_ID) - set(RECIPES) - NEVER_SAID == set()


@pytest.mark.parametrize("name", ids(*Verdict))
def test_git_says_what_the_repository_is_named_for(name, tmp_path):
    """Else the tests below would show nothing."""
    run_git(tmp_path, "init", "--quiet", "--bare", ".")
    if name == "gitmodulesLarge":
        make_big_files_small(tmp_path)
    level = "error" if BY_ID[name].verdict is not Verdict.UNREADABLE else None
    option = f"--strict={name.lower()}={level}" if level else "--strict"
    done = subprocess.run(
        ["git", "index-pack", "--stdin", option],
        cwd=tmp_path,
        input=RECIPES[name]().pack,
        capture_output=True,
    )
    unreadable = b"invalid tag", b"invalid commit", b"badTree: "
    said = (f" {name}: ".encode(), *(unreadable if level is None else ()))
    if name == "gitmodulesMissing":  # left to who called it, which is `git fetch`
        said = (NOWHERE.hex().encode(),)
    assert any(words in done.stderr + done.stdout for words in said), done.stderr


@pytest.mark.parametrize("name", ids(Verdict.ACCEPTED))
async def test_what_is_harmless_is_mirrored_and_never_taken_for_damage(name, world, tmp_path):
    repo = upstream_with(world, name)
    outcome = await world.sync(repo)
    assert outcome.first
    assert world.public(repo) == repo.public_refs()
    run_git(tmp_path, "clone", "--quiet", "--mirror", str(world.path(repo)), "copy.git")
    found = await Maintenance(world.git).run(world.path(repo), Job.FSCK, None)
    assert (found.damaged, found.failure) == (None, None)
    evidence = Failure(FailureKind.UNKNOWN, "seems damaged", corrupt=True)
    with pytest.raises(FailureError):  # an ordinary failure: the mirror is sound
        await damage.confirm_damage(world.git, world.path(repo), evidence)


@pytest.mark.parametrize("name", ids(Verdict.ACCEPTED))
async def test_what_is_harmless_comes_by_the_short_way(name, tmp_path, upstream):
    short = Short(tmp_path, upstream)
    repo = upstream.create(NAME, commits=1)
    await short.sync(repo)
    RECIPES[name]().put_into(repo)
    assert "fetch" not in await short.sync(repo)
    assert short.world.public(repo) == repo.public_refs()


@pytest.mark.parametrize("first", [True, False], ids=["first clone", "fetch"])
@pytest.mark.parametrize("name", ids(Verdict.REFUSED, Verdict.JUDGED))
async def test_what_could_hurt_a_client_is_refused_until_a_person_allows_it(name, first, world, monkeypatch):
    repo = world.upstream.create(NAME, commits=1)
    first = first and name != "gitmodulesLarge"  # of which a clone has a bound of 64 MB
    if not first:
        await world.sync(repo)
    if name == "gitmodulesLarge":
        hold_small_files_only(monkeypatch)
    RECIPES[name]().put_into(repo)
    before = {} if first else world.public(repo)
    failure = await refused(world.sync(repo))
    assert failure.kind is FailureKind.UNKNOWN
    assert failure.message.startswith(f"upstream sends a malformed object: {name}: {BY_ID[name].what}")
    assert f"evermirror allow {world.spec(repo).key} {name} --reason WHY" in failure.hint
    assert failure.git_command.startswith("git ")
    assert not first or not world.path(repo).exists()
    assert first or world.public(repo) == before
    assert not first or not list((world.root / "mirrors" / ".incoming").iterdir())
    world.allow = (name,)
    await world.sync(repo)
    assert world.public(repo) == repo.public_refs()
    found = await Maintenance(world.git).run(world.path(repo), Job.FSCK, None)
    assert (found.damaged, found.failure) == (None, None)


@pytest.mark.parametrize("name", ids(Verdict.REFUSED, Verdict.JUDGED))
async def test_what_could_hurt_a_client_does_not_come_by_the_short_way(name, tmp_path, upstream, monkeypatch):
    short = Short(tmp_path, upstream)
    repo = upstream.create(NAME, commits=1)
    await short.sync(repo)
    if name == "gitmodulesLarge":
        hold_small_files_only(monkeypatch)
    before = short.world.public(repo), sorted(short.world.path(repo).rglob("*.pack"))
    RECIPES[name]().put_into(repo)
    await refused(short.sync(repo))
    assert (short.world.public(repo), sorted(short.world.path(repo).rglob("*.pack"))) == before
    short.world.allow = (name,)
    assert "fetch" not in await short.sync(repo)
    assert short.world.public(repo) == repo.public_refs()


@pytest.mark.parametrize("name", ids(Verdict.UNREADABLE))
async def test_what_git_cannot_read_is_refused_whatever_is_allowed(name, world):
    repo = upstream_with(world, name)
    world.allow = (name,)
    seen = await world.look(world.spec(repo))
    failure = await refused(world.sync(repo, seen=seen))
    assert failure.kind is FailureKind.UNKNOWN  # not a network's trouble, which would be tried for ever
    assert failure.message.startswith("upstream sends a malformed object")
    assert "cannot be allowed" in failure.hint
    asked = fetches(world)
    await refused(world.sync(repo, seen=seen))
    assert fetches(world) == asked


@pytest.mark.parametrize(
    "entry", [b".GIT", b"git~1", b".git ", b".git::$INDEX_ALLOCATION", ".g\u200cit".encode()]
)
async def test_what_another_system_takes_for_a_git_folder_is_refused(entry, world):
    repo = world.upstream.create(NAME, commits=1)
    of_tree(b"40000 " + entry + b"\0" + FOLDER_OID).put_into(repo)
    assert (await refused(world.sync(repo))).context[FSCK_ID] == "hasDotgit"


@pytest.mark.parametrize("mode", [b"100644", b"40000"], ids=["file", "folder"])
async def test_only_a_submodule_may_point_at_nothing(mode, world):
    repo = world.upstream.create(NAME, commits=1)
    seen = await world.look(world.spec(repo))
    recipe = of_tree(mode + b" x\0" + bytes(20))
    twist(world.upstream, sends_pack(recipe.tip, recipe.pack))
    seen = await world.look(world.spec(repo))
    await refused(world.sync(repo, seen=seen))
    assert not world.path(repo).exists()


# The repositories that were refused in real life


REAL = {
    "Behat": lambda: of_tree((b"100644 file\0" + FILE_OID) * 2),
    "KeePassDX": lambda: of_tree(b"120000 lib\0" + FILE_OID + b"40000 lib\0" + FOLDER_OID),
    "dropwizard": lambda: by(b"A U Thor <a@b.c> 1314389115 -0700 -0700"),
    "dropwizard, no date": lambda: by(b"A U Thor <a@b.c> <a@b.c> 1314389115 -0700"),
    "Micro-XRCE-DDS-Agent": lambda: modules(
        submodule(b"fastrtps", b"https:://github.com/eProsima/Fast-RTPS.git")
        + submodule(b"fastcdr", b"https:://github.com/eProsima/Fast-CDR.git")
    ),
    "bytes of Latin-1": lambda: modules(submodule(url=b"https:://h.example/\xe9")),
    "janus": lambda: modules(submodule(b"getafe", b"https://github.com:larssmit/vim-getafe.git")),
    "cardano-ledger": lambda: modules(submodule(url=b"https://github.com/:input-output-hk/mirror.git")),
}


@pytest.mark.parametrize("name", REAL)
async def test_repositories_that_git_clones_are_mirrored(name, world):
    repo = world.upstream.create(NAME, commits=1)
    REAL[name]().put_into(repo)
    await world.sync(repo)
    assert world.public(repo) == repo.public_refs()


# What a .gitmodules says decides


@pytest.mark.parametrize(
    "url",
    [b"-u./payload", b"https::attacker.example/x", b"https:///attacker.example/x", b"../../../:x/y",
     rb'"..\\/evil/x"', b"https:///\xe9",
     b'"https://h.example/%0ahost=github.com"', b'"git://h.example/a\\nhost=github.com"'],
)  # fmt: skip
@pytest.mark.parametrize("name", [b"a", b"z"], ids=["first", "last"])
async def test_one_harmful_url_among_slips_is_found(name, url, world):
    repo = world.upstream.create(NAME, commits=1)
    slip = submodule(b"m", b"https:://github.com/x/y")
    modules(submodule(name, url) + slip if name == b"a" else slip + submodule(name, url)).put_into(repo)
    failure = await refused(world.sync(repo))
    assert failure.context[FSCK_ID] == "gitmodulesUrl"
    assert "git config --blob" in failure.git_command


async def test_every_gitmodules_of_the_history_is_read(world):
    """The newest is good; a harmful one lies below a slip."""
    repo = world.upstream.create(NAME, commits=1)
    for url in (b"-x", b"https:://github.com/x/y", b"https://github.com/x/y"):
        blob = repo.git("hash-object", "-w", "--stdin", stdin=submodule(url=url))
        tree = repo.git("mktree", stdin=f"100644 blob {blob}\t.gitmodules\n")
        commit = repo.git("commit-tree", tree, "-p", repo.tip(), "-m", "more")
        repo.git("update-ref", "refs/heads/main", commit)
    assert "begins with -" in (await refused(world.sync(repo))).message
    world.allow = ("gitmodulesUrl",)
    await world.sync(repo)


async def test_more_of_them_than_are_read_are_refused(world, monkeypatch):
    monkeypatch.setattr("evermirror.edge.git.fsck.MODULES_MAX", 1)
    repo = world.upstream.create(NAME, commits=1)
    tree = b"".join(
        b"40000 %b\0" % name + bytes.fromhex(repo.git("mktree", stdin=f"100644 blob {blob}\t.gitmodules\n"))
        for name, blob in (
            (name, repo.git("hash-object", "-w", "--stdin", stdin=submodule(name, b"https:://h.example/x")))
            for name in (b"a", b"b")
        )
    )
    of_tree(tree).put_into(repo)
    assert "more than 1 files" in (await refused(world.sync(repo))).message


async def test_nothing_that_was_not_judged_outlives_a_crash(world, monkeypatch):
    """Killed between git's complaint and our judgement, with the tips staged already."""
    repo = world.upstream.create(NAME, commits=1)
    await world.sync(repo)
    RECIPES["gitmodulesUrl"]().put_into(repo)

    async def killed(self, git):
        raise KeyboardInterrupt

    def left_as_it_is(*args):
        pass

    with monkeypatch.context() as crash:
        crash.setattr(Complaints, "judge", killed)
        crash.setattr(Complaints, "over", left_as_it_is)
        crash.setattr("evermirror.edge.git.transfer.folder.remove_files", left_as_it_is)
        with pytest.raises(KeyboardInterrupt):
            await world.sync(repo)
    assert "refs/evermirror/staging/" in run_git(world.path(repo), "for-each-ref")
    failure = await refused(world.sync(repo))
    assert failure.context[FSCK_ID] == "gitmodulesUrl"
    RECIPES["gitmodulesParse"]().put_into(repo)
    await world.sync(repo)
    assert world.public(repo) == repo.public_refs()


def test_upstreams_words_hide_no_complaint(tmp_path):
    complaints = Complaints(tmp_path)
    oid = "ab" * 20
    for piece in (b"remote: " + b"x" * 100_000 + b"\r", f"warning: object {oid}: gitmodu".encode()):
        complaints.feed(piece)
    complaints.feed(b"lesUrl: disallowed submodule url: -x\n")
    assert complaints.modules == {oid}
    assert is_unjudged(tmp_path)
    complaints.feed(b"warning: gitmodulesUrl in words of a later git\n")
    assert complaints.unclear


@pytest.mark.parametrize("piece_bytes", [97, 4096, 1_000_000])
@pytest.mark.parametrize(
    "before",
    [b"", b"object %b: gitmodu", b"object ", b"object %b (", b"object %b (%b", b"object %b: gitmodulesUrl: "],
)
def test_upstreams_words_on_the_same_line_hide_no_complaint(before, piece_bytes, tmp_path):
    """git's index-pack complains while another git is in the middle of a line of upstream's."""
    harmless, harmful = b"ab" * 20, b"cd" * 20
    flood = b"remote: " + b"object %b: gitmodulesUrl: " % harmless * 200
    said = flood + before.replace(b"%b", harmless)
    said += (
        b"warning: object %b: gitmodulesUrl: disallowed submodule url: -x): badName: \nremote: \n" % harmful
    )
    complaints = Complaints(tmp_path)
    for start in range(0, len(said), piece_bytes):
        complaints.feed(said[start : start + piece_bytes])
    assert harmful.decode() in complaints.modules or complaints.unclear
    assert is_unjudged(tmp_path)


def test_a_flood_of_complaints_is_bounded(tmp_path):
    complaints = Complaints(tmp_path)
    for number in range(3000):
        complaints.feed(b"remote: object %040x: gitmodulesUrl: x\n" % number)
    assert complaints.unclear
    assert len(complaints.modules) <= 1001


def test_what_waits_for_a_judgement_is_known_after_a_power_cut(tmp_path, monkeypatch):
    durable = []
    monkeypatch.setattr(os, "fsync", lambda fd: durable.append(os.readlink(f"/proc/self/fd/{fd}")))
    Complaints(tmp_path).feed(b"error: object %b: hasDotgit: contains '.git'\n" % (b"ab" * 20))
    assert durable == [str(tmp_path / "evermirror-unjudged"), str(tmp_path)]


# No transfer that is known to be in vain


async def test_a_refused_pack_is_not_sent_again_before_something_changed(world):
    repo = world.upstream.create(NAME, commits=1)
    RECIPES["hasDotgit"]().put_into(repo)
    failure = await refused(world.sync(repo))
    asked = fetches(world)
    assert asked > 0
    for again in (world, World(world.root, world.upstream)):  # also after a restart
        assert await refused(again.sync(repo)) == failure
    assert fetches(world) == asked
    await refused(world.sync(repo, force=True))  # somebody asks for it
    assert fetches(world) == asked + 1
    repo.tag("v1")  # upstream's refs changed
    await refused(world.sync(repo))
    assert fetches(world) == asked + 2
    world.allow = ("hasDot",)  # what is allowed changed
    await refused(world.sync(repo))
    assert fetches(world) == asked + 3
    world.allow = ("hasDotgit",)
    await world.sync(repo)
    assert not list((world.root / "mirrors" / ".refused").iterdir())


async def test_who_forces_a_refused_pack_has_one_try_an_hour(tmp_path, upstream):
    now = [1000.0]
    world = World(tmp_path, upstream, clock=lambda: now[0])
    repo = upstream.create(NAME, commits=1)
    RECIPES["hasDotgit"]().put_into(repo)
    failure = await refused(world.sync(repo))
    asked = fetches(world)
    for hours in (0.0, 1.0):
        now[0] += hours * FORCED_EVERY_S
        asked += 1
        for _ in range(3):
            again = await refused(world.sync(repo, force=True))
            assert replace(again, stderr=failure.stderr) == failure  # git's progress tells how fast it was
            assert fetches(world) == asked
    repo.tag("v1")  # another refusal, and another try
    await refused(world.sync(repo))
    await refused(world.sync(repo, force=True))
    assert fetches(world) == asked + 2


async def test_another_git_tries_again_what_the_last_one_refused(world, tmp_path):
    repo = world.upstream.create(NAME, commits=1)
    RECIPES["hasDotgit"]().put_into(repo)
    await refused(world.sync(repo))
    asked = fetches(world)
    older = git_that(tmp_path, 'case "$*" in --version) echo git version 2.39.0; exit;; esac')
    world.mirrors._git = World(world.root, world.upstream).git
    world.mirrors._git._binary = older
    await refused(world.sync(repo))
    assert fetches(world) == asked + 1


# Each git is told what it knows


def git_that(folder: Path, script: str) -> str:
    """A git that does otherwise in one thing."""
    file = folder / "own-git"
    file.write_text(f'#!/bin/sh\n{script}\nexec {shutil.which("git")} "$@"\n')
    file.chmod(0o755)
    return str(file)


LISTS = 'case "$*" in "help --config-for-completion") {}; exit;; esac'


async def told(folder: Path, binary: str) -> dict[str, str]:
    config = await fetch_config(Git(GitSettings(folder / "data", binary=binary)), ("newerThanUs",))
    return {key.removeprefix("fetch.fsck."): value for key, value in config}


async def test_git_is_told_only_ids_that_it_knows(tmp_path):
    here = await told(tmp_path, "git")
    assert here["badDate"] == here["duplicateEntries"] == "ignore"
    assert here["gitmodulesUrl"] == "warn"
    assert set(here) <= KNOWN
    assert not {n for n in here if BY_ID[n].verdict in (Verdict.REFUSED, Verdict.UNREADABLE)}


async def test_a_newer_git_is_told_what_was_allowed_of_its_own(tmp_path):
    newer = "echo fsck.badDate; echo fsck.newerThanUs; echo fsck.notEvenAllowed; echo fsck.badRefName"
    assert await told(tmp_path, git_that(tmp_path, LISTS.format(newer))) == {
        "badDate": "ignore",
        "newerThanUs": "ignore",
    }


async def test_a_git_that_lists_nothing_is_told_nothing(tmp_path):
    assert await told(tmp_path, git_that(tmp_path, LISTS.format("echo core.bare"))) == {}


async def test_a_git_that_was_replaced_is_asked_again(tmp_path):
    binary = git_that(tmp_path, LISTS.format("echo fsck.badDate"))
    git = Git(GitSettings(tmp_path / "data", binary=binary))
    assert (await git.installed()).fsck_ids == {"badDate"}
    git_that(tmp_path, LISTS.format("echo fsck.badDate; echo fsck.badEmail"))
    os.utime(binary, (1, 1))
    assert (await git.installed()).fsck_ids == {"badDate", "badEmail"}
