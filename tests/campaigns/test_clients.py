"""Every git client that can be installed here clones from a real ``evermirror up``, and gets all of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.clients import BRANCHES_OF_REMOTE, CHANGES, CLIENTS, run
from tests.campaigns.shapes import ODD_BYTES, ODD_NAMES, many_tags, normal, odd_names
from tests.support.gitrepo import UpstreamRepo, read_refs, run_git
from tests.support.up_process import UpProcess, up
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.timeout(600)

MIRRORED_S = 300.0  # 20,000 tags are as many files before they are packed; a busy disk is slow
SHAPES = {"normal": normal, "many-tags": many_tags, "odd-names": odd_names}


class Served:
    def __init__(self, node: UpProcess, server: UpstreamServer, repos: dict[str, UpstreamRepo]) -> None:
        self.node = node
        self.repos = repos
        self.host = server.host

    def url(self, shape: str) -> str:
        return self.node.clone_url(f"{self.host}/real/{shape}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("clients")
    with UpstreamServer(folder / "upstream") as server:
        repos = {name: server.create(f"real/{name}", commits=0) for name in SHAPES}
        for name, make in SHAPES.items():
            make(repos[name])
        settings = {
            "EVERMIRROR_UPSTREAMS__SCHEMES": '["http"]',
            "EVERMIRROR_UPSTREAMS__ALLOW": json.dumps([server.host]),
        }
        with up(folder, settings) as node:
            for repo in repos.values():
                node.add(repo.url)
            keys = [f"{server.host}/real/{name}" for name in SHAPES]
            node.until(lambda: all(node.is_served(key) for key in keys), MIRRORED_S, look_s=0.5)
            yield Served(node, server, repos)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clones")


def as_upstream(clone: Path) -> dict[str, str]:
    """A clone's refs by upstream's names: some clients keep branches as a remote's."""
    found = {}
    for name, oid in read_refs(clone).items():
        name = name.replace("refs/remotes/origin/", "refs/heads/", 1)
        if name.startswith(("refs/heads/", "refs/tags/")):
            found[name] = oid
    return found


def taken(client: str, refs: dict[str, str]) -> dict[str, str]:
    """Without what this client changes, or cannot tell from its own."""
    changed = CHANGES.get(client, ())
    own = {"refs/heads/HEAD"} if client in BRANCHES_OF_REMOTE else set()
    return {
        ref: oid
        for ref, oid in refs.items()
        if ref not in own and not ref.split("/", 2)[2].startswith(changed)
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_clones_all_that_upstream_has(served: Served, workshop: Path, client, shape):
    clone = workshop / client / shape
    clone.parent.mkdir(exist_ok=True)
    CLIENTS[client](served.url(shape), clone)
    assert taken(client, as_upstream(clone)) == taken(client, served.repos[shape].public_refs())
    run_git(clone, "fsck", "--connectivity-only")


def test_git_clones_shallow_and_partial(served: Served, workshop: Path):
    for name, args, commits in (
        ("shallow", ["--depth=1", "--no-tags"], "1"),
        ("partial", ["--filter=blob:none", "--no-checkout"], "20000"),
        ("treeless", ["--filter=tree:0", "--no-checkout"], "20000"),
    ):
        clone = workshop / f"git-{name}"
        run("git", "clone", "-q", *args, served.url("many-tags"), str(clone), cwd=workshop)
        assert run("git", "rev-list", "--count", "HEAD", cwd=clone).strip() == commits
        run("git", "checkout", "-q", "HEAD", "--", ".", cwd=clone)
        assert (clone / "n").read_text() == "19999"


@pytest.mark.parametrize("at", ["v1.0.0", "main", ""])
def test_pip_installs_by_partial_clone(served: Served, workshop: Path, at):
    target = workshop / f"pip-{at or 'head'}"
    url = f"git+{served.url('normal')}" + (f"@{at}" if at else "")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation")
    env = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1"}
    run(*pip, "--target", str(target), url, cwd=workshop, **env)
    assert "ANSWER = 42" in (target / "mirrored_library/__init__.py").read_text()


@pytest.mark.parametrize("at", ["v1.0.0", "semver:^1.0", "main", ""])
def test_npm_installs(served: Served, workshop: Path, at):
    folder = workshop / f"npm-{at.replace(':', '-') or 'head'}"
    folder.mkdir()
    (folder / "package.json").write_text('{"name": "user", "version": "1.0.0", "private": true}\n')
    url = f"git+{served.url('normal')}" + (f"#{at}" if at else "")
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    run("npm", "install", *quiet, "--cache", str(folder / "cache"), url, cwd=folder)
    assert run("node", "-p", "require('mirrored-library')", cwd=folder).strip() == "42"


def test_grok_pull_mirrors_from_us(served: Served, workshop: Path):
    """Its list of repositories is a file that somebody makes from the mirrors; the clones come from us."""
    folder = workshop / "grok"
    top = folder / "top"
    top.mkdir(parents=True)
    shapes = ("normal", "many-tags")  # its list is in UTF-8: it cannot name all that git can
    mirrors = served.node.mirror(f"{served.host}/real/normal").parents[1]
    bin_dir = Path(sys.executable).parent
    listed = ("-m", str(folder / "site.js"), "-t", str(mirrors), "-i", "*/odd-names.git")
    run(str(bin_dir / "grok-manifest"), *listed, cwd=folder)
    config = folder / "grokmirror.conf"
    config.write_text(
        f"[core]\ntoplevel = {top}\nmanifest = {folder / 'own.js.gz'}\nlog = {folder / 'log'}\n"
        f"[remote]\nsite = {served.node.url}/git/{served.host}\nmanifest = file://{folder / 'site.js'}\n"
        "[pull]\npull_threads = 2\n"
    )
    run(str(bin_dir / "grok-pull"), "-n", "-c", str(config), cwd=folder)
    for shape in shapes:
        assert as_upstream(top / f"real/{shape}.git") == served.repos[shape].public_refs()


def test_odd_names_are_told_by_the_api(served: Served):
    """Also those that are no UTF-8: nothing of them breaks an answer."""
    answer = served.node.client.get(f"/api/repos/{served.host}/real/odd-names/-/refs", params={"limit": 1000})
    assert answer.status_code == 200, answer.text
    told = json.dumps(answer.json(), ensure_ascii=False)
    assert len(ODD_BYTES) == 2
    assert [name for name in ODD_NAMES if json.dumps(name, ensure_ascii=False)[1:-1] not in told] == []
