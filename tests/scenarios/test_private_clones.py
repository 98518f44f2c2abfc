"""Private mirrors are cloned with a token by everything that clones; without one nobody learns of them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evermirror.edge.store.store import Store
from evermirror.model.access import Role
from tests.support.gitrepo import UpstreamRepo, clean_git_env
from tests.support.node import NodeThread
from tests.support.upstream import UpstreamServer

BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name, about = "secretpkg-1.0-py3-none-any.whl", "secretpkg-1.0.dist-info"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.write("secretpkg.py")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\\nName: secretpkg\\nVersion: 1.0\\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{about}/RECORD", "")
    return name
"""
PACKAGE = {
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "backend.py": BACKEND,
    "secretpkg.py": "WORD = 'open'\n",
    "package.json": json.dumps({"name": "secretpkg", "version": "1.0.0", "main": "index.js"}),
    "index.js": "module.exports = 'open'\n",
}


class Mirror:
    """A node with private repos, and a user who has a reader's token."""

    def __init__(
        self, node: NodeThread, upstream: UpstreamServer, folder: Path, tokens: dict[Role, str]
    ) -> None:
        self.node, self.upstream, self.folder, self.tokens = node, upstream, folder, tokens
        self.address = node.url.removeprefix("http://")
        self.base = f"http://me:{tokens[Role.READER]}@{self.address}/git/{upstream.host}"
        self.env = {**clean_git_env(folder), "HOME": str(folder), "PATH": os.environ["PATH"]}

    def add(self, url: str, *, ready: bool = True, **info: object) -> None:
        sent = {"git_url": url, "additional_info": info}
        bearer = {"authorization": f"Bearer {self.tokens[Role.OPERATOR]}"}
        answer = self.node.client.post("/api/git_urls", json=sent, headers=bearer)
        assert answer.status_code < 300, answer.text
        if ready:
            self.until_status(url, "active")

    def until_status(self, url: str, status: str) -> None:
        key = url.removeprefix("http://").removesuffix(".git")
        bearer = {"authorization": f"Bearer {self.tokens[Role.READER]}"}

        def told() -> bool:
            return bool(self.node.client.get(f"/api/repos/{key}", headers=bearer).json()["status"] == status)

        self.node.until(told)

    def run(self, *argv: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, cwd=cwd or self.folder, env={**self.env, **env}, capture_output=True, text=True, timeout=120
        )

    def refs(self, name: str, token: str = "") -> tuple[int, str, str]:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        path = f"/git/{self.upstream.host}/{name}/info/refs?service=git-upload-pack"
        answer = self.node.client.get(path, headers=headers)
        return answer.status_code, answer.headers.get("retry-after", ""), answer.text


async def make_tokens(data: Path) -> dict[Role, str]:
    data.mkdir(exist_ok=True)
    store = await Store.open(f"sqlite:///{data}/evermirror.db")
    try:
        roles = (Role.READER, Role.OPERATOR)
        return {role: (await store.create_token(role.value, role))[0] for role in roles}
    finally:
        await store.close()


@pytest.fixture
def mirror(tmp_path, upstream):
    tokens = asyncio.run(make_tokens(tmp_path / "data"))
    with NodeThread(tmp_path, upstream.host, auth__tokens_required=True) as node:
        yield Mirror(node, upstream, tmp_path, tokens)


def with_submodules(repo: UpstreamRepo, commit: str, urls: dict[str, str]) -> None:
    """A commit on main with one submodule for each name."""
    lines = [f'[submodule "{name}"]\n\tpath = {name}\n\turl = {url}\n' for name, url in urls.items()]
    blob = repo.git("hash-object", "-w", "--stdin", stdin="".join(lines))
    links = [f"160000 commit {commit}\t{name}" for name in urls]
    tree = repo.git(
        "mktree", "--missing", stdin="\n".join([f"100644 blob {blob}\t.gitmodules", *links]) + "\n"
    )
    made = repo.git("commit-tree", tree, "-p", repo.tip(), "-m", "submodules")
    repo.git("update-ref", "refs/heads/main", made)


def test_pip_and_npm_install_from_a_private_mirror(mirror):
    """As docs/guide.md says."""
    repo = mirror.upstream.create("team/pkg")
    repo.commit(files=PACKAGE)
    mirror.add(repo.url, private=True)
    url = f"git+{mirror.base}/team/pkg.git"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-input", "--target", "there"]
    done = mirror.run(*pip, "--disable-pip-version-check", "--no-cache-dir", url, PIP_NO_INDEX="1")
    assert done.returncode == 0, done.stderr
    assert (mirror.folder / "there" / "secretpkg.py").read_text() == "WORD = 'open'\n"
    assert shutil.which("npm"), "npm is needed: tools/test-needs brings it"
    npm = [
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--no-update-notifier",
        "--offline",
    ]
    (mirror.folder / "app").mkdir()
    (mirror.folder / "app" / "package.json").write_text("{}")
    done = mirror.run(*npm, url, cwd=mirror.folder / "app", npm_config_cache=str(mirror.folder / "npm"))
    assert done.returncode == 0, done.stderr
    assert (mirror.folder / "app/node_modules/secretpkg/index.js").read_text() == "module.exports = 'open'\n"


def test_private_submodules_come_with_their_repo(mirror):
    sub = mirror.upstream.create("team/sub")
    whole = mirror.upstream.create("team/whole")
    elsewhere = f"http://{mirror.address}/git/{mirror.upstream.host}/team/sub.git"
    original = "https://forge.example.org/team/sub.git"
    urls = {"beside": "../sub.git", "by-address": elsewhere, "by-instead-of": original}
    with_submodules(whole, sub.tip(), urls)
    for repo in (sub, whole):
        mirror.add(repo.url, private=True)
    instead = f"url.{elsewhere.removesuffix('team/sub.git')}.insteadOf=https://forge.example.org/"
    helper = f"credential.helper=!echo username=me; echo password={mirror.tokens[Role.READER]}; :"
    clone = ("git", "-c", helper, "-c", instead, "clone", "-q", "--recurse-submodules")
    done = mirror.run(*clone, elsewhere.replace("sub.git", "whole.git"), "whole")
    assert done.returncode == 0, done.stderr
    for name in urls:
        assert (
            mirror.run("git", "rev-parse", "HEAD", cwd=mirror.folder / "whole" / name).stdout
            == sub.tip() + "\n"
        )

    # The token in the address is enough for a submodule whose address is relative.
    select = ("git", "clone", "-q", "--recurse-submodules=beside")
    done = mirror.run(*select, f"{mirror.base}/team/whole.git", "again")
    assert done.returncode == 0, done.stderr
    assert (mirror.folder / "again" / "beside" / ".git").exists()


def test_an_instead_of_for_a_whole_host_is_told_which_repos_are_not_mirrored(mirror):
    repo = mirror.upstream.create("team/here")
    mirror.add(repo.url, private=True)
    instead = f"url.{mirror.base}/.insteadOf=https://forge.example.org/"
    done = mirror.run("git", "-c", instead, "ls-remote", "https://forge.example.org/team/here")
    assert done.returncode == 0, done.stderr
    done = mirror.run("git", "-c", instead, "ls-remote", "https://forge.example.org/team/not-here")
    assert "remote: This repository is not mirrored here." in done.stderr
    assert "not found" in done.stderr


def test_what_has_no_copy_yet_is_503_with_the_reason_for_those_who_may_read_it(mirror):
    reader = mirror.tokens[Role.READER]
    gone, secret, off = (mirror.upstream.url(f"team/{name}.git") for name in ("gone", "secret", "off"))
    mirror.add(gone, ready=False)
    mirror.add(secret, ready=False, private=True)
    mirror.add(off, ready=False, enabled=False)
    mirror.until_status(gone, "gone")
    mirror.until_status(secret, "gone")
    mirror.until_status(off, "inactive")
    status, retry_after, text = mirror.refs("team/gone")
    assert (status, retry_after) == (503, "61")
    assert "in the catalog, but it could not be cloned yet: " in text
    assert mirror.refs("team/secret", reader) == mirror.refs("team/gone", reader)
    assert mirror.refs("team/off")[0] == 503
    assert "switched off" in mirror.refs("team/off")[2]
    assert mirror.refs("team/secret") == mirror.refs("team/unknown")
    assert mirror.refs("team/secret")[0] == 401
    assert mirror.refs("team/unknown", reader)[0] == 404
    cloned = mirror.run("git", "clone", "-q", f"{mirror.base}/team/gone", "gone")
    assert "remote: This repository is in the catalog, but" in cloned.stderr


def test_without_a_private_repo_an_unknown_one_is_told_so_at_once(mirror):
    repo = mirror.upstream.create("team/open")
    mirror.add(repo.url)
    assert mirror.refs("team/open")[0] == 200
    assert mirror.refs("team/unknown")[::2] == (404, "This repository is not mirrored here.\n")
    mirror.add(repo.url, private=True)
    assert mirror.refs("team/open")[0] == mirror.refs("team/unknown")[0] == 401
    mirror.add(repo.url, private=False)
    assert mirror.refs("team/unknown")[0] == 404
