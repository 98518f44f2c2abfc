"""What hooks and reports teach about repos' hooks: kept, told to the fleet, to people, and to who asks.

    hooks ─▶ heard ────┐                        ┌─▶ store: memory, repos.hooked, event, in one transaction
    reports ▶ reported ├▶ core/hooks/trust ─due─┤
    time ───▶ run ─────┘                        └─▶ then the fleet (CatalogChanged), and alerts by host

Nothing here is waited for by who sends a hook or a report: what was learnt is written every few seconds, and
a crash takes a few seconds of counting with it. Whoever holds a repo is told of ``hooked`` again at its next
session, so that a crash between the two steps loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from evermirror.core.hooks.trust import (
    Doubted,
    Effect,
    Found,
    Heard,
    Learnt,
    Relapsed,
    Reliable,
    Silent,
    Trust,
    host_of,
)
from evermirror.core.watch.kinds import HOOK_KINDS
from evermirror.core.watch.silent_hooks import hooks_silent
from evermirror.edge.store.store import Store
from evermirror.model.event import EventType, NewEvent
from evermirror.model.failure import FailureError
from evermirror.model.hook import HookMemory, HookTrust
from evermirror.model.messages import Synced, Verified
from evermirror.model.refs import short_digest
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId, Trigger
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.alerts.alert_sink import AlertSink
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.hook_service import HookSelection, HookView

log = structlog.get_logger(__name__)

ROUND_S = 2.0  # between two writes of what was learnt
SAVE_MAX = 1000  # repos in one transaction
TELL_MAX = 400  # repos that the fleet is told of in a round: a forge that dies does not stir up all at once
STOP_S = 2.0  # at a stop, for what was learnt last
NEWS_MAX = 4  # of one repo that wait to be written, where the database is away: the newest

_POLLS = frozenset({Trigger.SCHEDULE})  # a pull that nobody asked for


@dataclass(slots=True)
class _Due:
    """What is to be written of one repo."""

    memory: HookMemory | None = None  # None: forgotten
    hooked: bool | None = None
    news: list[NewEvent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What learning needs of the coordinator."""

    primary_of: Callable[[RepoKey], WorkerId | None]
    triggers_of: Callable[[Collection[TaskId]], frozenset[Trigger]]
    tell_again: Callable[[Collection[RepoKey]], Awaitable[None]]  # who holds these is told of them anew


class HookLearning:
    """``load`` first; ``run`` until cancelled."""

    def __init__(
        self,
        store: Store,
        alerts: AlertSink,
        around: Surroundings,
        clock: Callable[[], float],
        round_s: float = ROUND_S,
    ) -> None:
        self._store = store
        self._alerts = alerts
        self._around = around
        self._clock = clock
        self._round_s = round_s
        self._trust = Trust(started_at=clock())
        self._due: dict[RepoKey, _Due] = {}
        self._untold: dict[RepoKey, None] = {}  # whose ``hooked`` is stored, and the fleet is to hear of it
        self._silent: dict[str, dict[RepoKey, None]] = {}  # by host
        self._alerting = False  # what stands is to be told
        self._saving = asyncio.Lock()

    async def load(self) -> None:
        async for chunk in self._store.load_hook_memories():
            refs = {memory.key: short_digest(digest) for memory, digest in chunk}
            self._trust.restore((memory for memory, _ in chunk), refs)
        for key in self._trust.of(HookTrust.SILENT):
            self._silent.setdefault(host_of(key), {})[key] = None
        self._alerting = True

    async def run(self) -> None:
        try:
            while True:
                await self.round()
                await asyncio.sleep(self._round_s)
        finally:
            with contextlib.suppress(FailureError, TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self.flush()

    async def round(self) -> None:
        """What time and events brought is written and told."""
        self._took(self._trust.tick(self._clock()))
        try:
            await self.flush()
            await self._tell()
        except FailureError as error:
            log.warning("what hooks taught is not written yet", reason=error.failure.message)
        self._raise_alerts()

    # What happens

    def heard(self, key: RepoKey, at: float) -> None:
        """A hook about a repo of the catalog, signed as it should be."""
        self._took(self._trust.hook(key, at))

    def reported(self, worker: WorkerId, report: object) -> None:
        """A worker's report, before its tasks are ended; those who follow the primary find nothing new."""
        match report:
            case Synced() if self._learns_of(report.key, worker):
                refs = short_digest(report.digest)
                if report.first or not report.changes_total:
                    self._trust.looked(report.key, report.started_at, refs)
                    return
                by = _found_by(self._around.triggers_of(report.task_ids))
                at, now = report.started_at, self._clock()
                self._took(self._trust.changed(report.key, at, by, now, refs))
            case Verified():
                for key, at in report.items:
                    if self._learns_of(key, worker):
                        self._trust.looked(key, at)

    def _learns_of(self, key: RepoKey, worker: WorkerId) -> bool:
        return key in self._trust and self._around.primary_of(key) == worker

    def expect(self, keys: Iterable[RepoKey]) -> None:
        """Hooks for these were made or mended at their forge."""
        for key in keys:
            self._took(self._trust.registered(key, self._clock()))

    def forget(self, keys: Iterable[RepoKey]) -> None:
        """These repos left, or our hooks for them were removed."""
        for key in keys:
            known = self._trust.forget(key)
            if known is None:
                continue
            due = self._due_of(key)
            due.memory, due.hooked = None, False if known.trust is HookTrust.RELIABLE else due.hooked
            self._no_longer_silent(key)

    def _took(self, learnt: Learnt) -> None:
        for key, memory in learnt.writes.items():
            self._due_of(key).memory = memory
        for effect in learnt.effects:
            self._follow(effect)

    def _follow(self, effect: Effect) -> None:
        key, due = effect.key, self._due_of(effect.key)
        match effect:
            case Reliable():
                due.hooked = True
                due.news = [*due.news, self._news(EventType.HOOKS_RELIABLE, key)][-NEWS_MAX:]
                log.info("hooks are reliable: polled less", repo=key)
            case Relapsed():
                due.hooked = False
                log.info("hooks missed a change: polled as before", repo=key)
            case Doubted():
                due.hooked = False
                log.info("hooks of the host are not heard: polled as before", repo=key)
            case Silent():
                due.news = [*due.news, self._news(EventType.HOOKS_SILENT, key)][-NEWS_MAX:]
                self._silent.setdefault(host_of(key), {})[key] = None
                self._alerting = True
                log.warning("hooks are silent: polls find changes that none told", repo=key)
            case Heard():
                self._no_longer_silent(key)
                log.info("hooks are heard again", repo=key)

    def _news(self, kind: EventType, key: RepoKey) -> NewEvent:
        memory = self._trust.get(key) or HookMemory(key)
        data = {"told": memory.told, "missed": memory.missed, "received": memory.received}
        return NewEvent(kind, self._clock(), key, data=data)

    def _no_longer_silent(self, key: RepoKey) -> None:
        there = self._silent.get(host_of(key), {})
        if there.pop(key, key) is None:
            self._alerting = True
            if not there:
                del self._silent[host_of(key)]

    def _due_of(self, key: RepoKey) -> _Due:
        return self._due.setdefault(key, _Due())

    # What follows

    async def flush(self) -> None:
        """What was learnt so far is on the disk."""
        async with self._saving:
            while self._due:
                keys = list(self._due)[:SAVE_MAX]
                taken = {key: self._due.pop(key) for key in keys}
                try:
                    await self._save(taken)
                except BaseException:
                    self._take_back(taken)
                    raise

    async def _save(self, taken: Mapping[RepoKey, _Due]) -> None:
        hooked = {key: due.hooked for key, due in taken.items() if due.hooked is not None}
        await self._store.save_hooks(
            [due.memory for due in taken.values() if due.memory is not None],
            forgotten=[key for key, due in taken.items() if due.memory is None],
            hooked=hooked,
            news=[new for due in taken.values() for new in due.news],
        )
        self._untold.update(dict.fromkeys(hooked))

    def _take_back(self, taken: Mapping[RepoKey, _Due]) -> None:
        """It was not written; what was learnt meanwhile is newer."""
        for key, old in taken.items():
            newer = self._due.get(key)
            if newer is None:
                self._due[key] = old
            else:
                newer.hooked = old.hooked if newer.hooked is None else newer.hooked
                newer.news = [*old.news, *newer.news][-NEWS_MAX:]

    async def _tell(self) -> None:
        """Those who hold the repos, as of a change of configuration."""
        keys = list(self._untold)[:TELL_MAX]
        if keys:
            await self._around.tell_again(keys)
            for key in keys:
                self._untold.pop(key, None)

    def _raise_alerts(self) -> None:
        if self._alerting:
            self._alerting = False
            stand = [hooks_silent(host, len(keys), next(iter(keys))) for host, keys in self._silent.items()]
            self._alerts.stand(HOOK_KINDS, stand)

    # Who asks

    def counts(self) -> Mapping[HookTrust, int]:
        return self._trust.counts

    async def hooks(self, which: HookSelection) -> tuple[HookView, ...]:
        await self.flush()
        return tuple(HookView(r.key, r.memory, r.registration) for r in await self._store.hooks_page(which))

    async def hooks_of(self, key: RepoKey) -> HookView:
        row = (await self._store.hooks_of([key])).get(key)
        return HookView(key, self._trust.get(key), row.registration if row is not None else None)


async def make_learning(
    store: Store,
    coordinator: Coordinator,
    primary_of: Callable[[RepoKey], WorkerId | None],
    alerts: AlertSink,
    clock: Callable[[], float],
) -> HookLearning:
    """One that knows what was learnt before, and hears which repos leave."""

    async def tell_again(keys: Collection[RepoKey]) -> None:
        async with coordinator.changing:  # what leaves meanwhile must not be put back
            records = await store.find_repos(keys)
            if records:
                await coordinator.assign(list(records.values()))

    around = Surroundings(primary_of, coordinator.tasks.triggers_of, tell_again)
    learning = HookLearning(store, alerts, around, clock)
    await learning.load()
    coordinator.on_left = learning.forget
    return learning


def _found_by(triggers: frozenset[Trigger]) -> Found:
    if Trigger.WEBHOOK in triggers:
        return Found.BY_HOOK
    return Found.BY_OTHER if triggers - _POLLS else Found.BY_POLL
