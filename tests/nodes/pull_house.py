"""A house that pulls: the coordinator of test_coordinator.py with the pull machine, over a real store, and a
scripted worker that says what the test wants."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC

from evermirror.core.fleet.table import TRUSTED_ONLY
from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.settings import PullSettings
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.model.messages import Started, Synced, SyncNow
from evermirror.model.pull import TargetSpec
from evermirror.model.push import Pushed
from evermirror.model.refs import Oid, RefsDigest
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskStatus
from evermirror.model.url import UrlRules
from evermirror.nodes.coordinator.pull.pull_admin import PullAdmin, PullAdminSettings
from evermirror.nodes.coordinator.pull.pull_jobs import JobSettings, PullJobs
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.pull_service import NewProject, ProjectChange
from tests.nodes.test_coordinator import DIGEST, TIP, Clock, House, synced
from tests.support.alert_book import BookAlerts

PUT = RefsDigest("e" * 64)
HOST = "git.example.org"


@contextlib.asynccontextmanager
async def built(kind, folder):
    """A house of this kind, where nobody is yet; its store and all in it go by one clock."""
    clock = Clock()
    store = await Store.open(f"sqlite:///{folder / 'db'}", clock=clock)
    try:
        async with Recorder(store, flush_s=0.01) as recorder:
            house = kind(store, recorder)
            house.clock = clock
            yield house
    finally:
        await store.close()


class PullHouse(House):
    """``project`` and ``admin`` are what people have; ``syncs`` what the worker was told."""

    settings = PullSettings()

    async def furnish(self):
        self.alerts = BookAlerts(self.clock)
        self.pulling = Pulling(
            PullMachine(self.settings, UTC),
            store=self.store,
            recorder=self.recorder,
            tasks=self.it.tasks,
            alerts=self.alerts,
            clock=self.clock,
        )
        await self.pulling.load()
        self.it.pull_with(self.pulling)
        self.it.add_warnings(self.alerts.warnings)
        known = PullAdminSettings(UrlRules(), frozenset({"corp", "push"}), "UTC")
        self.it._credentials = known.credentials
        self.admin = PullAdmin(
            known,
            store=self.store,
            coordinator=self.it,
            pulling=self.pulling,
            syncing=self.pulling.syncing,
            clock=self.clock,
        )

    @contextlib.asynccontextmanager
    async def running(self, holds=()):
        async with super().running(holds):
            await self.it.resume()
            work = asyncio.create_task(self.pulling.run())
            try:
                yield self
                assert not work.done(), work
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    def jobs(self, **more):
        settings = JobSettings(UTC, 30 * 86_400.0, **more)
        return PullJobs(
            settings,
            store=self.store,
            pulling=self.pulling,
            alerts=self.alerts,
            syncing=self.pulling.syncing,
            clock=self.clock,
        )

    # What people do

    async def create(self, name, *targets, url=None, credential=None, **change):
        specs = tuple(t if isinstance(t, TargetSpec) else TargetSpec(t) for t in targets)
        new = NewProject(
            name, url or f"https://{HOST}/{name}", credential, ProjectChange(targets=specs, **change)
        )
        return await self.admin.create_project(new, actor="me")

    async def change(self, name, **change):
        return await self.admin.change_project(name, ProjectChange(**change), actor="me")

    async def project(self, name):
        await self.quiet()
        return (await self.admin.find_project(name)).project

    async def later(self, seconds):
        """Time passes, and who sleeps is woken."""
        await self.quiet()
        self.clock.now += seconds
        self.pulling._poke.set()
        await self.quiet()

    async def quiet(self):
        """Until everything that was told is decided, stored and sent."""
        await self.told()
        async with asyncio.timeout(10):
            while True:
                await asyncio.sleep(0.03)  # a wake, and what follows from it
                async with self.pulling.changing.patient:
                    if not self.pulling._inbox:
                        break
        await self.told()

    # What the worker does

    async def syncs(self):
        """What it was told to sync since the last time."""
        await self.quiet()
        return [command for command in await self.commands() if isinstance(command, SyncNow)]

    async def one_sync(self):
        (command,) = await self.syncs()
        return command

    async def began(self, command):
        await self.take(Started(command.key, (command.task_id,), self.clock.now))
        await self.quiet()

    async def did(self, command, *, moved=True, pushed=True, failure=None, **more):
        """A sync that succeeded, with its pushes; ``failure`` is of each of them."""
        pushes = tuple(pushed_to(to, failure) for to in command.push) if pushed else ()
        report = done(command, self.clock.now, moved=moved, pushes=pushes)
        await self.take(replace(report, **more))
        await self.quiet()

    def needs_trust(self, key):
        """Whether only trusted workers may hold it."""
        table = self.fleet.machine._table
        return bool(table.flags[table.row_of(key)] & TRUSTED_ONLY)

    async def status(self, task_id):
        return (await self.it.get_task(task_id)).status


def done(command, at, *, moved=True, pushes=()):
    report = synced(command.task_id, key=command.key, moved=moved, at=at)
    assert isinstance(report, Synced)
    return replace(report, pushes=pushes, look_s=0.1)


def pushed_to(to, failure=None):
    if failure is not None:
        return Pushed(to.target, None, failure=failure)
    return Pushed(to.target, PUT, Oid(TIP), put_total=1)


def key_of(name):
    return RepoKey(f"{HOST}/{name}")


__all__ = ["DIGEST", "HOST", "PUT", "PullHouse", "TaskStatus", "done", "key_of", "pushed_to"]
