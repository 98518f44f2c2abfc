"""Catalogs in git: real repositories on a real server, read by blob, followed by fetch, written by push."""

import asyncio
from pathlib import Path

import pytest

from evermirror.edge.catalog.clone import CLONE_MAX_BYTES, PACKS_MAX, open_trees
from evermirror.edge.catalog.publish import own_path, publish
from evermirror.edge.catalog.reader import CatalogReader, TooMuch
from evermirror.edge.git.credentials import Credential, Credentials
from evermirror.edge.git.environment import GitSettings
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.source import parse_source
from evermirror.model.url import UrlRules
from tests.support.gitrepo import UpstreamRepo, run_git

RULES = UrlRules()


def urls(*names):
    return "".join(f"https://h.example/{name}\n" for name in names)


def trees(tmp_path, *sources, credentials=()):
    settings = GitSettings(data_dir=tmp_path / "data", connect_timeout_s=5, no_progress_s=20)
    given = [parse_source(source) for source in sources]
    return open_trees(given, tmp_path / "data" / "catalog", settings, Credentials(credentials))


async def started(tmp_path, *sources, **more):
    reader = CatalogReader(trees(tmp_path, *sources, **more), RULES)
    reader.begin([await tree.look() for tree in reader.trees])
    entries = [entry async for some in reader.load() for entry in some]
    return reader, sorted(names(entries))


def names(entries):
    return [entry.key.removeprefix("h.example/") for entry in entries]


async def step(reader, source=0):
    seen = await reader.look(source)
    if seen.plan is None:
        return None
    reader.take(seen)
    diff = seen.plan.diff
    removed = [key.removeprefix("h.example/") for key in diff.removed]
    return sorted(names(diff.added)), sorted(removed), sorted(names(diff.changed))


@pytest.fixture
def catalog(upstream):
    repo = upstream.create("team/catalog", commits=0)
    repo.commit(files={"urls/1.txt": urls("a", "b"), "urls/deep/2.txt": urls("c"), "README.md": "prose\n"})
    return repo


async def test_a_repository_is_cloned_read_and_followed_by_its_changes(tmp_path, catalog):
    reader, found = await started(tmp_path, catalog.url)
    assert found == ["a", "b", "c"]
    assert await step(reader) is None
    catalog.commit(files={"urls/1.txt": urls("a", "d") + "https://h.example/e priority=high\n"})
    assert await step(reader) == (["d", "e"], ["b"], [])
    catalog.commit(files={"urls/1.txt": urls("a", "d", "e"), "urls/deep/2.txt": urls("c", "f")})
    assert await step(reader) == (["f"], [], ["e"])
    assert await step(reader) is None
    assert reader.versions == [catalog.tip()]
    problem = f"{catalog.url}:urls/x:1"
    catalog.commit(files={"urls/x": "bad\n"})
    assert await step(reader) == ([], [], [])
    assert str(reader.catalog.problems()[0]).startswith(problem)


async def test_only_changed_files_are_read(tmp_path, catalog):
    reader, _ = await started(tmp_path, catalog.url)
    asked = []
    tree = reader.trees[0]
    blobs = tree.blobs
    tree.blobs = lambda ids: blobs(asked.extend(ids := list(ids)) or ids)
    catalog.commit(files={"urls/deep/2.txt": urls("c", "d")})
    assert await step(reader) == (["d"], [], [])
    assert len(asked) == 2, "the old and the new content of one file"


async def test_a_commit_that_touches_no_file_of_the_catalog_moves_its_version_only(tmp_path, catalog):
    reader, _ = await started(tmp_path, catalog.url)
    tip = catalog.commit(files={"README.md": "more prose\n"})
    seen = await reader.look(0)
    assert seen.plan is None
    reader.take(seen)
    assert reader.versions == [tip]


async def test_a_rewritten_history_is_a_diff_of_trees(tmp_path, catalog):
    reader, _ = await started(tmp_path, catalog.url)
    catalog.git("update-ref", "-d", "refs/heads/main")
    catalog.commit(files={"other/list": urls("b", "z")})
    assert await step(reader) == (["z"], ["a", "c"], [])


async def test_branch_and_path_choose_what_is_read(tmp_path, catalog):
    catalog.commit("next", files={"lists/x": urls("n"), "urls/1.txt": urls("u")})
    _, found = await started(tmp_path, {"url": catalog.url, "branch": "next", "path": "lists"})
    assert found == ["n"]
    _, found = await started(tmp_path, {"url": catalog.url, "path": "urls/deep/2.txt"})
    assert found == ["c"]
    with pytest.raises(FailureError, match="there is no nowhere in the catalog"):
        await started(tmp_path, {"url": catalog.url, "path": "nowhere"})


@pytest.mark.parametrize("bare", [True, False])
async def test_a_repository_on_this_machine_is_read_at_its_head(tmp_path, bare):
    folder = tmp_path / "here"
    if bare:
        repo = UpstreamRepo.init(folder, "here", str(folder))
        repo.commit(files={"list": urls("a")})
    else:
        folder.mkdir()
        run_git(folder, "init", "--quiet", "-b", "main", ".")
        (folder / "list").write_text(urls("a"))
        run_git(folder, "add", "list")
        run_git(folder, "commit", "--quiet", "-m", "x")
        (folder / "list").write_text(urls("a", "not committed"))
    _, found = await started(tmp_path, str(folder))
    assert found == ["a"]


async def test_a_credential_is_used_by_its_name_and_its_absence_is_a_failure(tmp_path, upstream, catalog):
    upstream.require_basic("bot", "s3cret-canary")
    login = Credential("corp", username="bot", password="s3cret-canary")
    source = {"url": catalog.url, "credential": "corp"}
    _, found = await started(tmp_path, source, credentials=[login])
    assert found == ["a", "b", "c"]
    with pytest.raises(FailureError) as raised:
        await started(tmp_path / "2", catalog.url)
    assert raised.value.failure.kind is FailureKind.NOT_FOUND
    assert "s3cret-canary" not in str(raised.value)
    stored = b"".join(p.read_bytes() for p in (tmp_path / "data").rglob("*") if p.is_file())
    assert b"s3cret-canary" not in stored


async def test_a_failed_fetch_changes_nothing_and_the_next_one_goes_on(tmp_path, upstream, catalog):
    reader, _ = await started(tmp_path, catalog.url)
    catalog.commit(files={"urls/1.txt": urls("a")})
    upstream.fail_with(503)
    with pytest.raises(FailureError):
        await reader.look(0)
    upstream.heal()
    upstream.drop_after_bytes = 100
    with pytest.raises(FailureError):
        await reader.look(0)
    upstream.heal()
    assert await step(reader) == ([], ["b"], [])


async def test_an_empty_repository_is_a_failure(tmp_path, upstream):
    with pytest.raises(FailureError):
        await started(tmp_path, upstream.create("team/none", commits=0).url)


async def test_what_is_here_can_be_read_without_the_network(tmp_path, upstream, catalog):
    _, _ = await started(tmp_path, catalog.url)
    old = catalog.tip()
    catalog.commit(files={"urls/1.txt": urls("z")})
    upstream.close()
    (tree,) = trees(tmp_path, catalog.url)
    listing = await tree.at(old)
    assert listing.version == old
    assert set(listing.files) == {"urls/1.txt", "urls/deep/2.txt"}
    assert await tree.at("0" * 40) is None
    assert (await tree.at(None)).version == old


async def test_changed_defaults_change_what_lies_below_them(tmp_path, catalog):
    catalog.commit(
        files={"m/mongo/mongo": "url: https://h.example/mongo\n", "n/x": "url: https://h.example/x\n",
               "m/list": urls("l"), "DEFAULTS": "private: true\n"}
    )  # fmt: skip
    reader, _ = await started(tmp_path, catalog.url)
    catalog.commit(files={"m/DEFAULTS": "priority: low\n"})
    assert await step(reader) == ([], [], ["mongo"])
    catalog.commit(files={"DEFAULTS": "privat: true\n"})
    assert await step(reader) == ([], [], [])
    assert {p.file.rpartition(":")[2] for p in reader.catalog.problems()} == {
        "DEFAULTS",
        "m/mongo/mongo",
        "n/x",
    }
    catalog.commit(files={"DEFAULTS": "\n"})
    assert await step(reader) == ([], [], ["mongo", "x"])


async def test_links_and_submodules_are_told_and_not_followed(tmp_path, catalog):
    blob = catalog.git("hash-object", "-w", "--stdin", stdin="/etc/passwd")
    tree = catalog.git(
        "mktree", "--missing", stdin=f"120000 blob {blob}\tlink\n160000 commit {catalog.tip()}\tsub\n"
    )
    commit = catalog.git("commit-tree", "-m", "odd", tree)
    catalog.git("update-ref", "refs/heads/main", commit)
    reader, found = await started(tmp_path, catalog.url)
    assert found == []
    assert {p.reason for p in reader.catalog.problems()} == {
        "a symbolic link: not followed",
        "a submodule: not followed",
    }


async def test_a_change_of_nearly_everything_is_not_worked_out_in_memory(tmp_path, catalog, monkeypatch):
    monkeypatch.setattr("evermirror.edge.catalog.reader.CHANGE_MAX_BYTES", 50)
    reader, _ = await started(tmp_path, catalog.url)
    catalog.commit(files={"urls/1.txt": urls(*map(str, range(10)))})
    with pytest.raises(TooMuch):
        await reader.look(0)


async def test_many_fetches_leave_few_packs_and_old_content_stays_readable(tmp_path, catalog, monkeypatch):
    monkeypatch.setattr("evermirror.edge.catalog.clone.PACKS_MAX", 3)
    reader, _ = await started(tmp_path, catalog.url)
    first = catalog.tip()
    for n in range(6):
        catalog.git("update-ref", "-d", "refs/heads/main")
        catalog.commit(files={"urls/1.txt": urls(str(n))})
        await step(reader)
    tree = reader.trees[0]
    assert len(list((tree.repo / "objects" / "pack").glob("*.pack"))) <= 4
    assert await tree.at(first) is not None
    assert PACKS_MAX > 3
    assert CLONE_MAX_BYTES


async def test_a_commit_of_ours_is_pushed_on_top_of_what_is_there(tmp_path, catalog):
    catalog.git("config", "http.receivepack", "true")
    (tree,) = trees(tmp_path, {"url": catalog.url, "writable": True})

    async def edit(old):
        return old + b"https://h.example/new\n", "Why"

    pushed = await publish(tree, edit)
    assert pushed == catalog.tip()
    assert catalog.git("show", f"main:{own_path(tree)}") == "https://h.example/new"
    assert catalog.git("show", "main:urls/1.txt") == urls("a", "b").strip()
    assert catalog.git("log", "-1", "--format=%s %an") == "Why evermirror"

    async def nothing(old):
        return old, ""

    assert await publish(tree, nothing) is None


async def test_who_pushed_first_wins_and_the_second_attempt_succeeds(tmp_path, catalog):
    catalog.git("config", "http.receivepack", "true")
    (tree,) = trees(tmp_path, {"url": catalog.url, "path": "urls", "branch": "main", "writable": True})
    raced = []

    async def edit(old):
        if not raced:
            raced.append(catalog.commit(files={"urls/theirs": urls("t")}))
        return old + b"https://h.example/ours\n", "ours"

    with pytest.raises(FailureError):
        await publish(tree, edit)
    assert catalog.tip() == raced[0]
    assert await publish(tree, edit) == catalog.tip()
    assert catalog.git("show", "main:urls/theirs") == urls("t").strip()
    assert catalog.git("show", "main:urls/evermirror/api.txt") == "https://h.example/ours"


async def test_looks_and_publications_take_turns_in_one_clone(tmp_path, catalog):
    catalog.git("config", "http.receivepack", "true")
    (tree,) = trees(tmp_path, {"url": catalog.url, "writable": True})

    async def edit(old):
        return b"https://h.example/new\n", "x"

    await asyncio.gather(tree.look(), publish(tree, edit), tree.look(), tree.look())
    assert Path(tree.repo).is_dir()
