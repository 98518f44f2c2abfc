"""A coordinator in memory: enough of the service to show how HTTP treats it."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace

from evermirror.core.keep.choose import choose
from evermirror.errors import Conflict, InvalidUrl, NotFound
from evermirror.model.access import TokenRecord
from evermirror.model.messages import HostState, RunningSync
from evermirror.model.refs import Oid, RefSnapshot
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger
from evermirror.nodes.service import AddStatus, Holder, Overview, PollPlan, TaskParams, Upkeep

_URL = re.compile(r"(?:https?://)?([a-z0-9.-]+\.[a-z]+(?::[0-9]+)?)/([A-Za-z0-9._~/+-]+)")


def key_of(text):
    found = _URL.fullmatch(text)
    if not found or ".." in text:
        raise InvalidUrl("this is not a URL of a repository", hint="Use https://host/owner/name")
    return RepoKey(f"{found[1]}/{found[2].rstrip('/').removesuffix('.git')}")


class FakeCoordinator:
    def __init__(self):
        self.repos = {}
        self.tasks = {}
        self.changed = asyncio.Condition()
        self.is_ready = (True, "")
        self.running = ()
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
        try:
            return self.repos[key_of(key_or_url)]
        except KeyError:
            raise NotFound(f"{key_or_url} is not here") from None

    async def list_repos(self, which):
        found = [
            r
            for k, r in sorted(self.repos.items())
            if which.search in k
            and (which.status is None or r.status is which.status)
            and (not which.host or r.spec.host == which.host)
            and (which.after is None or k > which.after)
        ]
        return tuple(found[: which.limit])

    async def remove_repo(self, key_or_url, *, actor):
        record = await self.find_repo(key_or_url)
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
        return PollPlan(time.time() + 60, "adaptive: pushed 3 times a day", 600.0, time.time())

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

    async def undelete(self, key_or_url, *, actor):
        key = key_of(key_or_url)
        if key in self.repos:
            raise Conflict(f"{key} is in the catalog")
        if key not in self.removed:
            raise NotFound(f"{key} is not here")
        self.audit.append((actor, "undelete", key))
        self.repos[key] = self.removed.pop(key)
        return self.repos[key]

    async def overview(self):
        by_status = {s.value: 0 for s in RepoStatus}
        for record in self.repos.values():
            by_status[record.status.value] += 1
        return Overview(
            total_repos=len(self.repos), by_status=by_status, by_priority={"normal": len(self.repos)},
            fresh_repos=by_status["active"], worst_lag_s=12.5, polls_total=7, polls_per_second=1.5,
            changes_total=3, received_bytes_total=12345, running=self.running, queued_syncs=2,
            hosts=(HostState("slow.example.org", 3, "waiting", time.time() + 60, "429"),),
            failures_by_kind={"NOT_FOUND": 1}, disk_free_bytes=10**9, disk_total_bytes=10**10,
            accepting_clones=True, warnings=(), started_at=time.time() - 60, now=time.time(),
        )  # fmt: skip

    def ready(self):
        return self.is_ready

    def set(self, key, **changes):
        self.repos[key] = replace(self.repos[key], **changes)

    def run_sync(self, key, percent):
        self.running = (RunningSync(RepoKey(key), "receiving", percent, 1000, time.time()),)


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

    async def list_tokens(self):
        return tuple(self.known.values())


class ManualClock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now
