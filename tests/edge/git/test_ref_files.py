"""Refs read from files are those that git itself tells."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from evermirror.edge.git.ref_files import move_refs, read_ref_files
from evermirror.edge.git.refs import parse_listing
from evermirror.model.refs import Oid, RefChange
from tests.support.gitrepo import clean_git_env


class Repo:
    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        path.mkdir()
        self.run("init", "--quiet", "--bare", *options, ".")
        tree = self.run("hash-object", "-t", "tree", "-w", "--stdin")
        self.commits = [self.run("commit-tree", tree, "-m", str(n)) for n in range(4)]

    def run(self, *args: str | bytes, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["git", *args],
            cwd=self.path,
            env=clean_git_env(self.path),
            input=stdin,
            capture_output=True,
            check=True,
        )
        return done.stdout.decode().strip()

    def told(self) -> dict[str, str]:
        listing = subprocess.run(
            ["git", "for-each-ref", "--format=%(objectname) %(refname)"],
            cwd=self.path,
            env=clean_git_env(self.path),
            capture_output=True,
            check=True,
        )
        return dict(parse_listing(listing.stdout))


@pytest.fixture(params=["sha1", "sha256"])
def repo(request, tmp_path) -> Repo:
    return Repo(tmp_path / "repo.git", f"--object-format={request.param}")


def test_an_empty_repository_has_none(repo):
    assert read_ref_files(repo.path) == {} == repo.told()


def test_loose_packed_and_both(repo):
    first, second, third, _ = repo.commits
    repo.run("update-ref", "refs/heads/main", first)
    repo.run("update-ref", "refs/heads/a/b/c", first)
    repo.run("tag", "-a", "-m", "v1", "v1", second)  # packed with a line for what it points to
    repo.run("update-ref", b"refs/heads/\xff\xe9", second)
    repo.run("pack-refs", "--all")
    assert not (repo.path / "refs/heads/main").exists()
    repo.run("update-ref", "refs/heads/main", third)
    repo.run("update-ref", "refs/evermirror/staging/x", third)
    assert read_ref_files(repo.path) == repo.told()
    assert read_ref_files(repo.path)["refs/heads/main"] == third


def test_random_lives(repo):
    chance = random.Random(7)
    names = ["refs/heads/x", "refs/heads/y/z", "refs/tags/t", "refs/evermirror/kept/k"]
    for _ in range(25):
        match chance.randrange(4):
            case 0:
                repo.run("pack-refs", "--all")
            case 1:
                repo.run("update-ref", "-d", chance.choice(names))
            case _:
                repo.run("update-ref", chance.choice(names), chance.choice(repo.commits))
        assert read_ref_files(repo.path) == repo.told()


def test_a_lock_that_a_crash_left_is_no_ref(repo):
    repo.run("update-ref", "refs/heads/main", repo.commits[0])
    (repo.path / "refs/heads/main.lock").write_text(repo.commits[1])
    assert read_ref_files(repo.path) == {"refs/heads/main": repo.commits[0]}


@pytest.mark.parametrize("content", [b"", b"ref: refs/heads/main\n", b"0" * 39 + b"\n", b"\0" * 41])
def test_what_is_not_plain_is_left_to_git(repo, content):
    repo.run("update-ref", "refs/heads/main", repo.commits[0])
    (repo.path / "refs/heads/odd").write_bytes(content)
    assert read_ref_files(repo.path) is None


def test_so_are_links_broken_lists_and_missing_folders(repo):
    repo.run("update-ref", "refs/heads/main", repo.commits[0])
    (repo.path / "refs/heads/link").symlink_to("main")
    assert read_ref_files(repo.path) is None
    (repo.path / "refs/heads/link").unlink()
    repo.run("pack-refs", "--all")
    packed = repo.path / "packed-refs"
    whole = packed.read_bytes()
    for broken in (whole[:-1], whole + b"xyz\n", whole.replace(b" refs/", b"  ", 1)):
        packed.write_bytes(broken)
        assert read_ref_files(repo.path) is None
    packed.write_bytes(whole)
    (repo.path / "refs").rename(repo.path / "elsewhere")
    assert read_ref_files(repo.path) is None


def test_hidden_files_are_no_refs(repo):
    repo.run("update-ref", "refs/heads/main", repo.commits[0])
    heads = repo.path / "refs" / "heads"
    (heads / ".main.swp").write_text(repo.commits[1] + "\n")
    (heads / ".DS_Store").write_bytes(b"anything")
    (heads / ".folder").mkdir()
    (heads / ".folder" / "x").write_text(repo.commits[1] + "\n")
    assert read_ref_files(repo.path) == repo.told() == {"refs/heads/main": repo.commits[0]}


# Moved


def moves(repo: Repo, *moved: tuple[str, str, str]) -> bool:
    return move_refs(repo.path, [RefChange(name, Oid(old), Oid(new)) for name, old, new in moved])


def test_refs_are_moved_loose_and_packed_ones(repo):
    first, second, third, _ = repo.commits
    for name in ("refs/heads/main", "refs/heads/a/b"):
        repo.run("update-ref", name, first)
    repo.run("pack-refs", "--all", "--prune")
    repo.run("update-ref", "refs/heads/main", second)
    assert moves(repo, ("refs/heads/main", second, third), ("refs/heads/a/b", first, second))
    assert repo.told() == {"refs/heads/main": third, "refs/heads/a/b": second}
    assert not list(repo.path.rglob("*.lock"))


def _another_value(repo: Repo) -> None:
    repo.run("update-ref", "refs/heads/b", repo.commits[2])


def _gone(repo: Repo) -> None:
    repo.run("update-ref", "-d", "refs/heads/b")


def _locked(repo: Repo) -> None:
    (repo.path / "refs/heads/b.lock").touch()


def _symbolic(repo: Repo) -> None:
    repo.run("symbolic-ref", "refs/heads/b", "refs/heads/a")


def _a_link(repo: Repo) -> None:
    place = repo.path / "refs/heads/b"
    place.unlink()
    place.symlink_to("a")


def _a_folder(repo: Repo) -> None:
    repo.run("pack-refs", "--all", "--prune")
    (repo.path / "refs/heads/b").mkdir(parents=True)


@pytest.mark.parametrize("odd", [_another_value, _gone, _locked, _symbolic, _a_link, _a_folder])
def test_where_one_is_not_as_expected_none_is_moved(repo, odd):
    first, second, *_ = repo.commits
    repo.run("update-ref", "refs/heads/a", first)
    repo.run("update-ref", "refs/heads/b", first)
    odd(repo)
    before = repo.told()
    locks = list(repo.path.rglob("*.lock"))
    assert not moves(repo, ("refs/heads/a", first, second), ("refs/heads/b", first, second))
    assert repo.told() == before
    assert list(repo.path.rglob("*.lock")) == locks, "no lock of ours stays, and nobody else's goes"
