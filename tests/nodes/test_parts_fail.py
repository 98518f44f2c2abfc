"""Every background part of every role fails once: the process lives, and each part works again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from evermirror.core.pull.events import TaskEnded
from evermirror.core.pull.machine import PullMachine
from evermirror.core.watch.book import AlertBook
from evermirror.edge.rpc.inprocess import InProcessServer
from evermirror.edge.rpc.transport import Identity
from evermirror.errors import ExitCode
from evermirror.model.access import Role
from evermirror.model.alert import Alert
from evermirror.nodes import lifecycle, running, supervisor
from evermirror.nodes.aggregator.aggregator_node import aggregating
from evermirror.nodes.alert_service import AlertFilter
from evermirror.nodes.all_in_one import UpOptions, up
from evermirror.nodes.coordinator import door
from evermirror.nodes.coordinator.coordinator_node import coordinating
from evermirror.nodes.pull_service import NewProject, ProjectChange
from evermirror.nodes.supervisor import Supervisor, Work
from evermirror.nodes.worker.worker_node import working
from tests.support.aggregation import Aggregation, Dial
from tests.support.event_receiver import SECRET, event_receiver
from tests.support.ports import free_port
from tests.support.stage import Running, Stage

FLEET = "fleet"  # has the node made anew, instead of running again
Part = tuple[int, str]  # of which supervisor, and its name


class Injected(Exception):
    """What a test makes a part fail by."""


class Saboteur:
    """Has each part fail once, when ``cut`` is set; ``again`` are those that run again since."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *spared: str) -> None:
        self.begun: set[Part] = set()  # and not ended by themselves
        self.failed: set[Part] = set()
        self.again: set[Part] = set()
        self.cut = asyncio.Event()
        usual: Callable[..., None] = Supervisor.start

        def start(it: Supervisor, name: str, work: Work, **how: object) -> None:
            usual(it, name, work if name in spared else self._sabotaged((id(it), name), work), **how)

        monkeypatch.setattr(Supervisor, "start", start)
        monkeypatch.setattr(supervisor, "PAUSE_FIRST_S", 0.05)
        monkeypatch.setattr(supervisor, "WELL_S", 0.5)

    def _sabotaged(self, part: Part, work: Work) -> Work:
        async def run() -> None:
            if part in self.failed:
                self.again.add(part)
                return await work()
            self.begun.add(part)
            if await self._ended_before_cut(work):
                self.begun.discard(part)
                return None
            self.failed.add(part)
            raise Injected(part[1])

        return run

    async def _ended_before_cut(self, work: Work) -> bool:
        real, cut = asyncio.create_task(work()), asyncio.create_task(self.cut.wait())
        try:
            await asyncio.wait({real, cut}, return_when=asyncio.FIRST_COMPLETED)
            if real.done() and not self.cut.is_set():
                await real
                return True
            return False
        finally:
            for task in (real, cut):
                task.cancel()
            await asyncio.gather(real, cut, return_exceptions=True)

    async def strike(self, *supervisors: Supervisor) -> None:
        """Until every part has failed, runs again, and counts as well."""
        self.cut.set()
        await until(lambda: self.begun == self.failed == self.again)
        await until(lambda: not any(state.failing for it in supervisors for state in it.states()))


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


def names(it: Supervisor) -> set[str]:
    return {state.name for state in it.states()}


async def test_all_parts_of_an_all_in_one_fail_and_work_again(tmp_path, upstream, monkeypatch):
    saboteur = Saboteur(monkeypatch, FLEET)
    monkeypatch.setattr(door, "LOOK_S", 0.05)
    stage = Stage(tmp_path, upstream)
    catalog = tmp_path / "catalog.txt"
    first, second, third = [await asyncio.to_thread(upstream.create, f"team/{n}") for n in "abc"]
    catalog.write_text(f"{first.url}\n")
    with event_receiver() as receiver:
        config = stage.config(
            server={"grpc_listen": f"127.0.0.1:{free_port()}"},
            catalog={"sources": [str(catalog)], "interval": "1s"},
            event_hooks={"ci.url": receiver.url, "ci.secret": SECRET},
        )
        async with up(config, UpOptions()) as node:
            it = Running(node, None, stage)
            await it.until_status("team/a", "active")
            await node.lead.store.create_token("attic", Role.WORKER)
            await until(lambda: node.door.port is not None)
            await saboteur.strike(node.supervisor)
            assert names(node.supervisor) >= {
                "alerts", "bulk orders", "catalog", "certificate", "changes for aggregators",
                "collecting", "credentials", "discovery", "door for workers", "event hook ci",
                "event hooks", "events", "figures", "jobs of pulling", "letters of event hooks",
                "lines to relays", "memory", "pulling", "registration of webhooks", "revoked tokens",
                "tasks", "tidying", "trust in webhooks", "uplink", "webhooks", "worker",
                "worker: commands", "worker: dispatch", "worker: memory", "worker: reports",
                "worker: tidying", "worker: upkeep",
            }  # fmt: skip
            assert not node.supervisor.lost.is_set()
            seen = len(receiver.ids)
            tip = await asyncio.to_thread(first.commit)
            await it.until(lambda: asyncio.sleep(0, it.refs("team/a").get("refs/heads/main") == tip))
            catalog.write_text(f"{first.url}\n{second.url}\n")
            await it.until_status("team/b", "active")
            await node.coordinator.add_url(third.url, {}, actor="me")
            await it.until_status("team/c", "active")
            await until(lambda: len(receiver.ids) > seen)
            await until(lambda: not node.lead.alerting.standing)
            history, _ = await node.lead.store.alert_page(AlertFilter(standing=False))
            assert {record.alert.kind for record in history} == {"part-failing"}


async def test_all_parts_of_a_fleet_of_processes_fail_and_work_again(tmp_path, upstream, monkeypatch):
    saboteur = Saboteur(monkeypatch, FLEET)
    fleet = Aggregation(tmp_path, upstream)
    worker = Identity(101, "attic", Role.WORKER, trusted=True)
    aggregator = Identity(7, "agg", Role.AGGREGATOR, trusted=True)
    async with coordinating(fleet.config("coordinator")) as lead:
        fleet.lead = lead
        async with (
            InProcessServer(lead.lead.reception.serve) as fleet.doorway.server,
            working(fleet.config("attic", worker={"name": "attic"}), Dial(fleet.doorway, worker)) as attic,
            aggregating(fleet.config("aggregator"), Dial(fleet.doorway, aggregator)) as agg,
        ):
            repo, key = await fleet.add("team/a")
            await fleet.until_here(agg, key)
            await saboteur.strike(lead.supervisor, attic.supervisor, agg.supervisor)
            assert names(attic.supervisor) >= {"lines to relays", "uplink", "worker", "worker: dispatch"}
            assert names(agg.supervisor) >= {"collecting", "tidying"}
            await fleet.until_tip(agg, key, await asyncio.to_thread(repo.commit))
            _, other = await fleet.add("team/b")
            await fleet.until_here(agg, other)
            for node in (lead, attic, agg):
                assert node.supervisor.failures
                assert not node.supervisor.lost.is_set()


async def test_a_fleets_mind_that_fails_is_made_anew_with_its_node(tmp_path, upstream, monkeypatch):
    monkeypatch.setattr(running, "ANEW_S", 0.01)
    stage, signals = Stage(tmp_path, upstream), lifecycle.Signals()
    repo = await asyncio.to_thread(upstream.create, "team/a")
    lives: list[str] = []

    async def one_life() -> bool:
        async with up(stage.config(), UpOptions()) as node:
            it = Running(node, None, stage)
            if lives:
                tip = await asyncio.to_thread(repo.commit)
                await it.until(lambda: asyncio.sleep(0, it.refs("team/a").get("refs/heads/main") == tip))
                signals.stop.set()
            else:
                await node.coordinator.add_url(repo.url, {}, actor="me")
                await it.until_status("team/a", "active")
                node.lead.fleet.machine.settings = None  # its next tick fails by that
            lives.append(node.url)
            return await running.until_stopped(signals, node.supervisor.lost, lambda: None)

    async with asyncio.timeout(60):
        assert await running.live(signals, one_life) == ExitCode.OK
    assert len(lives) == 2


async def test_alerting_that_fails_is_shown_and_goes_on_from_what_is_stored(tmp_path, upstream, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSE_FIRST_S", 0.05)
    stage = Stage(tmp_path, upstream)
    usual, odd = AlertBook.handle, [True]

    def handle(book, event, now):
        if odd and getattr(getattr(event, "alert", None), "about", "") == "bad":
            raise KeyError("a bug")
        return usual(book, event, now)

    monkeypatch.setattr(AlertBook, "handle", handle)
    async with up(stage.config(), UpOptions()) as node:
        alerting = node.lead.alerting
        alerting.told(Alert("discovery-failed", "good", "it is so"))
        await until(lambda: [r.alert.about for r in alerting.standing] == ["good"])
        alerting.told(Alert("discovery-failed", "bad", "and that too"))
        await until(lambda: node.supervisor.failures)
        overview = await node.coordinator.overview()
        assert any("alerts: this part of the process fails (KeyError" in text for text in overview.warnings)
        odd.clear()
        alerting.told(Alert("discovery-failed", "bad", "and that too"))
        about = {"good", "bad", "alerts"}
        await until(lambda: {r.alert.about for r in alerting.standing} == about)
        assert not node.supervisor.lost.is_set()


async def test_pulling_that_fails_reloads_its_projects_and_goes_on(tmp_path, upstream, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSE_FIRST_S", 0.05)
    stage = Stage(tmp_path, upstream)
    repo = await asyncio.to_thread(upstream.create, "team/a")
    usual, odd = PullMachine.handle, [True]

    def handle(machine, event, now):
        if odd and isinstance(event, TaskEnded):
            odd.clear()
            raise KeyError("a bug")
        return usual(machine, event, now)

    monkeypatch.setattr(PullMachine, "handle", handle)
    async with up(stage.config(), UpOptions()) as node:
        new = NewProject("a", repo.url, None, ProjectChange())
        await node.lead.pull.create_project(new, actor="me")
        first = node.lead.pulling.machine
        await until(lambda: node.supervisor.failures)

        async def has_synced() -> bool:
            return (await node.lead.pull.find_project("a")).project.last_sync_at is not None

        await Running(node, None, stage).until(has_synced)
        assert node.lead.pulling.machine is not first
