"""Repositories shaped as real ones are, made at run time: odd ref names, many tags, many refs, large blobs.

Each maker fills an empty upstream; ``SHAPES`` lists them by name. Sizes are those of real repositories that
were hard to mirror.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from tests.support.gitrepo import IDENTITY, UpstreamRepo, clean_git_env

TAGS = 20_000
REFS = 120_000
BLOB_BYTES, BLOBS = 500_000_000, 2
WHEN = 1_700_000_000

# All of these are names that git itself allows, and that people have given to branches.
ODD_NAMES = (
    "功能/测试",
    "ünïcödé",
    "emoji-🎉",
    "it's",
    'say-"hello"',
    "$(touch-pwned)",
    "`id`",
    "a;b&c|d",
    "100%",
    "%2e%2e",
    "#1234",
    "user@host",
    "@/at",
    "<angle>",
    "{brace}",
    "comma,dot.s",
    "!bang",
    "a=b",
    "-dash",
    "--upload-pack=x",
    "plus+minus-under_score",
    "Case",
    "case",
    "HEAD",
    "refs/heads/main",
    "x.locked",
    "deep/" * 40 + "end",
    "long-" + "x" * 200,
)
ODD_BYTES = (b"latin-\xe9t\xe9", b"bytes-\xff\xfe")  # no UTF-8, as old repositories have


def normal(repo: UpstreamRepo) -> None:
    """A library with branches, tags, a merge, a symlink and an executable; pip and npm can install it."""
    repo.commit(files=PACKAGE)
    repo.bulk_commits(200, gap_s=3600)
    repo.tag("v1.0.0", annotated=True)
    repo.branch("develop")
    repo.bulk_commits(20, "develop")
    merged = repo.git("commit-tree", "main^{tree}", "-p", "main", "-p", "develop", "-m", "merge")
    repo.git("update-ref", "refs/heads/main", merged)
    repo.tag("v1.1.0")
    repo.git("fast-import", "--quiet", stdin=_modes(repo.tip()))
    repo.hidden_ref("refs/pull/1/head")


def odd_names(repo: UpstreamRepo) -> None:
    """Odd branch and tag names; tags of trees, blobs and tags; a tag that is named as a branch."""
    repo.bulk_commits(5)
    tip = repo.tip().encode()
    names = [name.encode() for name in ODD_NAMES] + list(ODD_BYTES)
    kinds = (b"refs/heads/", b"refs/tags/")
    lines = [b"create %b%b\0%b\0" % (kind, name, tip) for kind in kinds for name in names]
    repo.git("update-ref", "-z", "--stdin", stdin=b"".join(lines))
    repo.tag("main")
    repo.tag("of-a-tree", annotated=True, at="main^{tree}")
    repo.tag("of-a-blob", annotated=True, at="main:bulk/0.txt")
    repo.tag("signed-off", annotated=True)
    repo.tag("of-a-tag", annotated=True, at="signed-off")


def many_tags(repo: UpstreamRepo) -> None:
    """Half of them annotated, each with a commit of its own, as a project that tags every build."""
    _import(repo, _tagged_history(TAGS))


def many_refs(repo: UpstreamRepo) -> None:
    """As a project whose bots make a branch for every change."""
    repo.bulk_commits(300)
    oids = repo.git("rev-list", "main").split()
    names = sorted(f"refs/heads/bot/{n % 100:02d}/change-{n:06d}" for n in range(REFS - 1))
    lines = (f"{oids[n % len(oids)]} {name}\n" for n, name in enumerate(names))
    header = "# pack-refs with: peeled fully-peeled sorted \n"
    (repo.path / "packed-refs").write_text(header + "".join(lines))  # git would make a file of each first


def large_blobs(repo: UpstreamRepo) -> None:
    """Files that somebody should have kept elsewhere; they do not compress."""
    repo.commit()
    repo.configure([("core.bigFileThreshold", "50m")])  # as forges have it: no deltas
    lines = []
    for n in range(BLOBS):
        made = subprocess.run(  # noqa: S602 -- our own words; the bytes never pass through this process
            f"head -c {BLOB_BYTES} /dev/urandom |"
            " git -c core.bigFileThreshold=1m -c core.compression=0 hash-object -w --stdin",
            shell=True,
            cwd=repo.path,
            env=clean_git_env(repo.path),
            capture_output=True,
            check=True,
            timeout=300,
        )
        lines.append(f"100644 blob {made.stdout.decode().strip()}\tdataset-{n}.bin\n")
    tree = repo.git("mktree", stdin="".join(lines))
    repo.git("update-ref", "refs/heads/main", repo.git("commit-tree", tree, "-p", "main", "-m", "data"))


def renamed_default(repo: UpstreamRepo) -> None:
    """No branch is called main or master."""
    repo.bulk_commits(5, "production/current")
    repo.set_head("production/current")


def two_roots(repo: UpstreamRepo) -> None:
    """Unrelated histories side by side, as a project with a branch for its pages has."""
    repo.bulk_commits(5)
    repo.bulk_commits(5, "gh-pages")


def detached(repo: UpstreamRepo) -> None:
    """HEAD names a branch that is not there."""
    repo.bulk_commits(3)
    repo.set_head("never-made")


def empty(_repo: UpstreamRepo) -> None:
    """A project that somebody made and never pushed to."""


SHAPES: dict[str, Callable[[UpstreamRepo], None]] = {
    "normal": normal,
    "odd-names": odd_names,
    "many-tags": many_tags,
    "many-refs": many_refs,
    "large-blobs": large_blobs,
    "renamed-default": renamed_default,
    "two-roots": two_roots,
    "head-nowhere": detached,
    "empty": empty,
}

PACKAGE = {
    "README.md": "# A library\n",
    "pyproject.toml": (
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "mirrored-library"\nversion = "1.0"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["mirrored_library"]\n'
    ),
    "mirrored_library/__init__.py": "ANSWER = 42\n",
    "package.json": '{"name": "mirrored-library", "version": "1.0.0", "main": "index.js"}\n',
    "index.js": "module.exports = 42;\n",
}


def _modes(parent: str) -> bytes:
    head = f"commit refs/heads/main\ncommitter {IDENTITY} {WHEN} +0000\ndata 5\nmodes\nfrom {parent}\n"
    files = "M 100755 inline run.sh\ndata 8\n#!/bin/s\nM 120000 inline link\ndata 9\nREADME.md\n"
    return (head + files).encode()


def _tagged_history(count: int) -> bytes:
    out = bytearray()
    for n in range(count):
        at = WHEN + 60 * n
        out += b"commit refs/heads/main\nmark :%d\n" % (n + 1)
        out += f"committer {IDENTITY} {at} +0000\ndata 2\nc\nM 100644 inline n\n".encode()
        out += f"data {len(str(n))}\n{n}\n".encode()
        if n % 2:
            out += f"tag build-{n:05d}\nfrom :{n + 1}\ntagger {IDENTITY} {at} +0000\ndata 2\nt\n".encode()
        else:
            out += f"reset refs/tags/build-{n:05d}\nfrom :{n + 1}\n\n".encode()
    return bytes(out)


def _import(repo: UpstreamRepo, stream: bytes) -> None:
    repo.git("fast-import", "--quiet", "--date-format=raw", stdin=stream)
    repo.git("pack-refs", "--all")
