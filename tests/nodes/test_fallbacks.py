"""A repo with a second address, through a whole node and two real git servers."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evermirror.core.schedule import detours
from evermirror.model.messages import ReleaseRepos
from evermirror.model.repo import RepoKey
from tests.support.gitrepo import UpstreamRepo
from tests.support.upstream import UpstreamServer

SLOW = {"min_gap": "1h"}  # only what a test asks for is looked at


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[UpstreamServer]:
    """The other server."""
    with UpstreamServer(tmp_path / "spare") as server:
        yield server


def copied(repo: UpstreamRepo, spare: UpstreamServer) -> UpstreamRepo:
    target = spare.root / f"{repo.name}.git"
    shutil.copytree(repo.path, target)
    return UpstreamRepo(target, repo.name, spare.url(f"{repo.name}.git"))


def listed(tmp_path, upstream, spare, *urls, **sections):
    """Settings of a node whose catalog has these addresses of one repo."""
    first, *more = urls
    file = tmp_path / "urls.txt"
    file.write_text(" ".join([first, *(f"fallback={url}" for url in more)]) + "\n")
    allow = {"allow": [upstream.host, spare.host], "schemes": ["http"]}
    return {"catalog": {"sources": [str(file)]}, "upstreams": allow, "schedule": SLOW} | sections


async def shown(up, name):
    return (await up.client.get(f"/api/repos/{up.key(name)}")).json()


async def synced(up, name, **params):
    task = await up.sync(name, **params)
    return (await up.client.get(f"/api/tasks/{task['task_id']}")).json()


async def test_a_repo_that_is_gone_is_cloned_and_followed_from_its_fallback(stage, upstream, spare, tmp_path):
    repo = upstream.create("team/x")
    twin = copied(repo, spare)
    upstream.delete(repo)
    async with stage.up(**listed(tmp_path, upstream, spare, repo.url, twin.url)) as up:
        await up.until_status("team/x", "active")
        assert up.refs("team/x") == twin.public_refs()
        twin.commit()
        assert (await synced(up, "team/x"))["status"] == "success"
        assert up.refs("team/x") == twin.public_refs()
        seen = await shown(up, "team/x")
        assert (seen["git_url"], seen["source_url"], seen["fallbacks"]) == (repo.url, twin.url, [twin.url])
        assert (seen["consecutive_failures"], seen["last_error"], seen["pins"]) == (0, None, [])


async def test_a_server_that_stops_answering_is_replaced_within_the_attempt_that_found_out(
    stage, upstream, spare, tmp_path
):
    repo = upstream.create("team/x")
    twin = copied(repo, spare)
    async with stage.up(**listed(tmp_path, upstream, spare, repo.url, twin.url)) as up:
        await up.until_status("team/x", "active")
        assert (await shown(up, "team/x"))["source_url"] == repo.url
        assert not spare.requests, "the fallback is left alone while the first address answers"
        upstream.drop_connection = True
        twin.commit()
        task = await synced(up, "team/x")
        assert (task["status"], task["result"]["changes_total"]) == ("success", 1)
        assert up.refs("team/x") == twin.public_refs()
        assert (await shown(up, "team/x"))["source_url"] == twin.url


async def test_a_transfer_that_breaks_goes_on_at_the_fallback(stage, upstream, spare, tmp_path):
    repo = upstream.create("team/x")
    repo.big_blob(400_000)
    twin = copied(repo, spare)
    upstream.drop_after_bytes = 100_000  # the list of refs is shorter
    async with stage.up(**listed(tmp_path, upstream, spare, repo.url, twin.url)) as up:
        await up.until_status("team/x", "active")
        assert up.refs("team/x") == twin.public_refs()
        assert (await shown(up, "team/x"))["source_url"] == twin.url


async def test_the_first_address_wins_again_when_it_is_back(stage, upstream, spare, tmp_path, monkeypatch):
    monkeypatch.setattr(detours, "HOME_FIRST_S", 0.0)
    repo = upstream.create("team/x")
    twin = copied(repo, spare)
    upstream.drop_connection = True
    async with stage.up(**listed(tmp_path, upstream, spare, repo.url, twin.url)) as up:
        await up.until_status("team/x", "active")
        upstream.heal()
        repo.commit()
        assert (await synced(up, "team/x"))["status"] == "success"
        assert up.refs("team/x") == repo.public_refs() != twin.public_refs()
        assert (await shown(up, "team/x"))["source_url"] == repo.url


async def test_when_every_address_fails_the_caller_and_the_repo_are_told_once_and_of_all(
    stage, upstream, spare, tmp_path
):
    repo = upstream.create("team/x")
    twin = copied(repo, spare)
    async with stage.up(**listed(tmp_path, upstream, spare, repo.url, twin.url)) as up:
        await up.until_status("team/x", "active")
        before = up.refs("team/x")
        upstream.delete(repo)
        spare.delete(twin)
        task = await synced(up, "team/x")
        assert task["status"] == "failure"
        seen = await shown(up, "team/x")
        assert (seen["status"], seen["consecutive_failures"]) == ("gone", 1)
        assert up.refs("team/x") == before
        record = await up.repo("team/x")
        assert repo.url in record.last_failure.context["addresses"]
        assert twin.url in record.last_failure.context["addresses"]


@pytest.mark.parametrize("what", ["unrelated", "emptied"])
async def test_a_fallback_that_shows_something_else_is_held_back(stage, upstream, spare, tmp_path, what):
    repo = upstream.create("team/x", commits=5)
    other = spare.create("team/x", commits=0)
    if what == "unrelated":
        other.bulk_commits(5, when=1_600_000_000)
    async with stage.up(**listed(tmp_path, upstream, spare, repo.url, other.url)) as up:
        await up.until_status("team/x", "active")
        before = up.refs("team/x")
        upstream.drop_connection = True
        assert (await synced(up, "team/x"))["status"] == "failure"
        assert up.refs("team/x") == before == repo.public_refs()
        seen = await shown(up, "team/x")
        assert (seen["status"], seen["held"]["reason"]) == ("held", what)
        assert seen["source_url"] == repo.url


async def test_a_fallback_in_a_forbidden_network_is_not_reached(stage, upstream, spare, tmp_path):
    repo = upstream.create("team/x")
    twin = copied(repo, spare)
    sections = listed(tmp_path, upstream, spare, repo.url, twin.url)
    async with stage.up(**sections) as up:
        await up.until_status("team/x", "active")
    upstream.drop_connection = True
    sections["upstreams"]["allow"] = [upstream.host]  # the catalog is not read anew: the worker must check
    del sections["catalog"]
    async with stage.up(**sections) as up:
        assert (await synced(up, "team/x"))["status"] == "failure"
        assert not spare.requests


async def test_the_credential_of_the_first_address_is_not_shown_to_the_fallback(
    stage, upstream, spare, tmp_path
):
    repo = upstream.create("team/x")
    twin = copied(repo, spare)
    upstream.require_basic("me", "a-secret-word")
    sections = listed(
        tmp_path, upstream, spare, repo.url, twin.url,
        credentials={"mine.username": "me", "mine.password": "a-secret-word"},
    )  # fmt: skip
    file = tmp_path / "urls.txt"
    file.write_text(file.read_text().strip() + " credential=mine\n")
    async with stage.up(**sections) as up:
        await up.until_status("team/x", "active")
        assert any("authorization" in r.headers for r in upstream.requests)
        upstream.drop_connection = True
        twin.commit()
        assert (await synced(up, "team/x"))["status"] == "success"
        assert spare.requests
        assert not any("authorization" in r.headers for r in spare.requests)


async def test_several_callers_share_the_round_that_goes_on_elsewhere_and_each_is_answered(
    stage, upstream, spare, tmp_path
):
    repo = upstream.create("team/x")
    twin = copied(repo, spare)
    async with stage.up(**listed(tmp_path, upstream, spare, repo.url, twin.url)) as up:
        await up.until_status("team/x", "active")
        upstream.drop_connection = True
        upstream.delay_s = 0.3
        twin.commit()
        tasks = await asyncio.gather(*(synced(up, "team/x") for _ in range(5)))
        statuses = [task["status"] for task in tasks]
        assert statuses[0] == "success"
        assert set(statuses) <= {
            "success",
            "skipped",
        }  # skipped: asked after the round began, so looked again
        assert up.node.worker._rounds.open == {}


@pytest.mark.parametrize("moment", ["asked there", "waiting for it"])
async def test_a_repo_released_while_its_round_goes_on_elsewhere_leaves_nothing(
    stage, upstream, spare, tmp_path, moment
):
    repo = upstream.create("team/x")
    twin = copied(repo, spare)
    upstream.drop_connection = True
    upstream.delay_s = 1.0 if moment == "waiting for it" else 0.2  # time to see that it is asked
    spare.delay_s = 10.0  # it is not waited for
    async with stage.up(**listed(tmp_path, upstream, spare, repo.url, twin.url)) as up:
        engine, key = up.node.worker, up.key("team/x")

        async def reached():
            if key not in engine._scheduler:
                return False
            if moment == "waiting for it" and upstream.requests:
                engine._scheduler.take = lambda now: None  # no host may be asked
                return engine._scheduler.address(key) == twin.url
            return bool(spare.requests)

        await up.until(reached)
        assert key in engine._rounds.open
        await engine.obey(ReleaseRepos((RepoKey(key),), delete=True))
        assert (engine._rounds.open, engine._rounds._jobs.tasks) == ({}, {})
        assert (engine._scheduler.polls_in_flight, engine._scheduler.hosts(0.0)) == (0, ())
        assert bool(spare.requests) == (moment == "asked there")
