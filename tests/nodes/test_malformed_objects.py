"""Malformed objects through whole nodes: refused once, allowed by a person, taken over by other nodes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from evermirror.core.collect.events import End
from evermirror.edge.git.classify import CAUSE, MALFORMED
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import RepoKey
from evermirror.nodes.aggregator.attempts import Attempts, _Course
from tests.support.aggregation import Aggregation
from tests.support.defects import RECIPES
from tests.support.gitrepo import read_refs

NAME = "bad/x"


def fetches(upstream) -> int:
    return sum(b"command=fetch" in request.body for request in upstream.requests)


async def audited(up) -> list[tuple[str, str, object]]:
    records = await up.node.coordinator._store.list_audit(50)
    return [(r.actor, r.subject, r.detail) for r in records if r.action == "repo.fsck-allowed"]


async def test_a_refused_repo_says_what_to_do_and_is_mirrored_once_that_is_done(stage, upstream):
    repo = upstream.create(NAME, commits=1)
    RECIPES["hasDotgit"]().put_into(repo)
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status(NAME, "failing")
        told = (await up.client.get(f"/api/repos/{up.key(NAME)}")).json()
        error = told["last_error"]
        assert "hasDotgit: a folder has an entry named .git" in error["error_message"]
        assert f"evermirror allow {up.key(NAME)} hasDotgit --reason WHY" in error["hint"]
        asked = fetches(upstream)
        for _ in range(3):
            task = await up.sync(NAME)
            ended = (await up.client.get(f"/api/tasks/{task['task_id']}")).json()
            assert ended["status"] == "failure"
            assert ended["result"]["error_message"] == error["error_message"]
        assert fetches(upstream) == asked  # the pack came once
        await up.sync(NAME, force=True)
        assert fetches(upstream) == asked + 1

        body = {"git_url": repo.url, "additional_info": {"fsck_allow": ["hasDotgit"]}}
        refused = await up.client.post("/api/git_urls", json=body)
        assert (refused.status_code, "fsck_reason" in refused.text) == (422, True)
        await up.add(repo.url, fsck_allow=["hasDotgit"], fsck_reason="a fixture of tests")
        await up.until_status(NAME, "active")  # without anybody asking for a sync
        assert up.refs(NAME) == repo.public_refs()
        told = (await up.client.get(f"/api/repos/{up.key(NAME)}")).json()
        assert (told["fsck_allow"], told["fsck_reason"]) == (["hasDotgit"], "a fixture of tests")
        (entry,) = await audited(up)
        assert entry[1:] == (up.key(NAME), {"allow": ["hasDotgit"], "reason": "a fixture of tests"})
        await up.add(repo.url, fsck_allow=None, fsck_reason=None)
        assert (await audited(up))[0][2] == {"allow": [], "reason": None}


async def test_a_catalog_allows_what_its_line_says_and_the_audit_log_says_where(stage, upstream, tmp_path):
    repo = upstream.create(NAME, commits=1)
    RECIPES["gitmodulesName"]().put_into(repo)
    file = tmp_path / "urls.txt"
    file.write_text(f"\n{repo.url} fsck_allow=gitmodulesName fsck_reason=vendored\n")
    async with stage.up(catalog={"sources": [str(file)]}) as up:
        await up.until_status(NAME, "active")
        assert up.refs(NAME) == repo.public_refs()
        detail = {"allow": ["gitmodulesName"], "reason": "vendored", "file": str(file), "line": 2}
        assert await audited(up) == [("catalog", up.key(NAME), detail)]
        refused = await up.client.post(
            "/api/git_urls", json={"git_url": repo.url, "additional_info": {"fsck_reason": None}}
        )
        assert (refused.status_code, "fsck_reason" in refused.text) == (422, True)
        file.write_text(f"{repo.url} fsck_allow=gitmodulesName fsck_reason=vendored interval=2h\n")
        await reread(up, interval_s=7200.0)
        assert len(await audited(up)) == 1, "what is allowed is as it was"
        file.write_text(f"{repo.url} interval=3h\n")
        await reread(up, interval_s=10800.0)
        detail = {"allow": [], "reason": None, "file": str(file), "line": 1}
        assert (await audited(up))[0] == ("catalog", up.key(NAME), detail)
        await up.add(repo.url, fsck_reason=None)
        file.write_text(f"{repo.url} fsck_allow=gitmodulesName fsck_reason=vendored interval=4h\n")
        await reread(up, interval_s=14400.0)
        assert (await audited(up))[0][2]["reason"] == "vendored"


async def reread(up, interval_s: float) -> None:
    up.node.catalog.look_now()

    async def holds() -> bool:
        return (await up.node.coordinator.find_repo(up.key(NAME))).spec.interval_s == interval_s

    await up.until(holds)


@pytest.fixture
def fleet(tmp_path, upstream):
    return Aggregation(tmp_path, upstream)


@pytest.mark.parametrize("name", ["hasDotgit", "gitmodulesUrl", "duplicateEntries"])
async def test_an_aggregator_takes_what_the_worker_was_allowed_to(fleet, name):
    async with fleet.coordinator(), fleet.worker("w1") as worker, fleet.aggregator() as node:
        repo = await asyncio.to_thread(fleet.upstream.create, NAME, 1)
        key = f"{fleet.upstream.host}/{NAME}"
        RECIPES[name]().put_into(repo)
        await fleet.register(repo.url, fsck_allow=[name], fsck_reason="known")
        await fleet.until_here(node, key)
        paths = worker.mirror_path(RepoKey(key)), node.side.mirrors.path(RepoKey(key))
        assert all(public(path) == repo.public_refs() for path in paths)
        RECIPES["badDate"]().put_into(repo)  # a small change, by the short way
        await fleet.until(lambda: has(paths[1], repo))


def public(path) -> dict[str, str]:
    return {name: oid for name, oid in read_refs(path).items() if not name.startswith("refs/evermirror/")}


async def has(path, repo) -> bool:
    return public(path) == repo.public_refs()


@pytest.mark.parametrize(
    ("context", "end"),
    [
        (
            {"fsck_id": "hasDotgit"},
            End.HOLDER_AWAY,
        ),  # allowed there before, or an older git
        ({"fsck_id": "ofALaterGit"}, End.HOLDER_AWAY),
        ({"fsck_id": "badTree"}, End.CORRUPT),  # no git takes it
        ({}, End.CORRUPT),
    ],
)
async def test_a_holder_is_not_accused_of_what_it_may_have_taken_honestly(context, end):
    failure = Failure(FailureKind.UNKNOWN, "malformed", context={CAUSE: MALFORMED, **context})
    course = _Course(1, SimpleNamespace(key="h.example/x"), 0.0)
    attempt = await Attempts._of_git(SimpleNamespace(), course, SimpleNamespace(), failure)
    assert attempt.end is end
