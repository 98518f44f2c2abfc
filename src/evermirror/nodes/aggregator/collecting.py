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
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

import structlog

from evermirror.core.collect.decisions import (
    Accuse,
    Action,
    Alert,
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
    Lost,
    PendingLoaded,
    Reachability,
    Ticked,
    Wanted,
)
from evermirror.core.collect.machine import Collector
from evermirror.core.collect.rows import Row
from evermirror.core.collect.settings import CollectMode, CollectSettings
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.relay.ask import Reach
from evermirror.edge.store.collected import Collected, CollectedFigures
from evermirror.model.changes import HolderReport, RepoHolders
from evermirror.model.failure import FailureError
from evermirror.model.messages import HeldRepo, WorkerStatus
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey
from evermirror.model.wire import UNREACHED_MAX, Accused, Changes
from evermirror.nodes.aggregator.collect_alerts import Alerts
from evermirror.nodes.aggregator.collect_figures import CollectingFigures, status_of
from evermirror.nodes.aggregator.collect_inbox import Inbox, Item, Read, Told, Wish
from evermirror.nodes.aggregator.collect_start import PART, without_mirror
from evermirror.nodes.aggregator.collect_works import CollectWorks
from evermirror.nodes.aggregator.patient_store import PatientStore
from evermirror.nodes.aggregator.readers import Readers

log = structlog.get_logger(__name__)

TICK_S = 1.0
ARRIVALS_S = 0.1  # holders that come within it are seen together
DISK_S = 5.0  # between two looks at the disk
COUNT_S = 2.0  # between two counts, at least
USED_S = 10.0  # between two writes of what was read
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


class Collecting:
    """``run`` until cancelled; it is a Collection for the uplink."""

    def __init__(
        self,
        machine: Callable[[], Collector],
        settings: CollectSettings,
        *,
        store: Collected,
        mirrors: Mirrors,
        works: Callable[[Callable[[Event], None]], CollectWorks],
        reach: Reach,
        has_pass: Callable[[], bool],
        teller: Teller,
        readers: Readers,
        clock: Callable[[], float],
        chance: random.Random,
        warnings: Callable[[], tuple[str, ...]],
    ) -> None:
        self._warnings = warnings  # of the process, besides those that the machine tells
        self._make_machine, self._make_works = machine, works
        self._settings = settings
        self._store = store
        self._rows = PatientStore(store)
        self._mirrors = mirrors
        self._reach = reach
        self._has_pass = has_pass
        self._teller = teller
        self._readers = readers
        self._clock = clock
        self._chance = chance
        self._clients: dict[RepoKey, asyncio.Future[TellClients]] = {}
        self._nodes: set[NodeId] = set()
        self._arrived = asyncio.Event()
        self._usage = mirrors.disk_usage()
        self._counted = CollectedFigures(0, 0, 0, 0)
        self._changes = self._accused = 0
        self._stopped = False
        self.alerts = Alerts(clock)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Nothing was heard or decided yet."""
        self._machine = self._make_machine()
        self._inbox = Inbox()
        self._works = self._make_works(self._inbox.put)
        self._writes: list[Write] = []
        self._actions: list[Action] = []
        self._told: list[Told] = []
        self._reachable: frozenset[NodeId] = frozenset()
        self._usable: frozenset[NodeId] = frozenset()  # as the machine was told

    # What others ask of it

    async def since(self) -> int:
        return await self._store.since()

    async def take(self, changes: Changes) -> None:
        """They are on the disk when this returns."""
        told = Told(changes, asyncio.get_running_loop().create_future())
        self._inbox.put(told)
        await told.done

    def holders_told(self, items: tuple[RepoHolders, ...]) -> None:
        self._meet(holder for item in items for holder in item.holders)
        self._inbox.put(HoldersTold(items))

    def arrived(self) -> None:
        """A holder may be reachable that was not."""
        self._arrived.set()

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
            self._inbox.put(Wish(key))
        return await asyncio.shield(waiting)

    def status(self) -> WorkerStatus:
        """For the coordinator."""
        return status_of(self.figures(), (*self._warnings(), *self.alerts.texts()), self._clock())

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
        """Until cancelled; what is under way then ends with it, and begins anew after the next start. Called
        again after a failure it begins like a new process: with a new machine, which reads from the store
        what is still to be fetched. The coordinator tells changes again that were not on the disk yet."""
        self._stopped = False
        try:
            async with asyncio.TaskGroup() as group:
                await self._works.enter(group)
                for work in (
                    self._keep_handling(),
                    self._keep_ticking(),
                    self._keep_seeing_arrivals(),
                    self._keep_looking_at_disk(),
                    self._keep_counting(),
                    self._keep_noting_used(),
                ):
                    group.create_task(work)
        finally:
            self._stopped = True
            for key in tuple(self._clients):
                self._tell(TellClients(key, Outcome.LATER, text=STOPS))
            self._begin_anew()

    async def _keep_ticking(self) -> None:
        while True:
            self._look_who_is_there()
            self._inbox.put(Ticked(self._chance.random()))
            await asyncio.sleep(TICK_S)

    async def _keep_seeing_arrivals(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            self._look_who_is_there()
            await asyncio.sleep(ARRIVALS_S)

    async def _keep_looking_at_disk(self) -> None:
        while True:
            await self._mend_folder()
            usage = self._usage = await asyncio.to_thread(self._mirrors.disk_usage)
            self._inbox.put(DiskTold(usage.used_share, usage.total_bytes))
            await asyncio.sleep(DISK_S)

    async def _mend_folder(self) -> None:
        """Somebody may have removed the folder of all mirrors: what was in it is fetched again."""
        try:
            if not await self._mirrors.mend_root():
                return
            log.error("the folder of mirrors was removed: they are fetched again", alert=True)
            after: RepoKey | None = None
            while rows := await self._store.here_after(after, PART):
                after = rows[-1].key
                for key in await asyncio.to_thread(without_mirror, self._mirrors, rows):
                    self._inbox.put(Lost(key, damaged=False))
        except FailureError as error:
            log.error("the folder of mirrors is gone, and cannot be made", reason=error.failure.message)

    async def _keep_counting(self) -> None:
        """A million rows take a second to count: then that is done seldom."""
        while True:
            began = time.monotonic()
            try:
                self._counted = await self._store.figures()
            except FailureError as error:
                log.warning("not counted", reason=error.failure.message)
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
        self._reachable = frozenset(node for node in self._nodes if self._reach.reachable(node))
        usable = self._reachable if self._has_pass() else frozenset()  # without one every relay refuses us
        if usable != self._usable:
            self._usable = usable
            self._inbox.put(Reachability(usable))

    def unreached(self) -> tuple[NodeId, ...]:
        """Holders that were heard of and cannot be read from now, as many as are told."""
        return tuple(sorted(self._nodes - self._reachable)[:UNREACHED_MAX])

    # Events

    async def _keep_handling(self) -> None:
        while True:
            await self._inbox.come()
            while self._inbox:
                for _ in range(min(len(self._inbox), HANDLED_AT_ONCE)):
                    await self._handle(self._inbox.take())
                await self._settle()

    async def _handle(self, item: Item) -> None:
        match item:
            case Told(changes):
                self._meet(holder for change in changes.items for holder in change.holders)
                await self._settle()  # rows are read as they are after all that was decided before
                rows = await self._rows.rows_of([change.key for change in changes.items])
                for change in changes.items:
                    self._decide(Changed(change, rows.get(change.key)))
                self._changes += len(changes.items)
                self._told.append(item)
                await self._settle()
            case Wish(key):
                await self._settle()
                self._decide(Wanted(key, await self._row_with_mirror(key)))
            case Read() | DiskTold() | Lost():
                await self._settle()
                self._decide(await self._with_rows(item))
            case _:
                self._decide(item)

    async def _row_with_mirror(self, key: RepoKey) -> Row | None:
        """A client asks for what is here though it cannot be opened: its mirror may be gone."""
        row = await self._rows.row_of(key)
        if row is None or not row.served or await asyncio.to_thread(self._mirrors.path(key).is_dir):
            return row
        log.error("mirror gone from the disk", repo=key, alert=True)
        self._decide(Lost(key, damaged=False, row=row))
        await self._settle()
        return await self._rows.row_of(key)

    async def _with_rows(self, item: Read | DiskTold | Lost) -> Event:
        """What the machine asked for; above the disk's mark, what may have to leave."""
        settings = self._settings
        match item:
            case Read(LoadPending(first, after, limit)):
                rows = await self._rows.pending(after, limit, first=first)
                return PendingLoaded(first, tuple(rows), last=len(rows) < limit)
            case Read(PickAudit(share, first)):
                return AuditPicked(await self._rows.audited(share, first=first))
            case DiskTold(used) if used >= settings.disk_high and settings.mode is CollectMode.PULL_THROUGH:
                await self._note_used()
                unused = await self._rows.least_used(2 * settings.evict_batch, self._readers.now)
                return replace(item, least_used=unused)
            case Lost(key):
                return replace(item, row=await self._rows.row_of(key))
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
            withdrawn = await self._rows.write(writes, told[-1].changes.upto if told else None)
            for key in withdrawn:
                self._teller.lack(key)
        for each in told:
            if not each.done.done():
                each.done.set_result(None)
        actions, self._actions = self._actions, []
        for action in actions:
            await self._act(action)

    # Actions

    async def _act(self, action: Action) -> None:
        match action:
            case Fetch() | Look() | Evict() | Discard():
                self._works.start(action)
            case LoadPending() | PickAudit():
                self._inbox.put(Read(action))
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
            case Alert():
                self.alerts.take(action)
