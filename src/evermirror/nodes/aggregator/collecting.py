"""Drives the aggregator's mind (core/collect): events in, one at a time; writes to the disk; then actions.

coordinator ── Changes, Holders ─┐                      ┌─▶ Attempts (fetch, look) ──▶ AttemptEnded
clients ────── Wanted ───────────┤                      ├─▶ uplink: Have, Lack, AskHolders, Doubted, Accused
clock, disk, relay ── Ticked, …  ┴─▶ Collector ─▶ store ┼─▶ mirrors: evict, discard
                                                        └─▶ clients who wait
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from evermirror.core.collect.decisions import (
    Accuse,
    Action,
    Alert,
    AlertKind,
    AskHolders,
    Decision,
    Discard,
    DoubtReports,
    Evict,
    Fetch,
    LoadPending,
    Look,
    Outcome,
    PickAudit,
    Serve,
    TellClients,
    Withdraw,
    Write,
)
from evermirror.core.collect.events import (
    AuditPicked,
    Changed,
    DiskTold,
    Event,
    HoldersTold,
    PendingLoaded,
    Reachability,
    Ticked,
    Wanted,
)
from evermirror.core.collect.machine import Collector
from evermirror.core.collect.settings import CollectMode, CollectSettings
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.relay.ask import Reach
from evermirror.edge.store.collected import Collected, CollectedFigures
from evermirror.model.changes import HolderReport, RepoHolders
from evermirror.model.failure import FailureError
from evermirror.model.messages import HeldRepo, WorkerStatus
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Accused, Changes
from evermirror.nodes.aggregator.collect_figures import CollectingFigures, status_of
from evermirror.nodes.aggregator.collect_works import CollectWorks
from evermirror.nodes.aggregator.readers import Readers

log = structlog.get_logger(__name__)

TICK_S = 1.0
DISK_S = 5.0  # between two looks at the disk
COUNT_S = 2.0  # between two counts, at least
USED_S = 10.0  # between two writes of what was read
AGAIN_S = 5.0  # after a write that the disk did not take
HANDLED_AT_ONCE = 100  # events in one transaction, where none needs to see the writes of another
NODES_MAX = 100_000  # holders known by name
STOPS = "the aggregator stops"


class Teller(Protocol):
    """The line to the coordinator, as far as it is told something."""

    def have(self, held: HeldRepo) -> None: ...

    def lack(self, key: RepoKey) -> None: ...

    def ask_holders(self, keys: tuple[RepoKey, ...]) -> None: ...

    def doubt(self, key: RepoKey) -> None: ...

    def accuse(self, accused: Accused) -> None: ...


@dataclass(frozen=True, slots=True)
class _Told:
    """Changes, and who waits until they are on the disk."""

    changes: Changes
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Wish:
    """A client waits for this repo."""

    key: RepoKey


@dataclass(frozen=True, slots=True)
class _Read:
    """Rows that the machine asked for: read when it is their turn, so that nothing is decided in between."""

    asked: LoadPending | PickAudit


class Collecting:
    """``run`` until cancelled; it is a Collection for the uplink."""

    def __init__(
        self,
        machine: Collector,
        settings: CollectSettings,
        *,
        store: Collected,
        mirrors: Mirrors,
        works: Callable[[Callable[[Event], None]], CollectWorks],
        reach: Reach,
        teller: Teller,
        readers: Readers,
        clock: Callable[[], float],
        chance: random.Random,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._store = store
        self._mirrors = mirrors
        self._reach = reach
        self._teller = teller
        self._readers = readers
        self._clock = clock
        self._chance = chance
        self._inbox: deque[Event | _Told | _Wish | _Read] = deque()
        self._news = asyncio.Event()
        self._writes: list[Write] = []
        self._actions: list[Action] = []
        self._told: list[_Told] = []
        self._clients: dict[RepoKey, asyncio.Future[TellClients]] = {}
        self._works = works(self._put)
        self._nodes: set[NodeId] = set()
        self._reachable: frozenset[NodeId] = frozenset()
        self._usage = mirrors.disk_usage()
        self._counted = CollectedFigures(0, 0, 0, 0)
        self._changes = self._accused = 0
        self._stopped = False
        self.alerts: dict[tuple[AlertKind, str], str] = {}

    # What others ask of it

    async def since(self) -> int:
        return await self._store.since()

    async def take(self, changes: Changes) -> None:
        """They are on the disk when this returns."""
        told = _Told(changes, asyncio.get_running_loop().create_future())
        self._put(told)
        await told.done

    def holders_told(self, items: tuple[RepoHolders, ...]) -> None:
        self._meet(holder for item in items for holder in item.holders)
        self._put(HoldersTold(items))

    async def served(self, after: RepoKey | None, limit: int) -> list[HeldRepo]:
        return await self._store.served(after, limit)

    async def want(self, key: RepoKey) -> TellClients:
        """What becomes of a repo that is not served now, after a bounded wait."""
        waiting = self._clients.get(key)
        if waiting is None:
            if self._stopped:
                return TellClients(key, Outcome.LATER, text=STOPS)
            if len(self._clients) >= self._settings.waits_max:
                return TellClients(key, Outcome.LATER, self._settings.client_wait_s, "too many wait already")
            waiting = self._clients[key] = asyncio.get_running_loop().create_future()
            self._put(_Wish(key))
        return await asyncio.shield(waiting)

    def status(self) -> WorkerStatus:
        """For the coordinator."""
        return status_of(self.figures(), self.alerts.values(), self._clock())

    def figures(self) -> CollectingFigures:
        """For people and for Prometheus."""
        return CollectingFigures(
            repos=self._counted,
            fetching=dict(self._works.fetching),
            waiting=len(self._clients),
            attempts=dict(self._works.ended),
            changes=self._changes,
            accused=self._accused,
            disk=self._usage,
            accepting=self._machine.accepting,
        )

    # Life

    async def run(self) -> None:
        """Until cancelled; what is under way then ends with it, and begins anew after the next start."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._works.enter(group)
                for work in (
                    self._keep_handling(),
                    self._keep_ticking(),
                    self._keep_looking_at_disk(),
                    self._keep_counting(),
                    self._keep_noting_used(),
                ):
                    group.create_task(work)
        finally:
            self._stopped = True
            for key in tuple(self._clients):
                self._tell(TellClients(key, Outcome.LATER, text=STOPS))

    async def _keep_ticking(self) -> None:
        while True:
            self._look_who_is_there()
            self._put(Ticked(self._chance.random()))
            await asyncio.sleep(TICK_S)

    async def _keep_looking_at_disk(self) -> None:
        while True:
            usage = self._usage = await asyncio.to_thread(self._mirrors.disk_usage)
            self._put(DiskTold(usage.used_share, usage.total_bytes))
            await asyncio.sleep(DISK_S)

    async def _keep_counting(self) -> None:
        """A million rows take a second to count: then that is done seldom."""
        while True:
            began = time.monotonic()
            self._counted = await self._store.figures()
            await asyncio.sleep(max(COUNT_S, 100 * (time.monotonic() - began)))

    async def _keep_noting_used(self) -> None:
        while True:
            await asyncio.sleep(USED_S)
            await self._note_used()

    async def _note_used(self) -> None:
        if used := self._readers.take_used():
            try:
                await self._store.note_used(used)
            except FailureError as error:  # the order of leaving is a little worse by it
                log.warning("not noted what was read", reason=error.failure.message)

    def _meet(self, holders: Iterable[HolderReport]) -> None:
        """Nodes that were not heard of before may be reachable already."""
        fresh = {holder.node for holder in holders} - self._nodes
        if fresh and len(self._nodes) + len(fresh) <= NODES_MAX:
            self._nodes |= fresh
            self._look_who_is_there()

    def _look_who_is_there(self) -> None:
        reachable = frozenset(node for node in self._nodes if self._reach.reachable(node))
        if reachable != self._reachable:
            self._reachable = reachable
            self._put(Reachability(reachable))

    # Events

    def _put(self, item: Event | _Told | _Wish | _Read) -> None:
        self._inbox.append(item)
        self._news.set()

    async def _keep_handling(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._inbox:
                for _ in range(min(len(self._inbox), HANDLED_AT_ONCE)):
                    await self._handle(self._inbox.popleft())
                await self._settle()

    async def _handle(self, item: Event | _Told | _Wish | _Read) -> None:
        match item:
            case _Told(changes):
                self._meet(holder for change in changes.items for holder in change.holders)
                await self._settle()  # rows are read as they are after all that was decided before
                rows = await self._store.rows_of([change.key for change in changes.items])
                for change in changes.items:
                    self._decide(Changed(change, rows.get(change.key)))
                self._changes += len(changes.items)
                self._told.append(item)
                await self._settle()
            case _Wish(key):
                await self._settle()
                self._decide(Wanted(key, await self._store.row_of(key)))
            case _Read() | DiskTold():
                await self._settle()
                self._decide(await self._with_rows(item))
            case _:
                self._decide(item)

    async def _with_rows(self, item: _Read | DiskTold) -> Event:
        """What the machine asked for; above the disk's mark, what may have to leave."""
        settings = self._settings
        match item:
            case _Read(LoadPending(first, after, limit)):
                rows = await self._store.pending(after, limit, first=first)
                return PendingLoaded(first, tuple(rows), last=len(rows) < limit)
            case _Read(PickAudit(share)):
                return AuditPicked(await self._store.audited(share))
            case DiskTold(used) if used >= settings.disk_high and settings.mode is CollectMode.PULL_THROUGH:
                await self._note_used()
                unused = await self._store.least_used(2 * settings.evict_batch, self._readers.now)
                return replace(item, least_used=unused)
            case DiskTold():
                return item
        raise AssertionError("nothing else is read")

    def _decide(self, event: Event) -> None:
        decision: Decision = self._machine.handle(event, self._clock())
        self._writes += decision.writes
        self._actions += decision.actions

    async def _settle(self) -> None:
        """What was decided is on the disk, then it is done."""
        writes, self._writes = self._writes, []
        told, self._told = self._told, []
        if writes or told:
            withdrawn = await self._write(writes, told[-1].changes.upto if told else None)
            for key in withdrawn:
                self._teller.lack(key)
        for each in told:
            if not each.done.done():
                each.done.set_result(None)
        actions, self._actions = self._actions, []
        for action in actions:
            await self._act(action)

    async def _write(self, writes: list[Write], since: int | None) -> list[RepoKey]:
        """Nothing goes on before the disk took it: what was decided builds on it."""
        while True:
            try:
                return await self._store.write(writes, since)
            except FailureError as error:
                log.error("the disk takes no writes; waiting", reason=error.failure.message, alert=True)
                await asyncio.sleep(AGAIN_S)

    # Actions

    async def _act(self, action: Action) -> None:
        match action:
            case Fetch() | Look() | Evict() | Discard():
                self._works.start(action)
            case LoadPending() | PickAudit():
                self._put(_Read(action))
            case _:
                self._tell(action)

    def _tell(self, action: Action) -> None:
        match action:
            case Serve(key, here):
                self._teller.have(HeldRepo(key, here.digest, here.verified_at))
            case Withdraw(key, why):
                log.info("no longer served", repo=key, reason=why)
                self._teller.lack(key)
            case AskHolders(keys):
                self._teller.ask_holders(keys)
            case DoubtReports(key):
                self._teller.doubt(key)
            case Accuse(node, key, reason, evidence):
                self._accused += 1
                log.error("a worker lies", node=node, repo=key, reason=reason, evidence=evidence, alert=True)
                self._teller.accuse(Accused(node, key, reason, evidence))
            case TellClients(key):
                waiting = self._clients.pop(key, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(action)
            case Alert(kind, about, text, over):
                self._alert(kind, about, text, over=over)

    def _alert(self, kind: AlertKind, about: str, text: str, *, over: bool) -> None:
        if over:
            if self.alerts.pop((kind, about), None) is not None:
                log.info("an alert is over", kind=kind.value, about=about)
            return
        if self.alerts.get((kind, about)) != text:
            log.warning(text, kind=kind.value, about=about, alert=True)
        self.alerts[kind, about] = text
