"""Whatever upstream throws away is still here, and whatever looks like an accident there is not followed."""

from __future__ import annotations

import asyncio
import random
import subprocess

import pytest

from evermirror.core.keep.guard import GuardReason
from evermirror.core.keep.names import KEPT, parse_kept
from evermirror.edge.git import ancestry
from evermirror.edge.git.keep import HeldBack
from evermirror.edge.git.refs import LocalRefs, plan_refs, transaction_input, with_kept
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.kept import Why
from evermirror.model.refs import Oid, RefSnapshot
from evermirror.model.repo import Mode
from tests.edge.git.mirror_world import World
from tests.support.gitrepo import read_refs, run_git

DAY = 86_400.0


@pytest.fixture
def world(tmp_path, upstream):
    return World(tmp_path, upstream)


async def history(world, repo):
    return await world.mirrors.history(world.spec(repo).key)


def told(tips):
    return {(tip.ref, tip.why, tip.old, tip.new) for tip in tips}


# Keeping


async def test_rewritten_and_deleted_tips_are_kept_and_plain_pushes_keep_nothing(world):
    repo = world.upstream.create("x", commits=3)
    gone = repo.branch("gone")
    repo.commit("other")
    old_tag = repo.tag("v1")
    await world.sync(repo)
    repo.commit()
    repo.commit("other")
    repo.commit("new")
    assert (await world.sync(repo)).kept == ()
    old_main = repo.tip()
    new_main = repo.force_push()
    repo.delete_branch("gone")
    new_tag = repo.tag("v1", annotated=True)
    outcome = await world.sync(repo)
    world.assert_equal(repo)
    assert told(outcome.kept) == {
        ("refs/heads/main", Why.REWRITTEN, old_main, new_main),
        ("refs/heads/gone", Why.DELETED, gone, None),
        ("refs/tags/v1", Why.REWRITTEN, old_tag, new_tag),
    }
    assert set(await history(world, repo)) == set(outcome.kept)
    assert await world.mirrors.history(world.spec(world.upstream.create("none")).key) == ()


async def test_a_branch_that_moved_on_by_a_merge_or_to_where_another_was_is_no_rewrite(world):
    repo = world.upstream.create("x", commits=2)
    repo.branch("side")
    repo.branch("behind")
    repo.commit("side")
    repo.commit()
    await world.sync(repo)
    tree = repo.git("rev-parse", "refs/heads/main^{tree}")
    merge = repo.git("commit-tree", "-p", "refs/heads/side", "-p", "refs/heads/main", "-m", "m", tree)
    repo.git("update-ref", "refs/heads/main", merge)
    repo.git("update-ref", "refs/heads/behind", repo.tip("side"))
    assert (await world.sync(repo)).kept == ()
    repo.git("update-ref", "refs/heads/behind", f"{repo.tip()}^2")  # no descendant of what it was
    assert [tip.ref for tip in (await world.sync(repo)).kept] == ["refs/heads/behind"]


async def test_kept_tips_are_hidden_from_those_who_clone(world, tmp_path):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    old = repo.tip()
    repo.force_push()
    await world.sync(repo)
    listed = run_git(tmp_path, "ls-remote", str(world.path(repo)))
    assert "kept" not in listed
    assert old not in listed
    assert await world.mirrors.read_refs(world.spec(repo).key) == await world.look(world.spec(repo))


async def test_odd_and_long_names_and_folders_in_each_others_way_are_kept(world):
    repo = world.upstream.create("x", commits=1)
    first = ["a", "-rf", "%2F", "日本", "+x/=y", "l/" + "n" * 240, "d/" + "日" * 78, "x.y", "w/x/y/z"]
    for name in first:
        repo.git("update-ref", "--stdin", stdin=f"create refs/heads/{name} {repo.tip()}\n")
    await world.sync(repo)
    tips = dict.fromkeys((f"refs/heads/{name}" for name in first), repo.tip())
    for name in first:
        repo.git("update-ref", "--stdin", stdin=f"delete refs/heads/{name}\n")
    for name in ("a/b", "w/x"):
        repo.commit(name)
    await world.sync(repo, accept=True)
    world.assert_equal(repo)
    for name in ("a/b", "w/x"):
        tips[f"refs/heads/{name}"] = repo.tip(name)
        repo.delete_branch(name)
    await world.sync(repo)
    assert {tip.ref: tip.old for tip in await history(world, repo)} == tips


async def test_hundreds_of_changes_at_once_are_kept_and_packed(world):
    repo = world.upstream.create("x", commits=1)
    repo.bulk_refs(300)
    repo.commit()
    repo.bulk_refs(50, "refs/tags/t")
    await world.sync(repo)
    before = repo.public_refs()
    repo.git("update-ref", "--stdin", stdin="".join(f"delete {n}\n" for n in before if "bulk" in n))
    repo.force_push()
    outcome = await world.sync(repo, accept=True)
    world.assert_equal(repo)
    assert len(outcome.kept) == 301
    assert set(await history(world, repo)) == set(outcome.kept)


def test_old_tips_are_kept_in_the_transaction_that_takes_them_away_and_before_it_does():
    a, b = Oid("a" * 40), Oid("b" * 40)
    names = ("refs/heads/gone", "refs/heads/new", "refs/heads/old")
    local = LocalRefs(RefSnapshot({names[0]: a, names[2]: a}))
    plan = plan_refs(local, RefSnapshot({names[1]: b, names[2]: b}))
    plan = with_kept(plan, local, {names[2]}, 1_700_000_000.0)
    first, second = transaction_input(plan).decode().split("start\0")[1:]
    for text, command in ((first, "delete refs/heads/gone"), (second, "update refs/heads/old")):
        assert 0 <= text.index(f"create {KEPT}") < text.index(command)


async def test_a_crash_between_the_two_transactions_loses_nothing(world, monkeypatch):
    repo = world.upstream.create("x", commits=2)
    gone = repo.branch("a")
    await world.sync(repo)
    old = repo.tip()
    repo.delete_branch("a")
    repo.commit("a/b")
    new = repo.force_push()

    def only_the_first(plan, **more):
        return transaction_input(plan, **more).partition(b"commit\0")[0] + b"commit\0"

    class Killed(Exception):
        pass

    with monkeypatch.context() as patch:
        patch.setattr("evermirror.edge.git.refs.transaction_input", only_the_first)
        patch.setattr("evermirror.edge.git.mirror.folder.size_of", lambda _: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            await world.sync(repo)
    assert told(await history(world, repo)) == {("refs/heads/a", Why.DELETED, gone, None)}
    assert read_refs(world.path(repo))["refs/heads/main"] == old
    await world.sync(repo)
    world.assert_equal(repo)
    assert told(await history(world, repo)) == {
        ("refs/heads/a", Why.DELETED, gone, None),
        ("refs/heads/main", Why.REWRITTEN, old, new),
    }


class Forge:
    """Random pushes, many at once, with everything it ever advertised written down."""

    def __init__(self, repo, seed):
        self.repo = repo
        self.chance = random.Random(seed)
        self.refs: dict[str, str] = {}
        self.serial = 0
        self.thrown_away = 0

    def change(self, count):
        stream: list[str] = []
        names = [f"refs/heads/b{i}" for i in range(30)] + [f"refs/heads/d/{i}" for i in range(10)]
        names += ["refs/heads/d/1/x"] * 3 + [f"refs/tags/t{i}" for i in range(10)]
        commands = []
        touched: set[str] = set()
        for _ in range(count):
            name = self.chance.choice(names)
            if name in touched or any(n.startswith(name + "/") or name.startswith(n + "/") for n in touched):
                continue
            touched.add(name)
            for other in [n for n in self.refs if n.startswith(name + "/") or name.startswith(n + "/")]:
                commands.append(f"delete {other}\n")
                del self.refs[other]
                self.thrown_away += 1
                touched.add(other)
            old = self.refs.get(name)
            if old is not None and self.chance.random() < 0.3:
                commands.append(f"delete {name}\n")
                del self.refs[name]
                self.thrown_away += 1
                continue
            forward = old is not None and self.chance.random() < 0.2
            self.thrown_away += old is not None and not forward
            self.serial += 1
            parent = old if forward else self.base
            stream.append(
                f"commit refs/made/{self.serial}\ncommitter A <a@b> {1_700_000_000 + self.serial} +0000\n"
                f"data 6\ncommit\nfrom {parent}\n"
                f"M 100644 inline f{self.serial}\ndata 2\n{self.serial % 100:02}\n\n"
            )
            commands.append((name, self.serial))
            self.refs[name] = f"refs/made/{self.serial}"
        self.repo.git("fast-import", "--quiet", "--force", stdin="".join(stream) + "done\n")
        made = {n: o for n, o in self.repo.refs().items() if n.startswith("refs/made/")}
        self.refs = {n: made.get(o, o) for n, o in self.refs.items()}
        deletes = "".join(c for c in commands if isinstance(c, str))
        self.repo.git("update-ref", "--stdin", stdin=deletes)
        updates = "".join(
            f"update {c[0]} {made[f'refs/made/{c[1]}']}\n" for c in commands if isinstance(c, tuple)
        )
        self.repo.git("update-ref", "--stdin", stdin=updates + "".join(f"delete {n}\n" for n in made))


@pytest.mark.slow
async def test_a_thousand_random_rewrites_and_deletions_upstream_lose_not_one_commit(world, tmp_path):
    repo = world.upstream.create("x", commits=2)
    forge = Forge(repo, seed=20261115)
    forge.base = repo.tip()
    ever: set[str] = set()
    rounds = 0
    while forge.thrown_away < 1_000:
        forge.change(40)
        ever |= set(repo.public_refs().values())
        await world.sync(repo, accept=True)
        rounds += 1
    world.assert_equal(repo)
    assert rounds < 100
    key = world.spec(repo).key
    kept = await history(world, repo)
    assert len(kept) >= 1_000
    names = []
    for tip in kept:
        if len(names) % 100 == 0:
            run_git(world.path(repo), "pack-refs", "--all")  # as maintenance would: keeps the test short
        names.append(await world.mirrors.restore(key, tip.name))
    assert len(set(names)) == len(kept)
    clone = tmp_path / "clone.git"
    run_git(tmp_path, "clone", "--quiet", "--mirror", "--no-local", str(world.path(repo)), str(clone))
    here = set(run_git(clone, "rev-list", "--all").split())
    assert ever <= here
    assert not any(name.startswith("refs/evermirror") for name in read_refs(clone))
    repo.commit()
    await world.sync(repo)
    restored = {n for n in read_refs(world.path(repo)) if n.startswith("refs/restored/")}
    assert restored == set(names), "following upstream leaves restored refs alone"


async def test_expiry_forgets_only_what_is_old_enough(world, tmp_path):
    now = [1_700_000_000.0]
    world = World(tmp_path, world.upstream, clock=lambda: now[0])
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    olds = []
    for _ in range(3):
        olds.append(repo.tip())
        repo.force_push()
        now[0] += 10 * DAY
        await world.sync(repo)
    key = world.spec(repo).key
    assert [tip.old for tip in await history(world, repo)] == olds[::-1]
    assert await world.mirrors.expire_kept(key, now[0], None) == 0
    assert await world.mirrors.expire_kept(key, now[0], 90 * DAY) == 0
    assert await world.mirrors.expire_kept(key, now[0], 10 * DAY) == 1
    assert [tip.old for tip in await history(world, repo)] == olds[:0:-1]
    assert await world.mirrors.expire_kept(key, now[0] + DAY, 0.0) == 2
    assert await history(world, repo) == ()


async def test_syncs_at_the_same_moment_keep_under_different_names(world, tmp_path):
    world = World(tmp_path, world.upstream, clock=lambda: 1_700_000_000.0)
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    for _ in range(3):
        repo.branch("b")
        await world.sync(repo)
        repo.delete_branch("b")
        await world.sync(repo)
    assert len(await history(world, repo)) == 3


# Restoring


async def test_a_kept_tip_is_restored_under_a_name_of_its_own_or_a_given_one(world):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    old = repo.tip()
    repo.force_push()
    tip = (await world.sync(repo)).kept[0]
    key = world.spec(repo).key
    name = await world.mirrors.restore(key, tip.name)
    assert name.startswith("refs/restored/heads/main-20")
    assert await world.mirrors.restore(key, tip.name) == name, "once more changes nothing"
    assert await world.mirrors.restore(key, tip.name, "saved/it") == "refs/restored/saved/it"
    refs = read_refs(world.path(repo))
    assert refs[name] == refs["refs/restored/saved/it"] == old
    assert old in run_git(world.root, "ls-remote", str(world.path(repo)), name)


async def test_what_cannot_be_restored_is_refused_in_words(world):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    tips = []
    for _ in range(2):
        repo.force_push()
        tips += (await world.sync(repo)).kept
    key = world.spec(repo).key
    await world.mirrors.restore(key, tips[0].name, "a")
    absent = tips[0].name.replace("rewritten", "deleted")
    for name in ("refs/heads/main", "--help", "", "refs/evermirror/kept/", absent, tips[0].name + "x", "\0"):
        with pytest.raises(FailureError, match="no such kept tip") as caught:
            await world.mirrors.restore(key, name)
        assert caught.value.failure.kind is FailureKind.NOT_FOUND
    for name in ("a", "a/b"):
        with pytest.raises(FailureError, match="is there already"):
            await world.mirrors.restore(key, tips[1].name, name)
    for name in ("", "..", "a..b", "a b", "x.lock", "/x", "x/", "a\nb", "a\0b", "~", "a:b", "@{"):
        with pytest.raises(FailureError, match="no name for a ref"):
            await world.mirrors.restore(key, tips[1].name, name)
    with pytest.raises(FailureError, match="no mirror"):
        await world.mirrors.restore(world.spec(world.upstream.create("none")).key, tips[0].name)
    assert [n for n in read_refs(world.path(repo)) if n.startswith("refs/restored/")] == ["refs/restored/a"]


# Append-only


async def test_append_only_removes_nothing_public(world, tmp_path):
    world = World(tmp_path, world.upstream, mode=Mode.APPEND_ONLY)
    repo = world.upstream.create("x", commits=2)
    gone = repo.branch("gone")
    in_the_way = repo.branch("a")
    old_tag = repo.tag("v1")
    await world.sync(repo)
    old = repo.tip()
    repo.force_push()
    repo.delete_branch("gone")
    repo.delete_branch("a")
    repo.commit("a/b")
    repo.tag("v1", annotated=True)
    outcome = await world.sync(repo)
    assert outcome.after == await world.look(world.spec(repo))
    here = world.public(repo)
    archived = {o for n, o in here.items() if n.startswith("refs/archive/")}
    assert archived == {old, in_the_way, old_tag}
    followed = {n: o for n, o in here.items() if not n.startswith("refs/archive/")}
    assert followed == {**repo.public_refs(), "refs/heads/gone": gone}
    again = await world.sync(repo)
    assert (again.changes, again.kept) == ((), ())
    for name in repo.public_refs():
        repo.git("update-ref", "-d", name)
    await world.sync(repo)  # an empty upstream empties nothing here
    assert world.public(repo) == here
    assert (await world.mirrors.read_refs(world.spec(repo).key)).head == "refs/heads/main"


# Guards


@pytest.mark.parametrize("left", [0, 4])
async def test_an_emptied_or_shrunken_upstream_is_followed_after_repeated_sight_only(world, tmp_path, left):
    now = [1_700_000_000.0]
    world = World(tmp_path, world.upstream, clock=lambda: now[0])
    repo = world.upstream.create("x", commits=1)
    repo.bulk_refs(9)
    await world.sync(repo)
    before = world.public(repo)
    repo.git("update-ref", "--stdin", stdin="".join(f"delete {n}\n" for n in list(before)[left:]))
    memory = None
    for sighting in (1, 2):
        with pytest.raises(HeldBack) as caught:
            await world.sync(repo, guard=memory)
        memory = caught.value.memory
        assert memory.reason is (GuardReason.SHRUNKEN if left else GuardReason.EMPTIED)
        assert memory.sightings == sighting
        assert caught.value.failure.kind is FailureKind.CONFLICT
        assert "upstream" in caught.value.failure.message
        assert "evermirror confirm" in caught.value.failure.hint
        assert world.public(repo) == before
        now[0] += DAY / 2
    outcome = await world.sync(repo, guard=memory)
    assert world.public(repo) == repo.public_refs()
    assert {tip.ref: tip.old for tip in outcome.kept} == dict(list(before.items())[left:])


async def test_an_unrelated_history_is_not_followed_until_a_person_says_so(world):
    repo = world.upstream.create("x", commits=2)
    repo.branch("other")
    await world.sync(repo)
    before, old = world.public(repo), repo.tip()
    repo.git("update-ref", "refs/heads/main", orphan(repo))
    memory = None
    for _ in range(3):
        with pytest.raises(HeldBack, match="unrelated") as caught:
            await world.sync(repo, guard=memory)
        memory = caught.value.memory
    assert memory.sightings == 3
    assert {n: o for n, o in world.public(repo).items() if "staging" not in n} == before
    await world.sync(repo, guard=memory, accept=True)
    world.assert_equal(repo)
    assert old in {tip.old for tip in await history(world, repo)}


def orphan(repo):
    tree = repo.git("rev-parse", "refs/heads/main^{tree}")
    return repo.git("commit-tree", "-m", "mine now", tree)


async def test_a_taken_over_name_is_noticed_also_where_the_default_branch_has_another_name(world):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    repo.git("update-ref", "refs/heads/trunk", orphan(repo))
    repo.set_head("trunk")
    repo.delete_branch("main")
    with pytest.raises(HeldBack, match="unrelated"):
        await world.sync(repo)


async def test_renaming_the_default_branch_or_pointing_head_at_a_page_branch_is_no_taking_over(world):
    repo = world.upstream.create("x", commits=2)
    repo.git("update-ref", "refs/heads/pages", orphan(repo))
    await world.sync(repo)
    repo.branch("trunk")
    repo.set_head("trunk")
    repo.delete_branch("main")
    repo.commit("trunk")
    await world.sync(repo)
    world.assert_equal(repo)
    repo.set_head("pages")
    await world.sync(repo)
    world.assert_equal(repo)


# Damage


def damage(pack):
    pack.chmod(0o644)
    data = bytearray(pack.read_bytes())
    data[20:-40] = bytes(len(data) - 60)
    pack.write_bytes(data)


@pytest.mark.parametrize("also_kept", [False, True])
async def test_what_was_kept_outlives_a_damaged_mirror_as_far_as_it_can_be_read(world, also_kept):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    packs = world.path(repo) / "objects" / "pack"
    first = set(packs.glob("*.pack"))
    saved = repo.commit("saved")  # a pack of its own
    await world.sync(repo)
    second = set(packs.glob("*.pack")) - first
    repo.delete_branch("saved")
    lost = repo.commit("lost")
    await world.sync(repo)
    third = set(packs.glob("*.pack")) - first - second
    assert len(second) == len(third) == 1
    repo.delete_branch("lost")
    await world.sync(repo)
    kept = await history(world, repo)
    key = world.spec(repo).key
    restored = await world.mirrors.restore(key, kept[-1].name)
    damage(third.pop())
    if also_kept:
        damage(first.pop())  # what upstream still has is brought by the clone
    outcome = await world.sync(repo, force=True)
    assert not outcome.first
    here = {tip.old for tip in await history(world, repo)}
    assert saved in here
    assert lost not in here
    assert read_refs(world.path(repo))[restored] == saved
    assert run_git(world.path(repo), "fsck", "--full") == ""
    assert not (world.path(repo) / "objects" / "info" / "alternates").exists()


@pytest.mark.parametrize("missing", ["HEAD", "config"])
async def test_kept_tips_and_a_rewrite_meanwhile_survive_where_a_part_is_missing(world, missing):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    olds = {repo.tip()}
    repo.force_push()
    await world.sync(repo)
    olds.add(repo.tip())
    repo.force_push()
    (world.path(repo) / missing).unlink()
    await world.sync(repo)
    world.assert_equal(repo)
    assert {tip.old for tip in await history(world, repo)} == olds


async def test_a_damaged_append_only_mirror_keeps_what_upstream_no_longer_has(world, tmp_path):
    world = World(tmp_path, world.upstream, mode=Mode.APPEND_ONLY)
    repo = world.upstream.create("x", commits=2)
    repo.commit("gone")
    await world.sync(repo)
    repo.delete_branch("gone")
    repo.force_push()
    await world.sync(repo)
    before = world.public(repo)
    (world.path(repo) / "HEAD").unlink()
    await world.sync(repo)
    assert world.public(repo) == before


async def test_the_guards_watch_over_a_damaged_mirror_too(world):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    before = world.public(repo)
    (world.path(repo) / "HEAD").unlink()
    repo.git("update-ref", "refs/heads/main", orphan(repo))
    with pytest.raises(HeldBack, match="unrelated"):
        await world.sync(repo)
    assert world.public(repo) == before
    assert not list((world.root / "mirrors" / ".incoming").iterdir())
    (world.path(repo) / "HEAD").unlink(missing_ok=True)
    repo.delete_branch("main")
    with pytest.raises(HeldBack, match="empty"):
        await world.sync(repo)
    assert world.public(repo) == before


async def test_a_commit_that_only_kept_tips_lead_to_is_not_upstreams_any_more(world):
    repo = world.upstream.create("x", commits=3)
    repo.tag("v1", annotated=True)
    repo.branch("side")
    gone = [repo.tip("main"), repo.commit(branch="side")]
    await world.sync(repo)
    key, there = world.spec(repo).key, [*gone, repo.git("rev-parse", "v1"), repo.git("rev-parse", "main~2")]
    assert [await world.mirrors.has_commit(key, oid) for oid in there] == [True] * 4
    repo.git("tag", "-d", "v1")
    repo.delete_branch("side")
    new = repo.force_push()
    outcome = await world.sync(repo)
    assert outcome.kept
    assert await world.mirrors.has_commit(key, new)
    assert [await world.mirrors.has_commit(key, oid) for oid in gone] == [False, False]


async def test_where_git_takes_too_long_a_commit_that_is_here_counts(world, monkeypatch):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    monkeypatch.setattr(ancestry, "PUBLIC_TIMEOUT_S", 0.0)
    assert await world.mirrors.has_commit(world.spec(repo).key, repo.tip())
    assert not await world.mirrors.has_commit(world.spec(repo).key, "a" * 40)


# Trash


async def test_a_discarded_mirror_comes_back_the_newest_one_and_only_where_none_is(world):
    repo = world.upstream.create("x", commits=1)
    key = world.spec(repo).key
    assert not await world.mirrors.undiscard(key)
    for _ in range(2):
        await world.sync(repo)
        assert await world.mirrors.discard(key)
        repo.commit()
    (newest, older) = await world.mirrors.trashed()
    assert (newest.key, older.key, newest.damaged) == (key, key, False)
    assert await world.mirrors.undiscard(key)
    assert (await world.mirrors.trashed()) == [older]
    assert await world.mirrors.has_commit(key, repo.git("rev-parse", "main~1"))
    assert not await world.mirrors.undiscard(key), "a mirror is there"
    await world.sync(repo)
    world.assert_equal(repo)


async def test_a_damaged_copy_is_not_brought_back_and_a_stranger_in_the_trash_is_not_told(world):
    repo = world.upstream.create("x", commits=2)
    await world.sync(repo)
    (world.path(repo) / "HEAD").unlink()
    await world.sync(repo)
    (world.root / "mirrors" / ".trash" / "what is this").mkdir()
    assert [item.damaged for item in await world.mirrors.trashed()] == [True]
    await asyncio.to_thread(subprocess.run, ["rm", "-rf", str(world.path(repo))], check=True)
    assert not await world.mirrors.undiscard(world.spec(repo).key)


def test_a_kept_name_is_read_back_from_a_listing():
    name = f"{KEPT}20261115T203000123Z/deleted-gone/=refs%2Fheads%2Fx"
    tip = parse_kept(name, Oid("a" * 40))
    assert tip is not None
    assert (tip.ref, tip.why) == ("refs/heads/x", Why.DELETED)
