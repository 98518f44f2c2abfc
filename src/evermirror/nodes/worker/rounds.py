"""Runs rounds: polls, syncs where refs moved, and ends each one exactly once for all who wait for it.

    begin ──▶ poll ──same───────────────────────▶ closed ──▶ Verified (batched), Synced to callers
                ├───same, a target is behind──▶ waits for a slot ───────────▶ push ──▶ closed ──▶ Synced
                ├───moved──▶ waits for a slot ──▶ sync ──▶ targets named? ──▶ push ──▶ closed ──▶ Synced
                └─────────────── failed ──────────┴──────▶ closed ──▶ Failed
                                   └─ another address is left: the same round polls there

Rules
- A round ends first in the schedule and among the callers, in one step without await, and only then in words:
  nobody meets a repo whose round is half over.
- Whatever one repo brings about stays with it: its round ends, and the others go on.
- Before a push begins the mirror counts as synced, on the shelf, in the schedule and for the fleet; the round
  keeps its git slot, and no connection to upstream.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

import structlog

from evermirror.core.schedule.detours import at
from evermirror.core.schedule.first_clones import FirstClones
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.views import Entry
from evermirror.core.watch.course import Course
from evermirror.edge.git.mirror import HeldBack, Mirrors
from evermirror.edge.git.probe import Prober, Seen, Unchanged
from evermirror.model.failure import (
    SOURCE_URL,
    Failure,
    FailureError,
    FailureKind,
    fetch_command,
    ls_remote_command,
)
from evermirror.model.messages import Deferred, Excused, Progress, Refused, Started, Synced, SyncNow
from evermirror.model.printable import one_line
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import Mode, RepoKey, RepoSpec
from evermirror.nodes.worker.desk import Desk
from evermirror.nodes.worker.jobs import Jobs, Work
from evermirror.nodes.worker.ports import Seeds, WorkerPort
from evermirror.nodes.worker.pushing import Pushing
from evermirror.nodes.worker.room import Room
from evermirror.nodes.worker.round import (
    Mirrored,
    Round,
    bug,
    digest_of,
    log_synced,
    moved,
    no_room,
    not_synced,
    nothing_moved,
    taken_away,
)
from evermirror.nodes.worker.shelf import Shelf
from evermirror.nodes.worker.tally import Tally

log = structlog.get_logger(__name__)

DEFERRED_CHUNK = 1000  # keys in one report


class Rounds:
    """All rounds under way, and who waits for them."""

    def __init__(
        self,
        *,
        port: WorkerPort,
        scheduler: Scheduler,
        prober: Prober,
        mirrors: Mirrors,
        nearby: Seeds,
        shelf: Shelf,
        tally: Tally,
        room: Room,
        clock: Callable[[], float],
        chance: random.Random,
        ended: Callable[[], None],
        make_way: Callable[[RepoKey], Awaitable[None]],
        pushing: Pushing,
        about: Mapping[str, str],
        synced: Callable[[Synced], None],
        handed_back: Callable[[list[RepoKey], str], Awaitable[None]] | None,
    ) -> None:
        self._port = port
        self._scheduler = scheduler
        self._prober = prober
        self._mirrors = mirrors
        self._nearby = nearby
        self._shelf = shelf
        self._tally = tally
        self._room = room
        self._clock = clock
        self._chance = chance
        self._ended = ended  # there may be something to do now
        self._make_way = make_way  # whoever else works on the mirror is to leave it
        self._pushing = pushing
        self._about = about  # told with each failure
        self._synced = synced  # for whoever else cares for the mirror
        self._handed_back = handed_back  # clones that there is no room for; None: they wait for room here
        self.desk = Desk(port, mirrors, pushing, clock)
        self._jobs = Jobs(self._guarded, ended)
        self.open: dict[RepoKey, Round] = {}
        self._looks: set[RepoKey] = set()  # the coordinator wants to know their digests
        self.verified: dict[RepoKey, float] = {}  # looks that saw no change and are not told yet
        self.looked: set[RepoKey] = set()  # the coordinator waits for these, and nothing moved
        self._first_clones = FirstClones(scheduler, lambda key: key in shelf.here)

    # Callers

    async def ask(self, command: SyncNow) -> None:
        """Somebody wants a repo of ours looked at now."""
        rank = command.priority.rank if command.priority is not None else None
        this = self.open.get(command.key)
        if this is not None and this.key not in self._shelf.here and this.answers(command):
            if await self.desk.join(command):
                this.asked += (command,)
                this.begun |= {command.task_id}
                self._scheduler.request(command.key, self._clock(), rank=rank, again=False)
                await self._port.report(Started(command.key, (command.task_id,), this.started_at))
        elif await self.desk.ask(command):
            self._scheduler.request(command.key, self._clock(), rank=rank)

    def assigned(self, keys: Iterable[RepoKey]) -> None:
        """Whoever asked before this may have done so after the rounds under way looked."""
        keys = list(keys)
        for this in (self.open[key] for key in keys if key in self.open):
            this.outdated = True
        self._first_clones.asked(keys, self._clock())

    async def tell_deferred(self) -> None:
        """First clones that cannot begin now, or get no answer: the coordinator asks for others meanwhile."""
        deferred = self._first_clones.deferred(self._clock())
        for start in range(0, len(deferred), DEFERRED_CHUNK):
            await self._port.report(Deferred(tuple(deferred[start : start + DEFERRED_CHUNK])))

    def look(self, key: RepoKey) -> None:
        """The coordinator wants a repo of ours looked at, and to know how it is then."""
        self._looks.add(key)
        self._scheduler.request(key, self._clock())

    def replace_damaged(self, key: RepoKey) -> None:
        """The mirror was found broken: it is looked at at once, and mended, or replaced by a fresh clone."""
        if (repo := self._shelf.repos.get(key)) is not None:
            repo.damaged = True
            self._scheduler.request(key, self._clock())
            self._ended()

    async def refuse_clones(self) -> None:
        """Who waits for a clone that there is no room for is told; the schedule keeps the repo in line."""
        for key in self.desk.keys - self._shelf.here:
            this = self.open.get(key)
            if this is not None and this.waits_to_sync:
                this.asked = ()
                await self.desk.drop(key, no_room(self._room.why_not))

    def without_room(self) -> list[RepoKey]:
        """Clones that nobody asked for, and that only wait for a slot."""
        waiting = [key for key, this in self.open.items() if this.waits_to_sync and not this.asked]
        return [key for key in waiting if key not in self._shelf.here]

    def give_up(self, keys: Iterable[RepoKey]) -> None:
        """These wait for a slot, and are not ours any more."""
        for key in keys:
            self.open.pop(key, None)
            self._looks.discard(key)
            self._first_clones.ended(key)

    # Under way

    def begin(self, key: RepoKey) -> None:
        """A round is there from the moment that its poll is taken, so that it can be ended at any moment."""
        now = self._clock()
        asked = self.desk.started(key)
        this = self.open.get(key)  # one that goes on elsewhere
        if this is None:
            this = self.open[key] = Round(key, asked, now, now)
        this.asked, this.looked_at, this.outdated = asked, now, False
        this.looked |= key in self._looks
        self._looks.discard(key)
        self._jobs.start(this, self._poll)

    def go_on(self, key: RepoKey) -> None:
        """The repo got its slot."""
        this = self.open[key]
        self._jobs.start(this, self._push if this.seen is None else self._sync)

    async def break_off(self, keys: Iterable[RepoKey]) -> set[RepoKey]:
        """Ends what is under way for repos that were taken away, and tells who waited; returns which ran."""
        keys = list(keys)
        jobs = self._jobs.running(keys)
        for key, job in jobs.items():
            if key in self.open:  # one whose round is over has only its report left to send
                job.cancel()
        await self._jobs.see_off(jobs.values())
        for key in keys:
            self._jobs.forget(key)
            self._first_clones.ended(key)
            self.verified.pop(key, None)
            self._looks.discard(key)
            self.looked.discard(key)
            if self.open.pop(key, None) is not None:
                self._scheduler.abandoned(key, self._clock())
        for key in keys:
            await self.desk.drop(key, taken_away())
        return set(jobs)

    async def stop(self, grace_s: float) -> None:
        """Gives what runs a moment, then ends it. Nothing is told: the next start takes it up again."""
        await self._jobs.stop(grace_s)

    async def tell_progress(self) -> None:
        """Reports how far long transfers are, where somebody waits and it moved."""
        for this in list(self.open.values()):
            if this.task_ids and this.progress is not None and this.progress is not this.told:
                this.told = p = this.progress
                told = (p.told, this.course.percent, p.received_bytes)
                await self._port.report(Progress(this.key, this.task_ids, *told, self._clock()))

    # One round

    async def _guarded(self, this: Round, work: Work) -> bool:
        """Whether all went well."""
        key = this.key
        try:
            await work(this)
            return True
        except HeldBack as held:
            if (repo := self._shelf.repos.get(key)) is not None:  # it may just have been taken away
                repo.hold_back(held)
            await self._fail(this, held.failure)
        except FailureError as error:
            await self._fail(this, error.failure)
        except Exception as error:
            log.exception("a round broke", repo=key)
            await self._fail(this, bug(error))
        return False

    async def _poll(self, this: Round) -> None:
        key, asked = this.key, this.asked  # empty for nearly all
        repo = self._shelf.repos[key]
        force = repo.damaged or (bool(asked) and this.force)
        if asked and (new := tuple(t for t in this.task_ids if t not in this.begun)):
            this.begun |= set(new)
            await self._port.report(Started(key, new, this.started_at))
        self._tally.polls += 1
        spec = at(repo.spec, self._scheduler.address(key))
        mark = None if force else repo.mark
        asked_at = self._clock()
        result = await self._ask(spec, mark, None if asked else self._scheduler.patience_s(key))
        this.look_s = self._clock() - asked_at
        if isinstance(result, Unchanged) and repo.mark != mark:  # forgotten meanwhile: it says nothing now
            result = await self._prober.probe(spec, None)
        if isinstance(result, Seen) and (force or await digest_of(result.snapshot) != repo.digest):
            this.seen = result
            self._scheduler.changed(key, self._clock(), first=not repo.here)
            return
        repo.mark, repo.guard, repo.verified_at = result.mark, None, this.looked_at
        repo.answered_at(spec.url)
        if isinstance(result, Seen):
            repo.refs_count, repo.head_commit = len(result.snapshot.refs), result.snapshot.head_oid
        await self._saw_same(this, repo)

    async def _ask(self, spec: RepoSpec, mark: bytes | None, patience_s: float | None) -> Seen | Unchanged:
        """Upstream's refs, if it answers in time."""
        try:
            async with asyncio.timeout(patience_s):
                return await self._prober.probe(spec, mark)
        except TimeoutError:
            message = f"{spec.host} has not answered in {patience_s:g} s; it is given longer at the next try"
            raise FailureError(Failure(FailureKind.NETWORK_TIMEOUT, message)) from None

    async def _saw_same(self, this: Round, repo: Mirrored) -> None:
        """Upstream is as it is here; targets may be behind all the same."""
        key = this.key
        refused: list[Refused] = []
        if this.asked:
            await self._shelf.count(repo)
            refused = await self.desk.missing_commits(this)
        waits = bool(this.asked) and await self._pushing.is_wanted(this, repo)
        now = self._clock()
        if waits:
            self._scheduler.changed(key, now)
        else:
            self._scheduler.polled(key, now)
            self._close(this)
        if this.looked:
            self.looked.add(key)
        self.verified[key] = this.looked_at
        self._shelf.learnt(key)
        if this.asked and not waits:
            await self._answer_same(this, repo, now, refused)

    async def _answer_same(self, this: Round, repo: Mirrored, now: float, refused: list[Refused]) -> None:
        report = nothing_moved(this, repo, self._scheduler.memory(this.key).activity, now)
        await self.desk.answer(report, refused)

    async def _sync(self, this: Round) -> None:
        key, repo = this.key, self._shelf.repos[this.key]
        assert this.seen is not None  # noqa: S101 - only what was seen to move waits for a slot
        this.syncing_since = self._clock()
        source = at(repo.spec, self._scheduler.address(key))
        spec = replace(source, url=this.seen.url)

        async def look_again() -> RefSnapshot:
            this.looked_at = self._clock()
            again = await self._prober.probe(spec, None)
            if isinstance(again, Unchanged):
                raise TypeError("a probe without a mark cannot be unchanged")
            this.seen = again
            return again.snapshot

        this.course = Course(targets=len(this.push))
        addresses = await self._prober.addresses(spec)
        await self._make_way(key)
        async with self._nearby.seed(repo.spec) as seed:
            outcome = await self._mirrors.sync(
                spec,
                addresses,
                this.seen.snapshot,
                look_again,
                this.fetching,
                force=this.force,
                guard=repo.guard,
                accept=this.accept,
                ask=self._prober.asker(spec),
                seed=None if this.force else seed,
            )
        repo.here, repo.guard, repo.damaged = True, None, False
        repo.answered_at(source.url)
        self._shelf.here.add(key)
        repo.digest, repo.mark = await digest_of(outcome.after), this.seen.mark
        repo.head_commit, repo.refs_count = outcome.after.head_oid, len(outcome.after.refs)
        repo.size_bytes, repo.verified_at = outcome.size_bytes, this.looked_at
        if repo.spec.mode is Mode.APPEND_ONLY:
            repo.own = await digest_of(await self._mirrors.read_refs(key))
        self._tally.changes += 1 if outcome.changes else 0
        self._tally.received_bytes += outcome.received_bytes
        refused = await self.desk.missing_commits(this)
        if this.push:
            self.looked.add(key)  # so the fleet hears of it now
            await self._push_on(this, repo, outcome.push_times)
            self.looked.discard(key)
        now = self._clock()
        self._end_sync(this, repo, now, () if this.push else outcome.push_times)
        report = moved(this, outcome, repo.told or repo.digest, self._scheduler.memory(key).activity, now)
        log_synced(report)
        self._synced(report)
        await self._shelf.save()  # first: a start after a crash must not tell older refs than this report
        await self.desk.answer(report, refused)

    async def _push(self, this: Round) -> None:
        """Upstream is as it is here, and a target is not."""
        repo = self._shelf.repos[this.key]
        this.syncing_since = self._clock()
        this.course = Course(fetches=False, targets=len(this.push))
        refused = await self.desk.missing_commits(this)  # before there is anything to lose
        await self._push_on(this, repo)
        now = self._clock()
        self._end_sync(this, repo, now)
        await self._answer_same(this, repo, now, refused)

    async def _push_on(self, this: Round, repo: Mirrored, push_times: Iterable[float] = ()) -> None:
        """The mirror counts as synced, and its targets get what it has."""
        self._scheduler.fetched(this.key, self._clock(), push_times)
        self._ended()  # another may have the connection to upstream
        self._shelf.learnt(this.key)
        await self._shelf.save()
        await self._make_way(this.key)
        if await self._pushing.serve(this, repo):
            log.error("mirror damaged: it is mended", repo=this.key)
            self.replace_damaged(this.key)

    def _end_sync(self, this: Round, repo: Mirrored, now: float, push_times: Iterable[float] = ()) -> None:
        self._scheduler.synced(this.key, now, push_times)
        if repo.quiet:  # it was polled by itself until it had its first clone
            self._scheduler.add([Entry(repo.spec, quiet=True)], now)
        self._close(this)
        self._shelf.learnt(this.key)

    async def _fail(self, this: Round, failure: Failure) -> None:
        key, now = this.key, self._clock()
        if self.open.get(key) is not this:  # the next round may be under way
            log.warning("a round had ended, and was not told", repo=key, reason=failure.message)
            return
        if failure.kind is FailureKind.DISK_FULL:
            self._room.write_failed(now)
        tried = self._scheduler.address(key)
        verdict = self._scheduler.failed(key, failure, now, jitter=self._chance.uniform(-1.0, 1.0))
        if verdict.diverted:
            self._go_on_elsewhere(this, tried, failure)
        else:
            self._close(this)
            if this.looked:  # what is here can be told, whatever became of the look
                self.looked.add(key)
        self._shelf.learnt(key, *verdict.uncounted)
        if verdict.uncounted:
            await self._port.report(Excused(verdict.uncounted))
        if verdict.diverted:
            return
        failure = verdict.failure or failure
        log.warning(
            "failed", repo=key, kind=failure.kind.value, reason=failure.message, counted=verdict.counted
        )
        if failure.kind is FailureKind.DISK_FULL and self._handed_back is not None and self._is_spare(this):
            await self._handed_back([key], failure.message)
            return
        self._first_clones.ended(key)
        command = failure.git_command or one_line(
            ls_remote_command(tried) if this.seen is None else fetch_command(tried)
        )
        context = {**self._about, SOURCE_URL: tried, **failure.context}
        failure = replace(failure, git_command=command, context=context)
        await self._port.report(not_synced(this, failure, verdict, now))

    def _go_on_elsewhere(self, this: Round, tried: str, failure: Failure) -> None:
        """The round stays open, and polls another address when its host may be asked."""
        self.desk.put_off(this.key)
        this.begin_again()
        log.info("tries another address", repo=this.key, left=tried, kind=failure.kind.value)

    def _is_spare(self, this: Round) -> bool:
        """A first clone that nobody asked for: another worker may have it."""
        return not this.asked and this.key not in self._shelf.here and this.key in self._shelf.repos

    def _close(self, this: Round) -> None:
        del self.open[this.key]
        self.desk.ended(this.key)
