"""The coordinator: knows which repos exist, tells workers what to mirror, remembers what they report.

Write before act: a repo or task is in the store before the command about it goes out. What a crash left
unfinished is sent again at the next start (``resume``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from evermirror.core.keep.choose import choose
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import writes_of
from evermirror.errors import Conflict, NotFound, UsageError
from evermirror.model.failure import FailureError
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.messages import (
    AssignRepos,
    Failed,
    Held,
    Progress,
    Refused,
    ReleaseRepos,
    Report,
    Restored,
    Started,
    Synced,
    WorkerStatus,
)
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.model.task import TaskId, TaskRecord, Trigger
from evermirror.model.url import RepoUrl, UrlRules, parse_url
from evermirror.nodes.link import CoordinatorPort, WorkerView
from evermirror.nodes.overview import overview_of
from evermirror.nodes.service import AddStatus, Holder, Overview, PollPlan, RepoFilter, TaskParams, Upkeep
from evermirror.nodes.submission import apply_info, command_of, new_record, restore_params, sync_params

log = structlog.get_logger(__name__)

ASSIGN_CHUNK = 1000  # repos in one AssignRepos: a message of some 200 kB
WAIT_MAX_S = 300.0  # the longest that one request may wait for a task
OVERVIEW_FRESH_S = 1.0  # counts over all repos are made at most once a second
DAY_S = 86_400.0
TASKS_KEPT_S = 30 * DAY_S


class Coordinator:
    """Implements ``CoordinatorService`` over one store and one worker's port."""

    def __init__(
        self,
        *,
        store: Store,
        recorder: Recorder,
        port: CoordinatorPort,
        worker: WorkerView,
        worker_name: str,
        rules: UrlRules,
        credentials: frozenset[str],
        fresh_bound_s: float,
        clock: Callable[[], float],
        observe: Callable[[Report], None] = lambda report: None,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._port = port
        self._worker = worker
        self._worker_name = worker_name
        self._rules = rules
        self._credentials = credentials
        self._fresh_bound_s = fresh_bound_s
        self._clock = clock
        self._observe = observe
        self._more_warnings: list[Callable[[], tuple[str, ...]]] = []
        self.on_api_change: Callable[[], None] = lambda: None  # a repo was added, changed or removed there
        self._started_at = clock()
        self._ready = False
        self._status: WorkerStatus | None = None
        self._pending: dict[RepoKey, TaskRecord] = {}  # the newest task of a repo whose poll has not begun
        self._progress: dict[TaskId, Progress] = {}
        self._ended: dict[TaskId, set[asyncio.Event]] = {}  # one for each who waits
        self._overview: Overview | None = None
        self._unassigned: set[RepoKey] = set()  # in the store, and not told to the worker yet
        self._tasks_held = False
        self.changing = asyncio.Lock()  # a change of the catalog is read, decided and written as one

    # Life

    def hold_tasks(self) -> None:
        """Until ``resume`` tasks are only written down: the worker does not know its repos yet."""
        self._tasks_held = True

    async def resume(self) -> None:
        """Assign every repo of the catalog and send again what a stop or crash left unfinished."""
        removed = await self._store.removed_keys()
        await self._release(removed)
        count = 0
        async for chunk in self._store.iter_specs():
            for start in range(0, len(chunk), ASSIGN_CHUNK):
                part = chunk[start : start + ASSIGN_CHUNK]
                await self._port.command(
                    AssignRepos(tuple(r.spec for r in part), tuple(r.activity for r in part), more=True)
                )
            count += len(chunk)
        await self._port.command(AssignRepos(()))
        self._tasks_held = False  # before the look: a task made from here on is sent by who made it
        tasks = await self._store.unfinished_tasks()
        for task in tasks:
            await self._send(task)
        log.info("catalog loaded", repos=count, unfinished_tasks=len(tasks))
        self._ready = True

    async def run(self) -> None:
        """Takes in reports until cancelled."""
        while True:
            await self.take(await self._port.next_report())

    async def take(self, report: Report) -> None:
        """One report of a worker: remembered first, then told to whoever waits."""
        self._observe(report)
        if isinstance(report, WorkerStatus):
            self._status = report
            self._overview = None
            return
        if isinstance(report, Progress):
            for task_id in report.task_ids:
                self._progress[task_id] = report
            return  # seen live, not worth a write
        if isinstance(report, Started | Synced | Restored | Failed | Refused):
            pending = self._pending.get(report.key)
            if pending is not None and pending.id in report.task_ids:
                del self._pending[report.key]
        await self._recorder.put(*writes_of(report))
        if isinstance(report, Held):
            log.debug("worker told what it holds", repos=len(report.items), last=report.last)
        if isinstance(report, Synced | Restored | Failed | Refused):
            for task_id in report.task_ids:
                self._progress.pop(task_id, None)
            if any(task_id in self._ended for task_id in report.task_ids):
                await self._recorder.flush()
                for task_id in report.task_ids:
                    for event in self._ended.get(task_id, ()):
                        event.set()

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
            await self._store.upsert_repos([record])
            self._unassigned.add(record.key)
        status = AddStatus.UPDATED if known is not None else AddStatus.ADDED
        await self._store.audit(actor, f"repo.{status.value}", record.key, {"url": record.spec.url})
        self.on_api_change()
        return status, record

    async def assign(self, records: list[RepoRecord]) -> None:
        """Tell the worker of repos that are new or whose configuration changed."""
        self._unassigned.difference_update(r.key for r in records)
        specs = [r.spec for r in records if r.enabled]
        for start in range(0, len(specs), ASSIGN_CHUNK):
            await self._port.command(AssignRepos(tuple(specs[start : start + ASSIGN_CHUNK])))
        await self._release([r.key for r in records if not r.enabled], delete=False)

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
        """These left the catalog; the worker stops looking at them and keeps their mirrors in its trash."""
        await self._store.remove_repos(keys, self._clock())
        await self._release(keys)

    async def _release(self, keys: list[RepoKey], *, delete: bool = True) -> None:
        for start in range(0, len(keys), ASSIGN_CHUNK):
            await self._port.command(ReleaseRepos(tuple(keys[start : start + ASSIGN_CHUNK]), delete=delete))

    # Tasks

    async def submit_task(
        self, key_or_url: str, params: TaskParams, *, trigger: Trigger, actor: str, may_add: bool
    ) -> TaskRecord:
        record = await self._find_or_add(key_or_url, may_add=may_add, actor=actor)
        if not record.enabled:
            raise UsageError(f"{record.key} is disabled", hint="Enable it first")
        wanted = sync_params(params)
        task = self._pending.get(record.key)
        if task is None or task.params != wanted:
            task = await self._store.create_task(record.key, trigger, user=actor, params=wanted)
            self._pending[record.key] = task
            if record.key in self._unassigned:  # in one go, so that the first poll is already this task's
                await self.assign([record])
            if not self._tasks_held:
                await self._send(task)
        return task

    async def _find_or_add(self, key_or_url: str, *, may_add: bool, actor: str) -> RepoRecord:
        try:
            return await self.find_repo(key_or_url)
        except NotFound:
            if not may_add or not _is_url(key_or_url):
                raise
        return (await self._put(key_or_url, None, actor=actor))[1]

    async def _send(self, task: TaskRecord) -> None:
        await self._port.command(command_of(task))

    async def get_task(self, task_id: TaskId) -> TaskRecord:
        task = await self._store.get_task(task_id)
        if task is None:
            raise NotFound(f"no task {task_id}", hint="Task ids come from POST /api/tasks")
        progress = self._progress.get(task_id)
        if progress is None or task.status.ended:
            return task
        return replace(task, progress_percent=progress.percent, progress_phase=progress.phase)

    async def wait_task(self, task_id: TaskId, timeout_s: float) -> TaskRecord:
        event = asyncio.Event()
        self._ended.setdefault(task_id, set()).add(event)
        try:
            async with asyncio.timeout(min(timeout_s, WAIT_MAX_S)):
                await self._recorder.flush()
                task = await self.get_task(task_id)
                if not task.status.ended:
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            self._ended[task_id].discard(event)
            if not self._ended[task_id]:
                del self._ended[task_id]
        return await self.get_task(task_id)

    async def list_tasks(self, key_or_url: str, limit: int) -> tuple[TaskRecord, ...]:
        return await self._store.list_tasks((await self.find_repo(key_or_url)).key, limit)

    # What upstream threw away, or seems to

    async def history(self, key_or_url: str) -> tuple[KeptTip, ...]:
        return await self._worker.history((await self.find_repo(key_or_url)).key)

    async def restore(
        self, key_or_url: str, ref: str, date: str | None, as_name: str | None, *, actor: str
    ) -> TaskRecord:
        key = (await self.find_repo(key_or_url)).key
        tip = choose(await self._worker.history(key), ref, date)
        params = restore_params(tip.name, as_name)
        task = await self._store.create_task(key, Trigger.API, user=actor, params=params)
        await self._store.audit(actor, "repo.restored-tip", key, {"kept": tip.name, "as": as_name})
        if not self._tasks_held:
            await self._send(task)
        return task

    async def confirm(self, key_or_url: str, *, actor: str) -> TaskRecord:
        record = await self.find_repo(key_or_url)
        held = self._worker.guard(record.key)
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

    async def guard(self, key_or_url: str) -> GuardMemory | None:
        return self._worker.guard((await self.find_repo(key_or_url)).key)

    async def upkeep(self, key_or_url: str) -> Upkeep | None:
        return await self._worker.upkeep((await self.find_repo(key_or_url)).key)

    # What is known

    async def refs(self, key_or_url: str) -> RefSnapshot:
        return await self._worker.refs((await self.find_repo(key_or_url)).key)

    async def holders(self, key_or_url: str) -> tuple[Holder, ...]:
        record = await self.find_repo(key_or_url)
        if record.digest is None:
            return ()
        return (Holder(self._worker_name, True, record.digest, record.verified_at),)

    async def plan(self, key_or_url: str) -> PollPlan:
        return self._worker.plan((await self.find_repo(key_or_url)).key)

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
            status=self._status,
            warnings=[w for more in self._more_warnings for w in more()],
            started_at=self._started_at,
            now=now,
        )
        return self._overview

    def _parse(self, text: str) -> RepoUrl:
        return parse_url(text, self._rules)


def _is_url(text: str) -> bool:
    """A URL or ``user@host:path``, as against a key or an alias, in which ``@`` is not allowed."""
    return "://" in text or "@" in text
