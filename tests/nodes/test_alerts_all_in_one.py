"""Alerts in one process: from a target that is in conflict to real receivers, through restarts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evermirror.edge.store.store import Store
from tests.nodes.test_pull_all_in_one import Pulls, allowing, target_of
from tests.support.gitrepo import UpstreamRepo
from tests.support.http_sink import HttpSink, Reply, http_sink
from tests.support.stage import Running, Stage
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.timeout(120)

SECRET = "hunter2-of-the-webhook"


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[UpstreamServer]:
    """Where the targets are."""
    with UpstreamServer(tmp_path / "forge") as server:
        yield server


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    """Where messages go."""
    with http_sink() as it:
        yield it


def hook(name: str, url: str) -> dict[str, object]:
    """Of targets alone: one project that fails is also a rate of 100 %."""
    kinds = ["target-*"]
    return {f"{name}.type": "webhook", f"{name}.url": url, f"{name}.secret": SECRET, f"{name}.kinds": kinds}


def messages(sink: HttpSink) -> list[tuple[str, str, str]]:
    """Of all that came: what it tells, the kind, and whom it is about."""
    bodies = [json.loads(request.body) for request in sink.taken]
    return [(item["turn"], item["kind"], item["about"]) for body in bodies for item in body["alerts"]]


async def until(sink: HttpSink, count: int, within_s: float = 60.0) -> list[tuple[str, str, str]]:
    async with asyncio.timeout(within_s):
        while len(messages(sink)) < count:
            await asyncio.sleep(0.02)
    return messages(sink)


class Scene:
    """A project whose target holds what somebody else put there."""

    def __init__(self, stage: Stage, forge: UpstreamServer) -> None:
        self.stage = stage
        self.forge = forge
        self.source = stage.upstream.create("team/x")

    def conflict(self, name: str) -> UpstreamRepo:
        target = target_of(self.forge, name)
        other = self.stage.upstream.create(f"other/{name}", commits=2)
        target.git("fetch", "-q", str(other.path), "refs/heads/main:refs/heads/main")
        return target

    def up(self, **channels: object):
        return self.stage.up(upstreams=allowing(self.stage.upstream, self.forge), channels=channels)


async def alerts(up: Running, **query: str) -> list[dict]:
    answer = await up.client.get("/api/alerts", params={"kind": "target-conflict", **query})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


async def test_a_conflict_is_told_once_through_restarts_and_so_is_its_end(stage, forge, sink):
    scene = Scene(stage, forge)
    target = scene.conflict("x")
    about = f"x → {target.url}"
    async with scene.up(**hook("ops", f"{sink.base}/hook")) as up:
        await Pulls(up).create("x", scene.source, target)
        assert await until(sink, 1) == [("raised", "target-conflict", about)]
        (standing,) = await alerts(up)
        assert (standing["kind"], standing["about"]) == ("target-conflict", about)
    assert SECRET.encode() not in b"".join(request.body for request in sink.taken)
    for _ in range(2):
        async with scene.up(**hook("ops", f"{sink.base}/hook")) as up:
            assert [a["id"] for a in await alerts(up)] == [standing["id"]]
            await Pulls(up).trigger("x")  # it fails again
            assert any("a person is needed" in w for w in up.node.lead.alerting.warnings())
            await asyncio.sleep(0.3)
    assert len(messages(sink)) == 1
    async with scene.up(**hook("ops", f"{sink.base}/hook")) as up:
        answer = await up.client.post("/api/pull/projects/x/targets/adopt", json={"url": target.url})
        assert answer.status_code == 200, answer.text
        assert (await until(sink, 2))[1] == ("over", "target-conflict", about)
        assert await alerts(up) == []
        (ended,) = await alerts(up, state="all")
        assert (ended["id"], ended["ended_at"] is not None) == (standing["id"], True)


async def test_what_ended_while_nobody_ran_is_told_at_the_next_start(stage, forge, sink):
    scene = Scene(stage, forge)
    target = scene.conflict("x")
    async with scene.up(**hook("ops", f"{sink.base}/hook")) as up:
        await Pulls(up).create("x", scene.source, target)
        await until(sink, 1)
        (project,) = await up.node.lead.store.load_projects()
    store = await Store.open(stage.config().store_url)
    well = replace(project, targets=tuple(replace(t, failures=0) for t in project.targets), failures=0)
    await store.put_projects([well])
    await store.close()
    async with scene.up(**hook("ops", f"{sink.base}/hook")):
        assert (await until(sink, 2))[1][0] == "over"


async def test_a_dead_channel_delays_no_other_and_is_told_when_it_lives(stage, forge, sink):
    scene = Scene(stage, forge)
    with http_sink(Reply(status=503, delay_s=5.0)) as slow:
        channels = hook("ops", f"{sink.base}/hook") | hook("slow", f"{slow.base}/hook")
        channels |= hook("gone", "http://127.0.0.1:9/hook")
        async with scene.up(**channels) as up:
            began = time.monotonic()
            await Pulls(up).create("x", scene.source, scene.conflict("x"))
            await until(sink, 1)
            await Pulls(up).create("y", stage.upstream.create("team/y"), scene.conflict("y"))
            await until(sink, 2)
            assert time.monotonic() - began < 40.0

            async def channels() -> dict[str, dict]:
                items = (await up.client.get("/api/alerts/channels")).json()["items"]
                return {channel["name"]: channel for channel in items}

            async def noted() -> bool:  # the receiver has a message a moment before its answer is here
                now = await channels()
                return now["ops"]["waiting"] == 0 and bool(now["gone"]["error"])

            await up.until(noted)
            shown = await channels()
            assert shown["ops"]["waiting"] == 0
            assert shown["slow"]["waiting"] >= 1
            assert shown["gone"]["error"]
            stopping = time.monotonic()
        assert time.monotonic() - stopping < 30.0
        channels = hook("ops", f"{sink.base}/hook") | hook("gone", f"{sink.base}/other")
        sink.taken.clear()
        async with scene.up(**channels):
            told = await until(sink, 2)
        assert {turn for turn, _, _ in told} == {"raised"}
        assert {request.target for request in sink.taken} == {"/other"}


async def test_channels_are_taken_over_from_the_settings_without_a_restart(stage, forge, sink):
    scene = Scene(stage, forge)
    async with scene.up() as up:
        refused = await up.client.post("/api/alerts/test", json={})
        assert refused.status_code == 409, refused.text
        up.node.reload(lambda: stage.config(channels=hook("ops", f"{sink.base}/hook")))

        async def is_there() -> bool:
            return bool((await up.client.get("/api/alerts/channels")).json()["items"])

        await up.until(is_there)
        tried = (await up.client.post("/api/alerts/test", json={"channel": "ops"})).json()["items"]
        assert [(one["channel"], one["sent"]) for one in tried] == [("ops", True)]
        await Pulls(up).create("x", scene.source, scene.conflict("x"))
        assert [turn for turn, _, _ in await until(sink, 2)] == ["test", "raised"]


async def test_a_backup_holds_the_alerts(stage, forge, sink, tmp_path):
    scene = Scene(stage, forge)
    async with scene.up(**hook("ops", f"{sink.base}/hook")) as up:
        await Pulls(up).create("x", scene.source, scene.conflict("x"))
        await until(sink, 1)
        (standing,) = await alerts(up)
        await up.node.lead.store.backup(tmp_path / "backup.db")
    copy = await Store.open(f"sqlite:///{tmp_path}/backup.db")
    restored = await copy.load_alerts()
    await copy.close()
    assert [record.id for record in restored.standing] == [standing["id"]]
    assert [notice.channel for notice in restored.notices] == ["ops"]
