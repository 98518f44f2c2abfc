"""The coordinator: knows which repos exist, has the fleet mirror them, remembers what workers report.

Write before act: a repo or task is in the store before the fleet hears of it. What a crash left unfinished
is given out again at the next start (``resume``). Where repos go is decided by the fleet (fleet.py,
core/fleet). Its parts: tasks.py, reading.py (what workers are asked), followers.py, overview.py; projects are
pulled by pulling.py. The catalog is here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import structlog

from evermirror.core.fleet.decisions import Alert, Assign
from evermirror.core.fleet.events import CatalogChanged
from evermirror.core.keep.choose import choose
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.errors import Conflict, NotFound, UsageError
from evermirror.model.figures import PushHistory
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.messages import Progress, Report, Synced, WorkerStatus
from evermirror.model.plan import StepCode
from evermirror.model.push import Standings
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import Priority, RepoKey, RepoRecord
from evermirror.model.task import TaskId, TaskRecord, Trigger
from evermirror.model.url import UrlRules, parse_url
from evermirror.model.whole import CoursePoint
from evermirror.model.wire import PROTOCOL
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.assigning import Assigning
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.fleet_alerts import FleetAlerts
from evermirror.nodes.coordinator.followers import Followers
from evermirror.nodes.coordinator.overview import Figures
from evermirror.nodes.coordinator.pull.pulling import Lines, Pulling
from evermirror.nodes.coordinator.reading import Reading
from evermirror.nodes.coordinator.tasks.submission import (
    FSCK_ALLOWED,
    allowance,
    apply_info,
    is_url,
    new_record,
    restore_params,
    sync_params,
)
from evermirror.nodes.coordinator.tasks.task_waits import PATIENCE_S
from evermirror.nodes.coordinator.tasks.tasks import Tasks
from evermirror.nodes.service import AddStatus, Holder, Overview, PollPlan, RepoFilter, TaskParams, Upkeep

log = structlog.get_logger(__name__)

ROUTE_S = 1.0  # between two looks at tasks that nobody could be given


class Coordinator:
    """Implements ``CoordinatorService`` and the fleet's ``Listener`` over one store and one fleet."""

    def __init__(
        self,
        *,
        store: Store,
        recorder: Recorder,
        rules: UrlRules,
        credentials: frozenset[str],
        fresh_bound_s: float,
        clock: Callable[[], float],
        observe: Callable[[Report], None] = lambda report: None,
        alerts: FleetAlerts | None = None,
        task_patience_s: float = PATIENCE_S,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._rules = rules
        self._credentials = credentials
        self._clock = clock
        self._observe = observe
        self._fleet: Fleet | None = None
        self.on_left: Callable[[Collection[RepoKey]], None] = lambda keys: None  # of repos that were removed
        self.on_api_change: Callable[[], None] = lambda: None  # a repo was added, changed or removed there
        self._ready = False
        self._tasks = Tasks(store, recorder, lambda: self.fleet, clock, task_patience_s)
        self._reading = Reading(lambda: self.fleet)
        self._followers = Followers(lambda: self.fleet)
        self._statuses: dict[WorkerId, WorkerStatus] = {}
        self._alerts = alerts or FleetAlerts()
        self.figures = Figures(store, self._statuses, fresh_bound_s, clock, self._name_of, self._untrusted)
        self.figures.add_warnings(recorder.warnings)
        self._pulling: Pulling | None = None
        self._assigning = Assigning(store, lambda: self.fleet)
        self.assign, self.unassigned = self._assigning.assign, self._assigning.unassigned
        self._poke = asyncio.Event()
        self.changing = asyncio.Lock()  # a change of the catalog is read, decided and written as one

    # Life

    def lead(self, fleet: Fleet) -> None:
        """The fleet that this coordinator speaks to; it listens to it in turn."""
        self._fleet = fleet
        self.figures.add_warnings(fleet.failed_reports.warnings)

    def pull_with(self, pulling: Pulling) -> None:
        """Who says when projects are synced; it has loaded them."""
        self._pulling = pulling
        self._assigning.pull_with(pulling)

    @property
    def tasks(self) -> Tasks:
        return self._tasks

    @property
    def fleet(self) -> Fleet:
        if self._fleet is None:
            raise RuntimeError("a coordinator leads a fleet before it is asked anything")
        return self._fleet

    async def resume(self) -> None:
        """Give out again what a stop or crash left unfinished."""
        tasks = await self._tasks.resume()
        totals = self.fleet.machine.totals()
        log.info("catalog loaded", repos=totals.repos, unfinished_tasks=len(tasks))
        if self._pulling is not None:
            await self._pulling.resume(tasks)
        self._poke.set()
        self._ready = True

    async def run(self) -> None:
        """Gives tasks to those who can do them, and tells who follows another, until cancelled."""
        while True:
            self._poke.clear()
            await self._tasks.route()
            await self._followers.tell()
            await self._assigning.catch_up(time.monotonic(), self.changing)
            try:
                async with asyncio.timeout(self._tasks.pause_s(ROUTE_S)):
                    await self._poke.wait()
            except TimeoutError:
                continue

    # What the fleet tells

    def reported(self, worker: WorkerId, report: Report) -> None:
        """A report is in the store: whoever waits for it is told."""
        self._observe(report)
        if self._pulling is not None:
            self._pulling.reported(report)  # it asks what the tasks that ended were told
        if self._tasks.reported(report):
            self._poke.set()
        if isinstance(report, Synced) and report.changes_total:
            self._followers.moved(report.key, worker)
            self._poke.set()

    def understood(self, worker: WorkerId, report: Report) -> Report:
        told, report = report, self._tasks.counting(worker, report)
        if report is not told:
            self._poke.set()  # somebody else does it, or it is looked at again soon
        protocol = about.protocol if (about := self.fleet.about(worker)) is not None else PROTOCOL
        return report if self._pulling is None else self._pulling.understood(report, protocol)

    def disbelieved(self, worker: WorkerId, report: Report) -> None:
        if self._tasks.disbelieved(worker, report):
            self._poke.set()  # somebody else does it

    def open_tasks(self, key: RepoKey, ids: Collection[TaskId]) -> tuple[TaskId, ...]:
        """Before ``resume`` it is not known which are open: then all are taken for it."""
        return self._tasks.about(key, ids) if self._ready else tuple(ids)

    def passing(self, worker: WorkerId, progress: Progress) -> None:
        for believed in self._tasks.passing(worker, progress):
            self._observe(believed)

    def behind(self, worker: WorkerId, assign: Assign) -> Iterable[object]:
        return self._tasks.behind(worker, assign)

    def beat(self, worker: WorkerId, status: WorkerStatus) -> None:
        self._observe(status)
        self._statuses[worker] = status
        self.figures.heard(worker, status)

    def gone(self, worker: WorkerId) -> None:
        self._statuses.pop(worker, None)

    def began_anew(self, worker: WorkerId) -> None:
        self._tasks.began_anew(worker)
        self._poke.set()

    def undelivered(self, command: object) -> None:
        self._tasks.undelivered(command)

    def alert(self, alert: Alert) -> None:
        self._alerts.told(alert)

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Those raised since the start and not over."""
        return self._alerts.standing

    @property
    def statuses(self) -> Mapping[WorkerId, WorkerStatus]:
        """What each connected worker last told of itself; changes as they speak."""
        return self._statuses

    def add_warnings(self, source: Callable[[], tuple[str, ...]]) -> None:
        """Something else that people should be told in the overview."""
        self.figures.add_warnings(source)

    # Repos

    async def add_url(
        self, git_url: str, info: Mapping[str, object] | None, *, actor: str
    ) -> tuple[AddStatus, RepoRecord]:
        status, record = await self.put(git_url, info, actor=actor)
        if status is AddStatus.EXISTS and record.key not in self.unassigned:
            return status, record
        await self.follow([record])
        await self.assign([record])
        stored = await self._store.find_repo(record.key)
        return status, stored if stored is not None else record

    async def put(
        self, git_url: str, info: Mapping[str, object] | None, *, actor: str, new: bool = False
    ) -> tuple[AddStatus, RepoRecord]:
        """Into the store; the worker is told by whoever called, together with what else it has to say.
        ``new``: it must not be there yet. What is added anew is no project."""
        url = parse_url(git_url, self._rules)
        async with self.changing:
            known = await self._find_key(url.key)
            if new and known is not None:
                raise Conflict(f"{url.key} is already mirrored", hint="Change its pull configuration instead")
            before = known or new_record(url, await self._store.find_repo(url.key, removed=True))
            record = apply_info(before, info or {}, credentials=self._credentials)
            if known is not None and record == known:
                return AddStatus.EXISTS, known
            if known is None and self._pulling is not None:
                await self._pulling.forget(record.key)
            await self._assigning.store(record)
            if known is not None:
                await self._assigning.hide(known, record)
        status = AddStatus.UPDATED if known is not None else AddStatus.ADDED
        await self._store.audit(actor, f"repo.{status.value}", record.key, {"url": record.spec.url})
        if (record.spec.fsck_allow, record.fsck_reason) != (before.spec.fsck_allow, before.fsck_reason):
            await self._store.audit(actor, FSCK_ALLOWED, record.key, allowance(record))
        self.on_api_change()
        return status, record

    async def pause_repo(self, key_or_url: str, *, paused: bool, actor: str) -> RepoRecord:
        async with self.changing:
            known = await self.find_repo(key_or_url)
            record = apply_info(known, {"enabled": not paused}, credentials=self._credentials)
            if record == known and record.key not in self.unassigned:
                return known
            await self._assigning.store(record)
        await self._store.audit(actor, "repo.paused" if paused else "repo.resumed", record.key, None)
        self.on_api_change()
        await self.follow([record])
        await self.assign([record])
        return await self.find_repo(record.key)

    async def follow(
        self,
        records: Iterable[RepoRecord],
        lines: Lines | None = None,
        overruled: Mapping[RepoKey, Priority] | None = None,
    ) -> set[RepoKey]:
        """See ``Pulling.follow``."""
        return set() if self._pulling is None else await self._pulling.follow(records, lines, overruled)

    async def _find_key(self, key: RepoKey) -> RepoRecord | None:
        """The repo with this key, and none that has it for an alias."""
        record = await self._store.find_repo(key)
        return record if record is not None and record.key == key else None

    async def find_repo(self, key_or_url: str) -> RepoRecord:
        if is_url(key_or_url):
            record = await self._find_key(parse_url(key_or_url, self._rules).key)
        else:
            folded = key_or_url.rstrip("/")
            record = await self._store.find_repo(folded)
            if record is None and folded.endswith(".git"):
                record = await self._store.find_repo(folded.removesuffix(".git"))
        if record is None:
            raise NotFound(f"no repo {key_or_url!r}", hint="Add it with `evermirror add URL`")
        return record

    async def list_repos(self, which: RepoFilter) -> tuple[RepoRecord, ...]:
        return await self._store.list_repos(which)

    async def count_repos(self, which: RepoFilter) -> int:
        return await self._store.count_repos(which)

    async def remove_repo(self, key_or_url: str, *, actor: str, dry_run: bool = False) -> RepoRecord:
        async with self.changing:
            record = await self.find_repo(key_or_url)
            if record.source != "api":
                raise Conflict(
                    f"{record.key} is in the {record.source}, which would bring it back",
                    hint="Remove its line there, or pause it: `evermirror pause KEY`",
                )
            if dry_run:
                return record
            await self.release([record.key])
        await self._store.audit(actor, "repo.removed", record.key, None)
        self.on_api_change()
        return record

    async def release(self, keys: list[RepoKey]) -> None:
        """These left the catalog; workers stop looking at them and keep their mirrors in the trash."""
        await self._store.remove_repos(keys, self._clock())
        self.unassigned.difference_update(keys)
        self._tasks.left(keys)
        self.on_left(keys)
        await self.fleet.tell(CatalogChanged(removed=tuple(keys)))
        if self._pulling is not None:
            await self._pulling.left(keys)

    # Tasks

    async def submit_task(
        self, key_or_url: str, params: TaskParams, *, trigger: Trigger, actor: str, may_add: bool
    ) -> TaskRecord:
        asked = self._tasks.moment
        record = await self._find_or_add(key_or_url, may_add=may_add, actor=actor)
        if not record.enabled:
            raise UsageError(f"{record.key} is paused", hint="Resume it first: `evermirror resume KEY`")
        wanted = sync_params(params)
        if self._pulling is not None:
            pulled = await self._pulling.submit(record.key, trigger, user=actor, params=wanted)
            if pulled is not None:
                return pulled
        task, new = await self._tasks.create_or_join(
            record.key, trigger, user=actor, params=wanted, asked=asked
        )
        if new:
            if record.key in self.unassigned:  # the task goes with it: the first poll is already its own
                await self.assign([record])
            await self._tasks.give(task)
        else:
            self._poke.set()  # where it rested, it is looked at now
        return task

    async def _find_or_add(self, key_or_url: str, *, may_add: bool, actor: str) -> RepoRecord:
        try:
            return await self.find_repo(key_or_url)
        except NotFound:
            if not may_add or not is_url(key_or_url):
                raise
        return (await self.put(key_or_url, None, actor=actor))[1]

    async def get_task(self, task_id: TaskId) -> TaskRecord:
        return await self._tasks.get(task_id)

    async def wait_task(self, task_id: TaskId, timeout_s: float) -> TaskRecord:
        return await self._tasks.wait(task_id, timeout_s)

    async def list_tasks(self, key_or_url: str, limit: int) -> tuple[TaskRecord, ...]:
        return await self._store.list_tasks((await self.find_repo(key_or_url)).key, limit)

    # What upstream threw away, or seems to

    async def history(self, key_or_url: str) -> tuple[KeptTip, ...]:
        return await self._reading.history((await self.find_repo(key_or_url)).key)

    async def restore(
        self, key_or_url: str, ref: str, date: str | None, as_name: str | None, *, actor: str
    ) -> TaskRecord:
        key = (await self.find_repo(key_or_url)).key
        tip = choose(await self.history(key), ref, date)
        params = restore_params(tip.name, as_name)
        task = await self._tasks.create(key, Trigger.API, user=actor, params=params)
        await self._store.audit(actor, "repo.restored-tip", key, {"kept": tip.name, "as": as_name})
        await self._tasks.give(task)
        return task

    async def confirm(self, key_or_url: str, *, actor: str) -> TaskRecord:
        record = await self.find_repo(key_or_url)
        held = await self.guard(record.key)
        at_target = self._pulling is not None and self._pulling.waits_at_target(record.key)
        if held is None and not at_target:
            raise Conflict(f"nothing of {record.key} is held back", hint="Its status says what is the matter")
        reason = held.reason.value if held is not None else "target"
        await self._store.audit(actor, "repo.confirmed", record.key, {"reason": reason})
        asked = TaskParams(accept=True)
        return await self.submit_task(record.key, asked, trigger=Trigger.API, actor=actor, may_add=False)

    async def undelete(self, key_or_url: str, *, actor: str) -> RepoRecord:
        bare = key_or_url.rstrip("/").removesuffix(".git")
        name = parse_url(key_or_url, self._rules).key if is_url(key_or_url) else bare
        async with self.changing:
            known = await self._store.find_repo(name, removed=True) or await self._store.find_removed(name)
            if known is None:
                raise NotFound(f"no repo {key_or_url!r}", hint="Add it with `evermirror add URL`")
            key = known.key
            if await self._find_key(key) is not None and key not in self.unassigned:
                raise Conflict(f"{key} is in the catalog", hint="There is nothing to undelete")
            record = await self._store.restore_repo(key, self._clock())
            self.unassigned.add(key)
            if record.source != "api":  # the catalog it came from would take it away again
                record = replace(record, source="api")
                await self._store.upsert_repos([record])
        await self._store.audit(actor, "repo.undeleted", key, None)
        self.on_api_change()
        await self.follow([record])
        await self.assign([record])
        return record

    # What is known

    async def _known(self, which: str | RepoRecord) -> RepoRecord:
        return which if isinstance(which, RepoRecord) else await self.find_repo(which)

    async def guard(self, which: str | RepoRecord) -> GuardMemory | None:
        return await self._reading.guard((await self._known(which)).key)

    async def upkeep(self, which: str | RepoRecord) -> Upkeep | None:
        return await self._reading.upkeep((await self._known(which)).key)

    async def refs(self, key_or_url: str) -> RefSnapshot:
        return await self._reading.refs((await self.find_repo(key_or_url)).key)

    async def plan(self, which: str | RepoRecord) -> PollPlan:
        key = (await self._known(which)).key
        if self._assigning.waits_for_its_task(key):
            return PollPlan.without_time(StepCode.PROJECT, "cloned by its first task")
        return await self._reading.plan(key)

    async def pushes(self, key: RepoKey, begin: float) -> PushHistory:
        return await self._store.pushes(key, begin)

    async def standings(self, key: RepoKey) -> Standings | None:
        """How its targets are, by the word of the worker that pushes; None where it does not say."""
        return await self._reading.standings(key)

    async def holders(self, which: str | RepoRecord) -> tuple[Holder, ...]:
        return self._reading.holders(await self._known(which))

    async def why(self, key_or_url: str) -> tuple[str, ...]:
        """Why a repo is where it is, in plain lines."""
        return self.fleet.machine.explain((await self.find_repo(key_or_url)).key)

    def ready(self) -> tuple[bool, str]:
        if not self._ready:
            return False, "the catalog is being loaded"
        if not self._recorder.healthy:
            return False, "the database does not take writes"
        return True, "ready"

    async def overview(self) -> Overview:
        return await self.figures.overview()

    async def course(self, hours: int) -> tuple[CoursePoint, ...]:
        return await self.figures.course(hours)

    def _name_of(self, worker: WorkerId) -> str | None:
        who = self.fleet.machine.record(worker)
        return who.facts.name if who is not None else None

    def _untrusted(self, worker: WorkerId) -> str | None:
        """Its name, where it is not trusted."""
        who = self.fleet.machine.record(worker)
        return who.facts.name if who is not None and not who.facts.trusted else None
