"""Everything that a stock git does to read works against a mirror, from the cache as well as without."""

from __future__ import annotations

import pytest

from evermirror.edge.git.serve import GitServer, ServeSettings
from tests.edge.git.mirror_world import World
from tests.edge.git.test_serve import Face, client
from tests.edge.git.test_serve_cache import settle
from tests.support.gitrepo import run_git

HEAD = ("rev-list", "--count", "HEAD")


@pytest.fixture(params=["cached", "not cached"])
async def face(request, tmp_path, upstream):
    world = World(tmp_path, upstream)
    repo = upstream.create("x", commits=1)
    repo.bulk_commits(20)
    repo.branch("old", at="main~10")
    repo.tag("v1", annotated=True)
    await world.sync(repo)
    await settle()
    folder = tmp_path / "cache" if request.param == "cached" else None
    server = GitServer(world.git, ServeSettings(cache_folder=folder))
    async with Face(server, world.path(repo)) as face:
        face.repo, face.world = repo, world
        yield face


@pytest.mark.parametrize("version", [0, 2])
async def test_clones_of_every_depth(face, tmp_path, version):
    flag = ("-c", f"protocol.version={version}")
    for n in range(2):  # the second one from the cache
        name = f"shallow{n}.git"
        await client(tmp_path, *flag, "clone", "-q", "--bare", "--depth=3", face.url, name)
        inside = (*flag, f"--git-dir={name}")
        assert run_git(tmp_path / name, *HEAD) == "3"
        await client(tmp_path, *inside, "fetch", "-q", "--deepen=4", face.url, "main:main")
        assert run_git(tmp_path / name, *HEAD) == "7"
        await client(tmp_path, *inside, "fetch", "-q", "--unshallow", face.url, "main:main")
        assert run_git(tmp_path / name, *HEAD) == "21"
        since = ("--shallow-exclude=old", "--single-branch", "--branch=main")
        await client(tmp_path, *flag, "clone", "-q", "--bare", *since, face.url, f"since{n}.git")
        assert run_git(tmp_path / f"since{n}.git", *HEAD) == "10"
        run_git(tmp_path / name, "fsck", "--strict")


@pytest.mark.parametrize("spec", ["blob:none", "tree:0", "blob:limit=1k"])
async def test_partial_clones_bring_the_rest_when_it_is_needed(face, tmp_path, spec):
    for n in range(2):
        name = f"p{n}"
        await client(tmp_path, "clone", "-q", "--no-checkout", f"--filter={spec}", face.url, name)
        await client(tmp_path, "-C", name, "checkout", "-q", "main")
        assert run_git(tmp_path / name, "status", "--porcelain") == ""


FILTERS = ["blob:none", "tree:0", "tree:1", "object:type=commit", "object:type=tree"]
COMBINED = ["combine:blob:none+tree:2", "combine:tree:3+combine:blob:limit=10%2Bobject%253Atype%253Dblob"]


def objects(folder):
    """The ids of everything that came."""
    listed = run_git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return set(listed.split())


def all_of(face):
    return objects(face.world.path(face.repo))


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("spec", FILTERS + COMBINED)
async def test_a_filter_leaves_out_what_it_leaves_out_at_gits_own_server(face, tmp_path, spec, version):
    options = ("-c", f"protocol.version={version}", "clone", "-q", "--bare", f"--filter={spec}")
    face.repo.git("config", "uploadpack.allowFilter", "true")
    await client(tmp_path, *options, f"file://{face.repo.path}", "gits.git")
    await client(tmp_path, *options, face.url, "ours.git")
    assert objects(tmp_path / "ours.git") == objects(tmp_path / "gits.git") < all_of(face)
    await client(tmp_path, "clone", "-q", f"--filter={spec}", face.url, "work")
    assert run_git(tmp_path / "work", "status", "--porcelain") == ""


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    "spec", ["sparse:oid=main:sparse", "combine:blob:none+sparse:oid=main:sparse", "combine:tree:0+tree:1"]
)
async def test_a_filter_that_is_not_served_leaves_nothing_out(face, tmp_path, spec, version):
    path = face.world.path(face.repo)
    server = GitServer(face.world.git, ServeSettings(filters=("blob:none", "tree")))
    async with Face(server, path) as strict:
        flag = ("-c", f"protocol.version={version}")
        await client(tmp_path, *flag, "clone", "-q", f"--filter={spec}", strict.url, "all")
        assert objects(tmp_path / "all") == all_of(face)
        run_git(tmp_path / "all", "fsck", "--strict")
        face.repo.bulk_commits(3)
        await face.world.sync(face.repo)
        await client(tmp_path, *flag, "-C", "all", "pull", "-q", "--ff-only")
    assert objects(tmp_path / "all") == all_of(face)


async def test_sparse_patterns_are_named_by_their_full_id_only(face, tmp_path):
    face.repo.commit(files={"sparse": "/sparse\n"})
    await face.world.sync(face.repo)
    blob = face.repo.git("rev-parse", "main:sparse")
    server = GitServer(face.world.git, ServeSettings(filters=("sparse:oid",)))
    async with Face(server, face.world.path(face.repo)) as sparse:
        clone = ("clone", "-q", "--bare", "--single-branch", "--branch=main", "--no-tags")
        await client(tmp_path, *clone, f"--filter=sparse:oid={blob}", sparse.url, "some.git")
        for n, name in enumerate(("main:sparse", blob[:12], "refs/evermirror/kept/1:x", ":/secret")):
            await client(tmp_path, *clone, f"--filter=sparse:oid={name}", sparse.url, f"all{n}.git")
            assert objects(tmp_path / "some.git") < objects(tmp_path / f"all{n}.git")


async def test_no_filter_is_allowed_where_the_operator_says_so(face, tmp_path):
    server = GitServer(face.world.git, ServeSettings(filters=()))
    async with Face(server, face.world.path(face.repo)) as strict:
        await client(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", strict.url, "all.git")
    assert run_git(tmp_path / "all.git", "rev-list", "--objects", "--all", "--missing=print").count("?") == 0


@pytest.mark.parametrize("version", [0, 2])
async def test_listings_single_tags_single_commits_and_instead_of(face, tmp_path, version):
    flag = ("-c", f"protocol.version={version}")
    listed = await client(tmp_path, *flag, "ls-remote", "--symref", face.url)
    assert "ref: refs/heads/main\tHEAD" in listed
    assert "refs/tags/v1^{}" in listed
    run_git(tmp_path, "init", "-q", "--bare", "one.git")
    inside = (*flag, "--git-dir=one.git")
    await client(tmp_path, *inside, "fetch", "-q", "--depth=1", face.url, "tag", "v1")
    older = face.repo.git("rev-parse", "main~5")
    await client(tmp_path, *inside, "fetch", "-q", face.url, f"{older}:refs/heads/older")
    base, _, name = face.url.rpartition("/")
    instead = ("-c", f"url.{base}/.insteadOf=https://upstream.example/")
    await client(tmp_path, *flag, *instead, "clone", "-q", f"https://upstream.example/{name}", "instead")
    assert (tmp_path / "instead" / "bulk").is_dir()
