"""What is kept of git's answers, of compiled statements and of commands is what would be made anew."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest
import sqlalchemy as sa

from evermirror.edge.store.store import Store
from tests.support import answers, backend, once
from tests.support.gitrepo import UpstreamRepo, read_ref, run_git

LOOK = b"0014command=ls-refs\n0001" + b"0009peel\n000csymrefs\n" + b"0000"


@pytest.fixture
def started(monkeypatch) -> list[str]:
    """Each git that was started for an answer."""
    names: list[str] = []
    real = subprocess.Popen

    def noted(argv, *args, **more):
        if "http-backend" in argv:
            names.append(" ".join(argv))
        return real(argv, *args, **more)

    monkeypatch.setattr(backend.subprocess, "Popen", noted)
    monkeypatch.setattr(backend, "ANSWERS", answers.Answers())
    return names


def can(upstream, repo: UpstreamRepo) -> bytes:
    url = upstream.url(f"{repo.name}.git/info/refs?service=git-upload-pack")
    return _body(urllib.request.Request(url, headers={"Git-Protocol": "version=2"}))


def look(upstream, repo: UpstreamRepo) -> bytes:
    headers = {"Git-Protocol": "version=2", "Content-Type": "application/x-git-upload-pack-request"}
    return _body(urllib.request.Request(upstream.url(f"{repo.name}.git/git-upload-pack"), LOOK, headers))


def _body(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=20) as answer:
        return bytes(answer.read())


def test_a_second_look_starts_nothing_and_is_told_the_same(upstream, started):
    one, two = upstream.create("a"), upstream.create("b")
    first = (can(upstream, one), look(upstream, one))
    assert len(started) == 2
    assert (can(upstream, one), look(upstream, one)) == first
    assert can(upstream, two) == first[0], "what a server can do is the same for all"
    assert len(started) == 2
    assert one.tip().encode() in first[1]
    assert two.tip().encode() in look(upstream, two)


@pytest.mark.parametrize(
    "change",
    [
        lambda repo: repo.commit(),
        lambda repo: repo.force_push(),
        lambda repo: repo.branch("b"),
        lambda repo: repo.delete_branch("other"),
        lambda repo: repo.tag("t", annotated=True),
        lambda repo: repo.set_head("other"),
        lambda repo: repo.bulk_refs(3),
        lambda repo: repo.git("config", "transfer.hideRefs", "refs/heads/other"),
    ],
    ids=["commit", "rewritten", "branch", "deleted", "tag", "head", "packed", "setting"],
)
def test_after_any_change_git_is_asked_again(upstream, started, change):
    repo = upstream.create("a")
    repo.branch("other")
    before = look(upstream, repo)
    change(repo)
    del started[:]
    after = look(upstream, repo)
    assert len(started) == 1
    assert after != before
    assert look(upstream, repo) == after


def test_what_is_deleted_or_damaged_is_not_told_from_memory(upstream, started):
    repo = upstream.create("a")
    look(upstream, repo)
    del started[:]
    for folder in (repo.path / "objects").glob("??"):
        shutil.rmtree(folder)
    look(upstream, repo)
    assert len(started) == 1
    shutil.rmtree(repo.path)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        look(upstream, repo)
    assert len(started) == 2


def test_a_copied_repository_is_as_git_makes_it_and_its_refs_are_read_as_git_reads_them(tmp_path):
    repo = UpstreamRepo.init(tmp_path / "a.git", "a", "", object_format="sha256")
    made = tmp_path / "b.git"
    run_git(
        tmp_path, "init", "-q", "--bare", "--template=", "-b", "main", "--object-format=sha256", str(made)
    )
    assert {p.relative_to(made): p.is_file() and p.read_bytes() for p in made.rglob("*")} == {
        p.relative_to(repo.path): p.is_file() and p.read_bytes() for p in repo.path.rglob("*")
    }
    assert read_ref(repo.path, "refs/heads/main") is None
    loose = repo.commit()
    assert loose == run_git(repo.path, "rev-parse", "main") == read_ref(repo.path, "refs/heads/main")
    run_git(repo.path, "pack-refs", "--all")
    assert read_ref(repo.path, "refs/heads/main") == loose
    assert read_ref(repo.path, "heads/main") is None
    repo.configure([("http.receivepack", "true"), ("receive.hideRefs", "refs/a"), ("receive.hideRefs", "b")])
    assert repo.git("config", "--get-all", "receive.hideRefs").split() == ["refs/a", "b"]
    with pytest.raises(AssertionError, match="rev-parse"):
        repo.tip("none")


def test_statements_are_found_once_for_all_stores_of_a_kind(tmp_path, monkeypatch):
    made: list[object] = []
    real = sa.sql.compiler.SQLCompiler.__init__

    def noted(self, dialect, statement, *args, **more):
        made.append(statement)
        real(self, dialect, statement, *args, **more)

    async def use(name: str) -> list[str]:
        store = await Store.open(f"sqlite:///{tmp_path / name}")
        try:
            return [token.name for token in await store.list_tokens()]
        finally:
            await store.close()

    with once.statements_compiled_once():
        assert asyncio.run(use("a")) == []
        with monkeypatch.context() as patch:
            patch.setattr(sa.sql.compiler.SQLCompiler, "__init__", noted)
            assert asyncio.run(use("a")) == []
    assert [str(statement) for statement in made if "FROM tokens" in str(statement)] == []


def test_engines_of_another_kind_find_their_own():
    found = once.Compiled()
    lite, post = sa.create_engine("sqlite://").dialect, sa.dialects.postgresql.dialect()
    found[lite, "select"] = "for lite"
    assert found.get((sa.create_engine("sqlite://").dialect, "select")) == "for lite"
    assert found.get((post, "select")) is None


def test_nobody_is_trusted_but_whom_a_test_names():
    assert len(ssl.create_default_context().get_ca_certs()) == 1
