"""git and other git clients, each run as its users run it: a clone into a folder that git can then read."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gitrepo import clean_git_env

ROOT = Path(__file__).parents[2]
CLIENT_S = 300
JARS = (
    "org.eclipse.jgit", "org.eclipse.jgit.pgm", "org.eclipse.jgit.archive", "org.eclipse.jgit.http.apache",
    "org.eclipse.jgit.lfs", "org.eclipse.jgit.ui", "args4j", "jsch", "jzlib", "javaewah", "slf4j-api",
    "slf4j-nop", "httpclient", "httpcore", "commons-logging", "commons-codec", "commons-compress", "gson",
)  # fmt: skip
GO_GIT = Path("/usr/share/gocode/src/github.com/go-git/go-git/go.mod")
GO_CLONE = """package main

import (
	"fmt"
	"os"

	git "github.com/go-git/go-git/v5"
)

func main() {
	options := &git.CloneOptions{URL: os.Args[1], Tags: git.AllTags}
	if _, err := git.PlainClone(os.Args[2], true, options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
"""
ISOMORPHIC = ROOT / ".venv/test-needs/isomorphic-git"
ISOMORPHIC_CLONE = """
const git = require('isomorphic-git'), http = require('isomorphic-git/http/node'), fs = require('fs');
const [url, dir] = process.argv.slice(1);
git.clone({fs, http, dir, url, noCheckout: true}).catch(e => { console.error(e); process.exit(1); });
"""
DULWICH_CLONE = (
    "import sys; from dulwich import porcelain; porcelain.clone(sys.argv[1], sys.argv[2], bare=True)"
)
PYGIT2_CLONE = "import sys, pygit2; pygit2.clone_repository(sys.argv[1], sys.argv[2], bare=True)"

Clone = Callable[[str, Path], None]


def run(*command: str, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**clean_git_env(cwd), **env},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=CLIENT_S,
        check=False,
    )
    assert done.returncode == 0, (
        f"{command} → {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


def need(there: bool, what: str) -> None:
    """A missing client skips its campaign aloud, but never in CI."""
    if there:
        return
    message = f"{what} is not installed (make needs-all)"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def by_git(url: str, folder: Path) -> None:
    run("git", "clone", "--quiet", "--bare", url, str(folder), cwd=folder.parent)


def by_git_v0(url: str, folder: Path) -> None:
    run("git", "-c", "protocol.version=0", "clone", "-q", "--bare", url, str(folder), cwd=folder.parent)


def by_jgit(url: str, folder: Path) -> None:
    jars = [Path(f"/usr/share/java/{name}.jar") for name in JARS]
    need(shutil.which("java") is not None and jars[1].exists(), "jgit")
    found = ":".join(str(jar) for jar in jars if jar.exists())
    main = ("java", "-Xmx512m", "-Dfile.encoding=UTF-8", "-cp", found, "org.eclipse.jgit.pgm.Main")
    run(*main, "clone", "--bare", url, str(folder), cwd=folder.parent, LC_ALL="C.UTF-8")


@functools.cache
def go_clone(folder: Path) -> Path:
    """Compiled once; Debian's packages are a GOPATH, without modules."""
    need(shutil.which("go") is not None and GO_GIT.exists(), "go-git")
    source = folder / "src/clone"
    source.mkdir(parents=True)
    (source / "main.go").write_text(GO_CLONE)
    (source / "go.mod").write_text("module clone\n\ngo 1.19\n")
    program = folder / "go-git-clone"
    env = {
        "GO111MODULE": "off",
        "GOPATH": f"{folder}:/usr/share/gocode",
        "GOCACHE": str(folder / "cache"),
        "CGO_ENABLED": "0",
    }
    run("go", "build", "-o", str(program), ".", cwd=source, **env)
    return program


def by_go_git(url: str, folder: Path) -> None:
    program = go_clone(folder.parents[1] / "go")
    run(str(program), url, str(folder), cwd=folder.parent)


def by_dulwich(url: str, folder: Path) -> None:
    run(sys.executable, "-c", DULWICH_CLONE, url, str(folder), cwd=folder.parent)


def by_pygit2(url: str, folder: Path) -> None:
    run(sys.executable, "-c", PYGIT2_CLONE, url, str(folder), cwd=folder.parent)


def by_isomorphic_git(url: str, folder: Path) -> None:
    need(shutil.which("node") is not None and (ISOMORPHIC / "node_modules").is_dir(), "isomorphic-git")
    run("node", "-e", ISOMORPHIC_CLONE, url, str(folder), cwd=ISOMORPHIC)


CLIENTS: dict[str, Clone] = {
    "git": by_git,
    "git-protocol-v0": by_git_v0,
    "jgit": by_jgit,
    "go-git": by_go_git,
    "dulwich": by_dulwich,
    "pygit2": by_pygit2,
    "isomorphic-git": by_isomorphic_git,
}

# Names that a client changes or cannot keep, whatever server it clones from: its limits, not ours.
OTHER_BYTES = ("latin-", "bytes-")  # written anew as UTF-8
CHANGES = {"jgit": OTHER_BYTES, "isomorphic-git": OTHER_BYTES}
BRANCHES_OF_REMOTE = ("go-git", "dulwich", "pygit2", "isomorphic-git")  # their HEAD is among the branches
