"""Node exporters move the limit: watched, told, logged; and one that falls silent is said once."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from evermirror.core.pull.node_load import NodeSample
from evermirror.edge.prometheus.node_exporter import NodeExporter, NotTold
from evermirror.model.pull import Load, LoadLevel
from evermirror.nodes.coordinator.pull.load_watch import LoadWatch
from tests.support.exporter import real_exporter, served_exporter
from tests.support.stage import Running, Stage

pytestmark = pytest.mark.timeout(120)


class Scripted:
    """An exporter that is as busy as the test says; None: it does not answer."""

    def __init__(self, name: str = "a:9100") -> None:
        self.name = name
        self.percent: float | None = 10.0
        self._busy_s = self._idle_s = 0.0

    async def look(self, at: float) -> NodeSample:
        if self.percent is None:
            raise NotTold("connection refused")
        self._busy_s += self.percent
        self._idle_s += 100 - self.percent
        return NodeSample(at, cpus={"0": {"user": self._busy_s, "idle": self._idle_s}})


class Watched:
    def __init__(self, *exporters: Scripted) -> None:
        self.told: list[Load] = []
        self.now = 0.0
        self.watch = LoadWatch(exporters, 15.0, self.told.append, lambda: self.now)

    async def look(self) -> list[Load]:
        """What is told of it."""
        before = len(self.told)
        self.now += 15.0
        await self.watch.look()
        return self.told[before:]


async def test_the_second_look_is_the_first_that_tells():
    watched = Watched(Scripted())
    assert await watched.look() == []
    assert await watched.look() == [Load(LoadLevel.LOW, "cpu 10 %")]


async def test_the_worst_of_several_is_told():
    calm, busy = Scripted("a:9100"), Scripted("b:9100")
    busy.percent = 95.0
    watched = Watched(calm, busy)
    await watched.look()
    assert await watched.look() == [Load(LoadLevel.HIGH, "cpu 95 % (the busiest of 2 nodes)")]


async def test_silence_and_return_are_said_once_and_silence_tells_nothing():
    exporter, other = Scripted("a:9100"), Scripted("b:9100")
    watched = Watched(exporter, other)
    await watched.look()
    exporter.percent = other.percent = None
    with capture_logs() as logs:
        for _ in range(3):
            assert await watched.look() == []
        other.percent = 50.0
        assert await watched.look() == [Load(LoadLevel.NORMAL, "cpu 50 %")]
        await watched.look()
    said = [(log["event"], log["exporter"]) for log in logs]
    assert said == [
        ("a node exporter tells no load", "a:9100"),
        ("a node exporter tells no load", "b:9100"),
        ("a node exporter tells load again", "b:9100"),
    ]


async def test_without_exporters_there_is_nothing_to_do():
    async with asyncio.timeout(1):
        await LoadWatch([], 15.0, [].append).run()


async def test_one_that_does_not_answer_does_not_hold_up_another(monkeypatch):
    hanging = Scripted("a:9100")
    all_asked = asyncio.Barrier(3)  # nobody passes before all hang: one after the other, none ever would

    async def look(at):
        await all_asked.wait()
        raise NotTold("no answer within 5 s")

    hanging.look = look
    watched = Watched(hanging, hanging, hanging, Scripted("b:9100"))
    async with asyncio.timeout(20):  # at once, and not one after the other
        await watched.look()
        assert len(await watched.look()) == 1


async def strategy(up: Running) -> dict:
    return (await up.client.get("/api/pull/strategy")).json()


async def test_a_busy_source_lowers_the_limit_step_by_step_and_a_calm_one_raises_it(stage: Stage):
    async with served_exporter(percent=95.0) as served:
        pull = {"load_metrics": [served.url], "load_every": "1s"}
        with capture_logs() as logs:
            async with stage.up(pull=pull) as up:
                up.node.lead.pulling.machine._pace._adaptive._period_s = 1.0  # a minute otherwise
                answer = await up.client.put(
                    "/api/pull/strategy", json={"max_concurrent_pulls": 5, "enable_adaptive": True}
                )
                assert answer.status_code == 200

                seen = []

                async def limit_is(limit: int) -> bool:
                    seen.append(await strategy(up))
                    return seen[-1]["current_limit"] == limit

                await up.until(lambda: limit_is(2))  # where it stays: a look may come too late for a step
                loads = [told["load"] for told in seen if told["current_limit"] < 5]
                assert all(load["level"] == "high" for load in loads)
                assert loads[-1]["reason"].startswith("cpu 95 %, 50 % of memory available")
                served.percent = 5.0
                await up.until(lambda: limit_is(5))
    steps = [log["event"] for log in logs if "at once" in log["event"]]
    down = [n for n, step in enumerate(steps) if "load high (cpu 95 %" in step]
    assert [steps[n].split(" at once")[0] for n in down][-3:] == [
        "up to 4",
        "up to 3",
        "up to 2",
    ]
    assert any(step.startswith("up to 3 at once, all classes") for step in steps)
    up_again = [step.split(" at once")[0] for step in steps[down[-1] + 1 :]]
    assert up_again[-3:] == ["up to 3", "up to 4", "up to 5"]


async def test_memory_that_is_nearly_full_lowers_it_too(stage: Stage):
    async with (
        served_exporter(percent=5.0, available=0.02) as served,
        stage.up(pull={"load_metrics": [served.url], "load_every": "1s"}) as up,
    ):

        async def is_high() -> bool:
            load = (await strategy(up))["load"]
            return load is not None and load["level"] == "high"

        await up.until(is_high)
        assert "2 % of memory available" in (await strategy(up))["load"]["reason"]


async def test_the_real_exporter_is_watched(stage: Stage):
    with real_exporter() as url:
        async with stage.up(pull={"load_metrics": [url], "load_every": "1s"}) as up:

            async def is_known() -> bool:
                return (await strategy(up))["load"] is not None

            await up.until(is_known)
            assert (await strategy(up))["load"]["reason"].startswith("cpu ")


async def test_an_exporter_that_fails_leaves_the_load_to_our_own_polls(stage: Stage):
    async with served_exporter(status=503) as served:
        with capture_logs() as logs:
            async with stage.up(pull={"load_metrics": [served.url], "load_every": "1s"}) as up:

                async def asked_twice() -> bool:
                    return served.looks >= 2

                await up.until(asked_twice)
                assert (await strategy(up))["load"] is None
    said = [log for log in logs if log["event"] == "a node exporter tells no load"]
    assert [log["reason"] for log in said] == ["it answers HTTP 503"]


def test_exporters_are_made_from_settings(stage: Stage):
    from evermirror.nodes.coordinator.pull.load_watch import make_load_watch

    config = stage.config(pull={"load_metrics": ["http://a:9100/metrics", "https://b/metrics"]})
    watch = make_load_watch(config, lambda load: None)
    assert [exporter.name for exporter in watch._exporters] == ["a:9100", "b"]
    assert all(isinstance(exporter, NodeExporter) for exporter in watch._exporters)
