"""A coordinator in memory: enough of the service to show how HTTP treats it."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace

from evermirror.core.keep.choose import choose
from evermirror.errors import Conflict, InvalidUrl, NotFound
from evermirror.model.access import TokenRecord
from evermirror.model.figures import PushHistory
from evermirror.model.messages import HostState, RunningSync
from evermirror.model.refs import Oid, RefSnapshot
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger
from evermirror.model.whole import ClassFreshness, CoursePoint, FailureCount, Work
from evermirror.nodes.service import AddStatus, Holder, Overview, PollPlan, Running, TaskParams, Upkeep

_URL = re.compile(r"(?:https?://)?([a-z0-9.-]+\.[a-z]+(?::[0-9]+)?)/([A-Za-z0-9._~/+-]+)")


def key_of(text):
    found = _URL.fullmatch(text)
    if not found or ".." in text:
        raise InvalidUrl("this is not a URL of a repository", hint="Use https://host/owner/name")
    return RepoKey(f"{found[1]}/{found[2].rstrip('/').removesuffix('.git')}")


def _least_first(value):
    """What never happened is before all that did."""
    return (value is not None, value or 0)


class FakeCoordinator:
    def __init__(self):
        self.repos = {}
        self.tasks = {}
        self.push_history = PushHistory((), (), None)
        self.plan_told = PollPlan(time.time() + 60, "adaptive: pushed 3 times a day", 600.0, None)
        self.within = []  # of each task: how long its commit is looked for
        self.changed = asyncio.Condition()
        self.is_ready = (True, "")
        self.running = ()
        self.started_at = time.time() - 60
        self.overviews = 0  # that were asked for
        self.audit = []
        self.refs_of = {}
        self.explode = None
        self.guards = {}
        self.kept = {}
        self.removed = {}

    async def add_url(self, git_url, info, *, actor):
        key = key_of(git_url)
        self.audit.append((actor, "add", key))
        now = time.time()
        if key in self.repos:
            old = self.repos[key]
            new = replace(old, info={**old.info, **(info or {})})
            if new.info == old.info:
                return AddStatus.EXISTS, old
            self.repos[key] = new
            return AddStatus.UPDATED, new
        spec = RepoSpec(key, git_url if "://" in git_url else f"https://{key}", Host(key.partition("/")[0]))
        spec = replace(spec, private=bool((info or {}).get("private")))
        self.repos[key] = RepoRecord(spec, info=dict(info or {}), created_at=now, updated_at=now)
        return AddStatus.ADDED, self.repos[key]

    async def find_repo(self, key_or_url):
        if self.explode:
            raise self.explode
        if isinstance(key_or_url, RepoRecord):
            return key_or_url
        try:
            return self.repos[key_of(key_or_url)]
        except KeyError:
            raise NotFound(f"{key_or_url} is not here") from None

    async def list_repos(self, which):
        found = self._selected(which)
        place = (_least_first(which.after_value), which.after or "")
        if which.after is not None and which.sort.descending:
            found = [r for r in found if (_least_first(which.sort.value_of(r)), r.key) < place]
        elif which.after is not None:
            found = [r for r in found if (_least_first(which.sort.value_of(r)), r.key) > place]
        return tuple(found[: which.limit])

    async def count_repos(self, which):
        return len(self._selected(which))

    def _selected(self, which):
        found = [
            r
            for k, r in self.repos.items()
            if which.search in k
            and which.status in (None, r.status)
            and which.host in ("", r.spec.host)
            and which.priority in (None, r.spec.priority)
            and which.worker in ("", "here")  # as ``holders`` says
            and (which.failure is None or (r.last_failure and r.last_failure.kind is which.failure))
            and not (which.public and r.spec.private)
        ]

        def place(record):
            return _least_first(which.sort.value_of(record)), record.key

        return sorted(found, key=place, reverse=which.sort.descending)

    async def remove_repo(self, key_or_url, *, actor, dry_run=False):
        record = await self.find_repo(key_or_url)
        if dry_run:
            return record
        self.audit.append((actor, "remove", record.key))
        self.removed[record.key] = self.repos.pop(record.key)
        return record

    async def submit_task(self, key_or_url, params, *, trigger, actor, may_add):
        key = key_of(key_or_url)
        if key not in self.repos:
            if not may_add:
                raise NotFound(f"{key} is not in the catalog")
            await self.add_url(key_or_url, None, actor=actor)
        now = time.time()
        task = TaskRecord(
            TaskId(len(self.tasks) + 1), key, TaskStatus.PENDING, trigger, actor,
            params={"force": params.force, "min_commit": params.min_commit, "priority": params.priority},
            created_at=now, updated_at=now,
        )  # fmt: skip
        self.tasks[task.id] = task
        self.within.append(params.within_s)
        return task

    async def change_task(self, task_id, **changes):
        async with self.changed:
            self.tasks[task_id] = replace(self.tasks[task_id], **changes)
            self.changed.notify_all()

    async def get_task(self, task_id):
        if task_id not in self.tasks:
            raise NotFound(f"no task {task_id}")
        return self.tasks[task_id]

    async def wait_task(self, task_id, timeout_s):
        try:
            async with asyncio.timeout(timeout_s), self.changed:
                await self.changed.wait_for(lambda: self.tasks[task_id].status.ended)
        except TimeoutError:
            pass
        return self.tasks[task_id]

    async def list_tasks(self, key_or_url, limit):
        key = (await self.find_repo(key_or_url)).key
        return tuple(sorted((t for t in self.tasks.values() if t.repo == key), key=lambda t: -t.id)[:limit])

    async def refs(self, key_or_url):
        key = (await self.find_repo(key_or_url)).key
        return self.refs_of.get(key, RefSnapshot({"refs/heads/main": Oid("a" * 40)}, "refs/heads/main"))

    async def holders(self, key_or_url):
        await self.find_repo(key_or_url)
        return (Holder("here", True, "d" * 64, time.time()),)

    async def why(self, key_or_url):
        await self.find_repo(key_or_url)
        return ("1 of 1 wanted copies are placed.",)

    async def plan(self, key_or_url):
        await self.find_repo(key_or_url)
        return replace(self.plan_told, last_poll_at=time.time())

    async def pushes(self, key, begin):
        self.pushes_since = begin
        return self.push_history

    async def guard(self, key_or_url):
        return self.guards.get((await self.find_repo(key_or_url)).key)

    async def upkeep(self, key_or_url):
        await self.find_repo(key_or_url)
        return Upkeep(2, 0, 3, 4096, 0, True, time.time(), None)

    async def history(self, key_or_url):
        return self.kept.get((await self.find_repo(key_or_url)).key, ())

    async def restore(self, key_or_url, ref, date, as_name, *, actor):
        key = (await self.find_repo(key_or_url)).key
        tip = choose(self.kept.get(key, ()), ref, date)
        self.audit.append((actor, "restore", tip.name, as_name))
        return await self.submit_task(key, TaskParams(), trigger=Trigger.API, actor=actor, may_add=False)

    async def confirm(self, key_or_url, *, actor):
        key = (await self.find_repo(key_or_url)).key
        if key not in self.guards:
            raise Conflict(f"nothing of {key} is held back")
        self.audit.append((actor, "confirm", key))
        return await self.submit_task(key, TaskParams(), trigger=Trigger.API, actor=actor, may_add=False)

    async def pause_repo(self, key_or_url, *, paused, actor):
        record = await self.find_repo(key_or_url)
        self.audit.append((actor, "pause" if paused else "resume", record.key))
        self.repos[record.key] = replace(record, enabled=not paused)
        return self.repos[record.key]

    async def undelete(self, key_or_url, *, actor):
        key = key_of(key_or_url)
        if key in self.repos:
            raise Conflict(f"{key} is in the catalog")
        if key not in self.removed:
            raise NotFound(f"{key} is not here")
        self.audit.append((actor, "undelete", key))
        self.repos[key] = self.removed.pop(key)
        return self.repos[key]

    async def course(self, hours):
        classes = {Priority.HIGH: ClassFreshness(2, 1, 12.5)}
        first = CoursePoint.of(1_765_670_100.0 - hours * 3600, classes, 3, None)
        return first, CoursePoint.of(1_765_670_100.0, classes, 1, Work(10, 2, 3000))

    async def overview(self):
        self.overviews += 1
        by_status = {s.value: 0 for s in RepoStatus}
        for record in self.repos.values():
            by_status[record.status.value] += 1
        return Overview(
            total_repos=len(self.repos), by_status=by_status, by_priority={"normal": len(self.repos)},
            fresh_repos=by_status["active"], worst_lag_s=12.5, polls_total=7, polls_per_second=1.5,
            changes_total=3, received_bytes_total=12345, running=self.running, queued_syncs=2,
            hosts=(HostState("slow.example.org", 3, "waiting", self.started_at + 120, "429"),),
            failures=(FailureCount("NOT_FOUND", 1, (RepoKey("example.org/gone"),)),),
            disk_free_bytes=10**9, disk_total_bytes=10**10, accepting_clones=True, warnings=(),
            started_at=self.started_at, now=self.started_at + 60, fresh_bound_s=300.0,
            freshness={Priority.HIGH: ClassFreshness(2, 1, 12.5)}, never_verified=1, changes_per_minute=2.5,
            received_bytes_per_second=77.0,
        )  # fmt: skip

    def ready(self):
        return self.is_ready

    def set(self, key, **changes):
        self.repos[key] = replace(self.repos[key], **changes)

    def run_sync(self, key, percent):
        self.running = (Running(RunningSync(RepoKey(key), "receiving", percent, 1000, time.time()), "w1"),)


class FakeTokens:
    """Tokens by their plain text; ``lookups`` counts the looks into the store."""

    def __init__(self):
        self.known = {}
        self.lookups = 0

    def add(self, plain, role):
        self.known[plain] = TokenRecord(len(self.known) + 1, f"{role.value}-1", role, False, time.time())
        return plain

    async def find_token(self, plain):
        self.lookups += 1
        return self.known.get(plain)

    async def any_user_token(self):
        return any(not t.role.of_node and t.revoked_at is None for t in self.known.values())


class ManualClock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now
