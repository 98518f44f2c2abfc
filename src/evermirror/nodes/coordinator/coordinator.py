"""The coordinator: knows which repos exist, has the fleet mirror them, remembers what workers report.

Write before act: a repo or task is in the store before the fleet hears of it. What a crash left unfinished
is given out again at the next start (``resume``). Where repos go is decided by the fleet (fleet.py,
core/fleet). Its parts: tasks.py, reading.py (what workers are asked), followers.py. The catalog is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import structlog

from evermirror.core.fleet.decisions import Alert, Assign
from evermirror.core.fleet.events import CatalogChanged, CatalogRepo
from evermirror.core.keep.choose import choose
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.errors import Conflict, NotFound, UsageError
from evermirror.model.failure import FailureError
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.messages import (
    Progress,
    Report,
    Synced,
    WorkerStatus,
)
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.model.task import TaskId, TaskRecord, Trigger
from evermirror.model.url import RepoUrl, UrlRules, parse_url
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.followers import Followers
from evermirror.nodes.coordinator.overview import overview_of
from evermirror.nodes.coordinator.reading import Reading
from evermirror.nodes.coordinator.submission import apply_info, new_record, restore_params, sync_params
from evermirror.nodes.coordinator.tasks import Tasks
from evermirror.nodes.service import AddStatus, Holder, Overview, PollPlan, RepoFilter, TaskParams, Upkeep

log = structlog.get_logger(__name__)

OVERVIEW_FRESH_S = 1.0  # counts over all repos are made at most once a second
ROUTE_S = 1.0  # between two looks at tasks that nobody could be given
ALERTS_MAX = 100  # standing ones that are shown
DAY_S = 86_400.0
TASKS_KEPT_S = 30 * DAY_S


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
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._rules = rules
        self._credentials = credentials
        self._fresh_bound_s = fresh_bound_s
        self._clock = clock
        self._observe = observe
        self._fleet: Fleet | None = None
        self._more_warnings: list[Callable[[], tuple[str, ...]]] = []
        self.on_api_change: Callable[[], None] = lambda: None  # a repo was added, changed or removed there
        self._started_at = clock()
        self._ready = False
        self._tasks = Tasks(store, recorder, lambda: self.fleet, clock)
        self._reading = Reading(lambda: self.fleet)
        self._followers = Followers(lambda: self.fleet)
        self._statuses: dict[WorkerId, WorkerStatus] = {}
        self._alerts: dict[tuple[str, str], Alert] = {}
        self._overview: Overview | None = None
        self._unassigned: set[RepoKey] = set()  # in the store, and not told to the fleet yet
        self._poke = asyncio.Event()
        self.changing = asyncio.Lock()  # a change of the catalog is read, decided and written as one

    # Life

    def lead(self, fleet: Fleet) -> None:
        """The fleet that this coordinator speaks to; it listens to it in turn."""
        self._fleet = fleet

    @property
    def fleet(self) -> Fleet:
        if self._fleet is None:
            raise RuntimeError("a coordinator leads a fleet before it is asked anything")
        return self._fleet

    async def resume(self) -> None:
        """Give out again what a stop or crash left unfinished."""
        tasks = await self._tasks.resume()
        totals = self.fleet.machine.totals()
        log.info("catalog loaded", repos=totals.repos, unfinished_tasks=tasks)
        self._poke.set()
        self._ready = True

    async def run(self) -> None:
        """Gives tasks to those who can do them, and tells who follows another, until cancelled."""
        while True:
            self._poke.clear()
            await self._tasks.route()
            await self._followers.tell()
            try:
                async with asyncio.timeout(ROUTE_S):
                    await self._poke.wait()
            except TimeoutError:
                continue

    # What the fleet tells

    def reported(self, worker: WorkerId, report: Report) -> None:
        """A report is in the store: whoever waits for it is told."""
        self._observe(report)
        self._tasks.reported(report)
        if isinstance(report, Synced) and report.changes_total:
            self._followers.moved(report.key, worker)
            self._poke.set()

    def open_tasks(self, key: RepoKey, ids: Collection[TaskId]) -> tuple[TaskId, ...]:
        """Before ``resume`` it is not known which are open: then all are taken for it."""
        return self._tasks.about(key, ids) if self._ready else tuple(ids)

    def passing(self, worker: WorkerId, progress: Progress) -> None:
        self._observe(progress)
        self._tasks.passing(progress)

    def behind(self, worker: WorkerId, assign: Assign) -> Iterable[object]:
        return self._tasks.behind(worker, assign)

    def beat(self, worker: WorkerId, status: WorkerStatus) -> None:
        self._observe(status)
        self._statuses[worker] = status

    def gone(self, worker: WorkerId) -> None:
        self._statuses.pop(worker, None)

    def began_anew(self, worker: WorkerId) -> None:
        self._tasks.began_anew(worker)
        self._poke.set()

    def undelivered(self, command: object) -> None:
        self._tasks.undelivered(command)

    def alert(self, alert: Alert) -> None:
        about = (alert.kind.value, alert.about)
        if alert.over:
            self._alerts.pop(about, None)
            log.info(alert.text, alert_over=alert.kind.value, about=alert.about)
            return
        log.warning(alert.text, alert=True, kind=alert.kind.value, about=alert.about)
        if len(self._alerts) < ALERTS_MAX:
            self._alerts[about] = alert

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Those raised since the start and not over."""
        return tuple(self._alerts.values())

    @property
    def statuses(self) -> Mapping[WorkerId, WorkerStatus]:
        """What each connected worker last told of itself; changes as they speak."""
        return self._statuses

    async def keep_house(self) -> None:
        """Removes old tasks, once a day; the rest of the history stays."""
        while True:
            try:
                removed = await self._store.cleanup_tasks(self._clock() - TASKS_KEPT_S)
                if removed:
                    log.info("old tasks removed", tasks=removed)
            except FailureError as error:
                log.warning("old tasks not removed", reason=error.failure.message)
            await asyncio.sleep(DAY_S)

    def add_warnings(self, source: Callable[[], tuple[str, ...]]) -> None:
        """Something else that people should be told in the overview."""
        self._more_warnings.append(source)

    # Repos

    async def add_url(
        self, git_url: str, info: Mapping[str, object] | None, *, actor: str
    ) -> tuple[AddStatus, RepoRecord]:
        status, record = await self._put(git_url, info, actor=actor)
        if status is AddStatus.EXISTS:
            return status, record
        await self.assign([record])
        stored = await self._store.find_repo(record.key)
        return status, stored if stored is not None else record

    async def _put(
        self, git_url: str, info: Mapping[str, object] | None, *, actor: str
    ) -> tuple[AddStatus, RepoRecord]:
        """Into the store; the worker is told by whoever called, together with what else it has to say."""
        url = self._parse(git_url)
        async with self.changing:
            known = await self._find_key(url.key)
            before = known or new_record(url, await self._store.find_repo(url.key, removed=True))
            record = apply_info(before, info or {}, credentials=self._credentials)
            if known is not None and record == known:
                return AddStatus.EXISTS, known
            self._unassigned.add(record.key)  # before anybody can find it
            try:
                await self._store.upsert_repos([record])
            except BaseException:
                self._unassigned.discard(record.key)
                raise
        status = AddStatus.UPDATED if known is not None else AddStatus.ADDED
        await self._store.audit(actor, f"repo.{status.value}", record.key, {"url": record.spec.url})
        self.on_api_change()
        return status, record

    async def assign(self, records: list[RepoRecord]) -> None:
        """Have the fleet hold repos that are new, or hear of what changed about them."""
        self._unassigned.difference_update(r.key for r in records)
        await self.fleet.tell(CatalogChanged(put=tuple(catalog_repo(r) for r in records)))

    async def _find_key(self, key: RepoKey) -> RepoRecord | None:
        """The repo with this key, and none that has it for an alias."""
        record = await self._store.find_repo(key)
        return record if record is not None and record.key == key else None

    async def find_repo(self, key_or_url: str) -> RepoRecord:
        record = None
        if _is_url(key_or_url):
            record = await self._find_key(self._parse(key_or_url).key)
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

    async def remove_repo(self, key_or_url: str, *, actor: str) -> RepoRecord:
        async with self.changing:
            record = await self.find_repo(key_or_url)
            if record.source != "api":
                raise Conflict(
                    f"{record.key} is in the {record.source}, which would bring it back",
                    hint='Remove its line there, or disable it: additional_info {"enabled": false}',
                )
            await self.release([record.key])
        await self._store.audit(actor, "repo.removed", record.key, None)
        self.on_api_change()
        return record

    async def release(self, keys: list[RepoKey]) -> None:
        """These left the catalog; workers stop looking at them and keep their mirrors in the trash."""
        await self._store.remove_repos(keys, self._clock())
        self._tasks.left(keys)
        await self.fleet.tell(CatalogChanged(removed=tuple(keys)))

    # Tasks

    async def submit_task(
        self, key_or_url: str, params: TaskParams, *, trigger: Trigger, actor: str, may_add: bool
    ) -> TaskRecord:
        record = await self._find_or_add(key_or_url, may_add=may_add, actor=actor)
        if not record.enabled:
            raise UsageError(f"{record.key} is disabled", hint="Enable it first")
        wanted = sync_params(params)
        task, new = await self._tasks.create_or_join(record.key, trigger, user=actor, params=wanted)
        if new:
            if record.key in self._unassigned:  # the task goes with it: the first poll is already its own
                await self.assign([record])
            await self._tasks.give(task)
        return task

    async def _find_or_add(self, key_or_url: str, *, may_add: bool, actor: str) -> RepoRecord:
        try:
            return await self.find_repo(key_or_url)
        except NotFound:
            if not may_add or not _is_url(key_or_url):
                raise
        return (await self._put(key_or_url, None, actor=actor))[1]

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
        if held is None:
            raise Conflict(f"nothing of {record.key} is held back", hint="Its status says what is the matter")
        await self._store.audit(actor, "repo.confirmed", record.key, {"reason": held.reason.value})
        asked = TaskParams(accept=True)
        return await self.submit_task(record.key, asked, trigger=Trigger.API, actor=actor, may_add=False)

    async def undelete(self, key_or_url: str, *, actor: str) -> RepoRecord:
        bare = RepoKey(key_or_url.rstrip("/").removesuffix(".git"))
        key = self._parse(key_or_url).key if _is_url(key_or_url) else bare
        async with self.changing:
            if await self._find_key(key) is not None:
                raise Conflict(f"{key} is in the catalog", hint="There is nothing to undelete")
            if await self._store.find_repo(key, removed=True) is None:
                raise NotFound(f"no repo {key_or_url!r}", hint="Add it with `evermirror add URL`")
            record = await self._store.restore_repo(key, self._clock())
            if record.source != "api":  # the catalog it came from would take it away again
                record = replace(record, source="api")
                await self._store.upsert_repos([record])
        await self._store.audit(actor, "repo.undeleted", key, None)
        self.on_api_change()
        await self.assign([record])
        return record

    # What is known

    async def guard(self, key_or_url: str) -> GuardMemory | None:
        return await self._reading.guard((await self.find_repo(key_or_url)).key)

    async def upkeep(self, key_or_url: str) -> Upkeep | None:
        return await self._reading.upkeep((await self.find_repo(key_or_url)).key)

    async def refs(self, key_or_url: str) -> RefSnapshot:
        return await self._reading.refs((await self.find_repo(key_or_url)).key)

    async def plan(self, key_or_url: str) -> PollPlan:
        return await self._reading.plan((await self.find_repo(key_or_url)).key)

    async def holders(self, key_or_url: str) -> tuple[Holder, ...]:
        return self._reading.holders(await self.find_repo(key_or_url))

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
        now = self._clock()
        if self._overview is not None and now - self._overview.now < OVERVIEW_FRESH_S:
            return self._overview
        counts = await self._store.overview_counts()
        stale = await self._store.worst_verified()
        self._overview = overview_of(
            counts=counts,
            fresh_repos=await self._store.count_fresh(now, self._fresh_bound_s),
            stale=stale,
            statuses=self._statuses.values(),
            warnings=[w for more in self._more_warnings for w in more()],
            started_at=self._started_at,
            now=now,
        )
        return self._overview

    def _parse(self, text: str) -> RepoUrl:
        return parse_url(text, self._rules)


def catalog_repo(record: RepoRecord) -> CatalogRepo:
    """What placement must know of a repo."""
    spec = record.spec
    return CatalogRepo(spec.key, trusted_only=spec.private or spec.credential is not None, pins=record.pins)


def _is_url(text: str) -> bool:
    """A URL or ``user@host:path``, as against a key or an alias, in which ``@`` is not allowed."""
    return "://" in text or "@" in text
