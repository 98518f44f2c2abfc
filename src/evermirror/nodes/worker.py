"""The worker: polls what it is assigned, syncs what moved, and reports. It stands on its own.

    commands ──▶ _obey ──▶ Scheduler ◀── _dispatch ──▶ _poll ──same──────────────▶ Verified (batched)
                                                         └──moved──▶ _sync ──────▶ Synced | Failed

It goes on while nobody listens: reports wait in the port. Its memory is a small local file; the mirrors on
disk are the truth, so a lost file costs polls, never a clone.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from evermirror.core.schedule.callers import Asked, Callers
from evermirror.core.schedule.disk import DiskGuard
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.probe import Prober, Seen, Unchanged
from evermirror.edge.git.progress import GitProgress
from evermirror.edge.store.local import LocalState
from evermirror.errors import NotFound
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.memory import RepoMemory
from evermirror.model.messages import (
    ApplySettings,
    AssignRepos,
    Command,
    Excused,
    Failed,
    Held,
    HeldRepo,
    HostState,
    Progress,
    Refused,
    Released,
    ReleaseRepos,
    Started,
    Synced,
    SyncNow,
    Verified,
    WorkerStatus,
)
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId
from evermirror.nodes.link import WorkerPort
from evermirror.nodes.rounds import Mirrored, Round, digest_of, moved, nothing_moved, without
from evermirror.nodes.service import PollPlan

log = structlog.get_logger(__name__)

SLEEP_MAX_S = 60.0  # a clock that was set back must not keep the dispatcher asleep for long
TELL_S = 0.5  # progress of running syncs
STATUS_S = 2.0
SAVE_S = 2.0  # a crash forgets at most this much of what polls taught
TIDY_S = 3600.0
HELD_CHUNK = 1000
VERIFIED_CHUNK = 2000
SHOWN_MAX = 50  # running syncs and hosts named in a status
STOP_GRACE_S = 5.0  # running syncs are given this long to end when the worker stops
LAST_WORDS_S = 10.0  # at a stop, for what is still to be told to a coordinator that may not listen


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What a worker is made of; everything that reaches outside is passed in."""

    port: WorkerPort
    scheduler: Scheduler
    prober: Prober
    mirrors: Mirrors
    local: LocalState
    disk: DiskGuard
    clock: Callable[[], float]
    chance: random.Random


class Worker:
    """``run`` until cancelled; it then gives running syncs a moment and leaves nothing half-written."""

    def __init__(self, parts: WorkerParts, settings: ScheduleSettings) -> None:
        self._port = parts.port
        self._scheduler = parts.scheduler
        self._prober = parts.prober
        self._mirrors = parts.mirrors
        self._local = parts.local
        self._disk = parts.disk
        self._clock = parts.clock
        self._chance = parts.chance
        self._settings = settings
        self._callers = Callers()
        self._asked: dict[TaskId, SyncNow] = {}
        self._repos: dict[RepoKey, Mirrored] = {}
        self._memories: dict[RepoKey, RepoMemory] = {}  # of repos not assigned yet
        self._arriving: list[Entry] = []  # assigned in chunks of which the last is not here yet
        self._here: set[RepoKey] = set()
        self._rounds: dict[RepoKey, Round] = {}
        self._jobs: dict[RepoKey, asyncio.Task[None]] = {}
        self._verified: dict[RepoKey, float] = {}
        self._unsaved: set[RepoKey] = set()
        self._poke = asyncio.Event()
        self._stopping = False
        self._polls_total = self._changes_total = self._received_total = 0
        self._polls_told, self._told_at, self._rate = 0, 0.0, 0.0

    # Life

    async def run(self) -> None:
        """Works until cancelled."""
        await self._recall()
        try:
            async with asyncio.TaskGroup() as group:
                for loop in (self._obey, self._dispatch, self._tell, self._keep_saving, self._keep_tidy):
                    group.create_task(loop(), name=loop.__name__)
        finally:
            await self._stop()

    async def _recall(self) -> None:
        """What is on disk, and what is remembered of it."""
        self._here = set(await self._mirrors.held())
        self._memories = {m.key: m for m in await self._local.load()}
        items = [
            HeldRepo(k, m.digest if (m := self._memories.get(k)) else None, m.verified_at if m else None)
            for k in sorted(self._here)
        ]
        for start in range(0, max(len(items), 1), HELD_CHUNK):
            chunk = tuple(items[start : start + HELD_CHUNK])
            await self._port.report(Held(chunk, last=start + HELD_CHUNK >= len(items)))

    async def _stop(self) -> None:
        self._stopping = True
        jobs = list(self._jobs.values())
        if jobs:
            await asyncio.wait(jobs, timeout=STOP_GRACE_S)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self._report_verified()
        except TimeoutError:
            log.warning("nobody took the last reports")  # the next start tells what is held, and when seen
        await self._save()

    # Commands

    async def _obey(self) -> None:
        while True:
            await self.obey(await self._port.next_command())

    async def obey(self, command: Command) -> None:
        """Carries out one command."""
        match command:
            case AssignRepos():
                self._assign(command)
            case ReleaseRepos():
                await self._release(command)
            case SyncNow():
                await self._sync_now(command)
            case ApplySettings():
                given = {
                    f: v
                    for f in ("polls_per_second", "host_rate", "slots")
                    if (v := getattr(command, f)) is not None
                }
                self.configure(replace(self._settings, **given))
        self._poke.set()

    def configure(self, settings: ScheduleSettings) -> None:
        """New limits hold from now on."""
        self._settings = settings
        self._scheduler.reconfigure(settings, self._clock())
        self._poke.set()

    def _assign(self, command: AssignRepos) -> None:
        reached_anew = []
        for n, spec in enumerate(command.repos):
            memory = self._memories.pop(spec.key, None)
            repo = self._repos.get(spec.key)
            if repo is not None:
                if (repo.spec.url, repo.spec.credential) != (spec.url, spec.credential):
                    repo.mark = None
                    reached_anew.append(spec.key)
                repo.spec = spec
            else:
                self._repos[spec.key] = repo = Mirrored(spec, here=spec.key in self._here)
                if memory is not None and repo.here:
                    repo.digest, repo.mark = memory.digest, memory.mark
            if (
                memory is None
                and n < len(command.activities)
                and (known := command.activities[n]) is not None
            ):
                memory = RepoMemory(spec.key, activity=known)
            if memory is not None and not repo.here:  # without a mirror there is nothing to be left alone
                memory = replace(memory, last_poll_at=0.0, verified_at=0.0)
            self._arriving.append(Entry(spec, memory))
        if command.more:
            return
        entries, self._arriving = self._arriving, []
        self._scheduler.add(entries, self._clock())
        for key in reached_anew:  # how it failed before says nothing about the new way
            self._scheduler.forgive(key, self._clock())

    async def _release(self, command: ReleaseRepos) -> None:
        # All of them leave in one step without await: nobody meets a repo that is only half gone.
        jobs = {key: job for key in command.keys if (job := self._jobs.get(key)) is not None}
        for key in command.keys:
            for held in (self._repos, self._memories, self._verified):
                held.pop(key, None)
            self._unsaved.discard(key)
        self._scheduler.remove(command.keys, self._clock())
        for key, job in jobs.items():
            if key in self._rounds:  # one whose round is over has only its report left to send
                job.cancel()
        await asyncio.gather(*jobs.values(), return_exceptions=True)
        for key in command.keys:
            self._jobs.pop(key, None)  # one that was cancelled before it began could not do so itself
            self._abandon(key)
        for key in command.keys:
            await self._answer_dropped(key)
            if command.delete and (key in self._here or key in jobs):  # a clone may have just become visible
                self._here.discard(key)
                try:
                    await self._mirrors.discard(key)
                except FailureError as error:
                    log.warning("mirror not discarded", repo=key, reason=error.failure.message)
        try:
            await self._local.forget(command.keys)
        except FailureError as error:
            log.warning("local state not forgotten", reason=error.failure.message)
        await self._port.report(Released(command.keys))

    async def _answer_dropped(self, key: RepoKey) -> None:
        dropped = self._callers.dropped(key)
        if dropped:
            failure = Failure(FailureKind.NOT_FOUND, "the repo left the catalog", hint="Add it again")
            await self._refuse(key, dropped, failure)

    async def _sync_now(self, command: SyncNow) -> None:
        if command.key not in self._repos:
            failure = Failure(FailureKind.NOT_FOUND, "this worker does not mirror the repo")
            await self._refuse(command.key, (command.task_id,), failure)
            return
        asked = self._callers.ask(command.key, command.task_id)
        if asked is Asked.REFUSED:
            failure = Failure(
                FailureKind.CONFLICT, "too many callers wait for this repo", hint="Ask again later"
            )
            await self._refuse(command.key, (command.task_id,), failure)
            return
        self._asked[command.task_id] = command
        rank = command.priority.rank if command.priority is not None else None
        self._scheduler.request(command.key, self._clock(), rank=rank)

    async def _refuse_clones(self) -> None:
        """Who waits for a clone that there is no room for is told; the schedule keeps the repo in line."""
        for key in {command.key for command in self._asked.values()} - self._here:
            this = self._rounds.get(key)
            if this is not None and this.waits_for_slot:
                this.asked = ()
                await self._refuse(key, self._callers.dropped(key), _no_room())

    async def _refuse(self, key: RepoKey, task_ids: tuple[TaskId, ...], failure: Failure) -> None:
        now = self._clock()
        for task_id in task_ids:
            self._asked.pop(task_id, None)
        await self._port.report(Refused(key, task_ids, failure, now, now))

    # What runs

    async def _dispatch(self) -> None:
        while True:
            self._poke.clear()
            now = self._clock()
            while (key := self._scheduler.take(now)) is not None:
                self._start(self._begin(key), self._poll)
            if self._scheduler.syncs_waiting:
                self._look_at_disk(now)
                if self._asked and not self._disk.accepting:
                    await self._refuse_clones()
                while (key := self._scheduler.take_sync(now)) is not None:
                    self._start(self._rounds[key], self._sync)
            wake = self._scheduler.next_wake(now)
            pause = SLEEP_MAX_S if wake is None else min(max(wake - self._clock(), 0.0), SLEEP_MAX_S)
            if pause:
                try:
                    async with asyncio.timeout(pause):
                        await self._poke.wait()
                except TimeoutError:
                    continue
            else:
                await asyncio.sleep(0)

    def _begin(self, key: RepoKey) -> Round:
        """A round is there from the moment that its poll is taken, so that it can be ended at any moment."""
        now = self._clock()
        asked = tuple(self._asked[t] for t in self._callers.started(key))
        self._rounds[key] = this = Round(key, asked, now, now)
        return this

    def _start(self, this: Round, work: Callable[[Round], Coroutine[None, None, None]]) -> None:
        self._jobs[this.key] = asyncio.create_task(self._guarded(this, work))

    async def _guarded(self, this: Round, work: Callable[[Round], Coroutine[None, None, None]]) -> None:
        """Whatever one repo brings about stays with it: its round ends, and the others go on."""
        key = this.key
        try:
            await work(this)
        except FailureError as error:
            await self._fail(key, error.failure)
        except Exception as error:
            log.exception("a round broke", repo=key)
            if key not in self._rounds:
                return  # it had ended, and only the telling failed
            failure = Failure(
                FailureKind.UNKNOWN,
                f"internal error: {type(error).__name__}: {error}",
                hint="This is a bug in evermirror: please report it with the log",
                context={"traceback": traceback.format_exc()[-8000:]},
            )
            await self._fail(key, failure)
        finally:
            if self._jobs.get(key) is asyncio.current_task():
                del self._jobs[key]
            self._poke.set()

    async def _poll(self, this: Round) -> None:
        key, task_ids = this.key, this.task_ids
        repo = self._repos[key]
        if task_ids:
            await self._port.report(Started(key, task_ids, this.started_at))
        self._polls_total += 1
        result = await self._prober.probe(repo.spec, None if this.force else repo.mark)
        if isinstance(result, Seen) and (this.force or await digest_of(result.snapshot) != repo.digest):
            this.seen = result
            self._scheduler.changed(key, self._clock(), first=not repo.here)
            return
        repo.mark = result.mark
        if isinstance(result, Seen):
            repo.refs_count, repo.head_commit = len(result.snapshot.refs), result.snapshot.head_oid
        if task_ids:
            await self._count(repo)
        refused = await self._missing_commits(this) if task_ids else []
        now = self._clock()
        self._scheduler.polled(key, now)
        self._close(this)
        self._verified[key] = this.looked_at
        self._unsaved.add(key)
        if task_ids:
            await self._answer(nothing_moved(this, repo, self._scheduler.memory(key).activity, now), refused)

    async def _sync(self, this: Round) -> None:
        key, repo = this.key, self._repos[this.key]
        assert this.seen is not None  # noqa: S101 - only what was seen to move waits for a slot
        this.syncing_since = self._clock()
        spec = replace(repo.spec, url=this.seen.url)

        async def look_again() -> RefSnapshot:
            this.looked_at = self._clock()
            again = await self._prober.probe(spec, None)
            if isinstance(again, Unchanged):
                raise TypeError("a probe without a mark cannot be unchanged")
            this.seen = again
            return again.snapshot

        def progressed(progress: GitProgress) -> None:
            this.progress = progress

        outcome = await self._mirrors.sync(
            spec,
            await self._prober.addresses(spec),
            this.seen.snapshot,
            look_again,
            progressed,
            force=this.force,
        )
        repo.here = True
        self._here.add(key)
        repo.digest, repo.mark = await digest_of(outcome.after), this.seen.mark
        repo.head_commit, repo.refs_count = outcome.after.head_oid, len(outcome.after.refs)
        repo.size_bytes = outcome.size_bytes
        refused = await self._missing_commits(this)
        now = self._clock()
        self._scheduler.synced(key, now, outcome.push_times)
        self._close(this)
        self._unsaved.add(key)
        self._changes_total += 1 if outcome.changes else 0
        self._received_total += outcome.received_bytes
        report = moved(this, outcome, repo.digest, self._scheduler.memory(key).activity, now)
        _log_synced(report)
        await self._answer(report, refused)

    # How a round ends: first in the schedule and among the callers, in one step without await, then in words

    async def _answer(self, report: Synced, refused: list[Refused]) -> None:
        await self._port.report(without(report, refused))
        for refusal in refused:
            await self._port.report(refusal)

    async def _count(self, repo: Mirrored) -> None:
        """Figures of a mirror that was here before we started: an answer tells them too."""
        if not repo.size_bytes:
            refs = await self._mirrors.read_refs(repo.spec.key)
            repo.head_commit, repo.refs_count = refs.head_oid, len(refs.refs)
            repo.size_bytes = await self._mirrors.size(repo.spec.key)

    async def _missing_commits(self, this: Round) -> list[Refused]:
        """Callers that want a commit which is not there are told so."""
        refused = []
        for asked in this.asked:
            if asked.min_commit is None or await self._mirrors.has_commit(this.key, asked.min_commit):
                continue
            failure = Failure(
                FailureKind.NOT_FOUND,
                f"upstream's branches and tags do not contain commit {asked.min_commit}",
                hint="Push it first, or check the id",
            )
            refused.append(Refused(this.key, (asked.task_id,), failure, this.started_at, self._clock()))
        return refused

    async def _fail(self, key: RepoKey, failure: Failure) -> None:
        this = self._rounds[key]
        now = self._clock()
        if failure.kind is FailureKind.DISK_FULL:
            self._disk.write_failed(now)
            self._scheduler.allow_clones(False)
        verdict = self._scheduler.failed(key, failure, now, jitter=self._chance.uniform(-1.0, 1.0))
        self._unsaved.add(key)
        self._unsaved.update(verdict.uncounted)
        self._close(this)
        if verdict.uncounted:
            await self._port.report(Excused(verdict.uncounted))
        log.warning(
            "failed", repo=key, kind=failure.kind.value, reason=failure.message, counted=verdict.counted
        )
        await self._port.report(
            Failed(
                key,
                this.task_ids,
                failure,
                verdict.counted,
                verdict.failures,
                this.started_at,
                now,
                verdict.next_attempt_at,
            )
        )

    def _abandon(self, key: RepoKey) -> None:
        """The round, if any, of a repo that was taken away."""
        if self._rounds.pop(key, None) is not None:
            self._scheduler.abandoned(key, self._clock())

    def _close(self, this: Round) -> None:
        del self._rounds[this.key]
        ended = self._callers.ended(this.key)
        for task_id in ended.answered:
            self._asked.pop(task_id, None)

    # What is told and kept

    async def _tell(self) -> None:
        next_status = 0.0
        while True:
            for this in list(self._rounds.values()):
                if this.task_ids and this.progress is not None and this.progress is not this.told:
                    this.told = p = this.progress
                    await self._port.report(
                        Progress(this.key, this.task_ids, p.phase, p.percent, p.received_bytes, self._clock())
                    )
            if (now := self._clock()) >= next_status:
                next_status = now + STATUS_S
                await self._port.report(self.status())
                await self._report_verified()
            await asyncio.sleep(TELL_S)

    def status(self) -> WorkerStatus:
        """How the worker is doing now."""
        now = self._clock()
        if now - self._told_at >= STATUS_S / 2:
            self._rate = (
                (self._polls_total - self._polls_told) / (now - self._told_at) if self._told_at else 0.0
            )
            self._polls_told, self._told_at = self._polls_total, now
        usage = self._look_at_disk(now)
        running = [r for this in self._rounds.values() if (r := this.running()) is not None]
        return WorkerStatus(
            repos=len(self._repos),
            polls_total=self._polls_total,
            polls_per_second=self._rate,
            changes_total=self._changes_total,
            received_bytes_total=self._received_total + self._prober.stats.received_bytes,
            running=tuple(running[:SHOWN_MAX]),
            queued_syncs=self._scheduler.syncs_waiting,
            hosts=self._hosts(now),
            disk_free_bytes=usage[0],
            disk_total_bytes=usage[1],
            accepting_clones=self._disk.accepting,
            warnings=tuple(w.message for w in self._scheduler.warnings(now)),
            at=now,
        )

    def _hosts(self, now: float) -> tuple[HostState, ...]:
        told = []
        for host in self._scheduler.hosts(now):
            if host.blocked_until is not None:
                told.append(
                    HostState(
                        host.host, host.repos, "waiting", host.blocked_until, "the host asked us to wait"
                    )
                )
            elif host.storm is not None:
                reason = f"host-wide failures: {host.storm.value}"
                told.append(HostState(host.host, host.repos, "stormy", host.probe_at, reason))
        return tuple(told[:SHOWN_MAX])

    def _look_at_disk(self, now: float) -> tuple[int, int]:
        usage = self._mirrors.disk_usage()
        before = self._disk.accepting
        accepting = self._disk.observe(usage.used_share, now)
        self._scheduler.allow_clones(accepting)
        if accepting and not before:
            self._poke.set()  # clones have waited for this
        return usage.free_bytes, usage.total_bytes

    async def _report_verified(self) -> None:
        items = list(self._verified.items())
        self._verified.clear()
        for start in range(0, len(items), VERIFIED_CHUNK):
            await self._port.report(Verified(tuple(items[start : start + VERIFIED_CHUNK])))

    async def _keep_saving(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            await self._save()

    async def _save(self) -> None:
        keys = [k for k in self._unsaved if k in self._repos]
        self._unsaved.clear()
        batch = [self._memory(k) for k in keys]
        if not batch:
            return
        try:
            await self._local.save(batch)
        except FailureError as error:
            self._unsaved.update(keys)
            log.warning("local state not saved", reason=error.failure.message)

    def _memory(self, key: RepoKey) -> RepoMemory:
        repo = self._repos[key]
        return replace(self._scheduler.memory(key), digest=repo.digest, mark=repo.mark)

    async def _keep_tidy(self) -> None:
        while True:
            try:
                await self._mirrors.tidy()
            except FailureError as error:
                log.warning("not tidied", reason=error.failure.message)
            await asyncio.sleep(TIDY_S)

    # Small reads

    def plan(self, key: RepoKey) -> PollPlan:
        """When the repo is looked at next, and why then."""
        if key not in self._scheduler:
            return PollPlan(None, "not assigned to a worker", None, None)
        told = self._scheduler.explain(key, self._clock())
        return PollPlan(told.next_poll_at, told.reason, told.aimed_gap_s, told.last_poll_at or None)

    def mirror_path(self, key: RepoKey) -> Path | None:
        """Where the mirror is, if there is one."""
        return self._mirrors.path(key) if key in self._here else None

    async def refs(self, key: RepoKey) -> RefSnapshot:
        """The public refs of the mirror here."""
        if key not in self._here:
            raise NotFound(f"there is no mirror of {key} yet", hint="Wait for its first sync")
        return await self._mirrors.read_refs(key)


def _log_synced(report: Synced) -> None:
    if report.changes_total or report.first:
        log.info(
            "synced",
            repo=report.key,
            first=report.first,
            refs=report.changes_total,
            commits=report.commits,
            seconds=round(report.ended_at - report.started_at, 3),
        )


def _no_room() -> Failure:
    return Failure(
        FailureKind.DISK_FULL,
        "no room for a new clone: the disk is fuller than fleet.disk_high, or was a moment ago",
        hint="Free some space in the data folder",
    )
