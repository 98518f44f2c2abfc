"""A worker's line to its coordinator: reports up, commands down, over connections that come and go.

    redial.py: connecting ──dial, Hello──▶ welcomed ──▶ conversing, and again
    engine ── report ──▶ Outgoing (uplink_reports.py) ────────▶ Numbered, and what is told between
    engine ◀─ next_command ── Incoming (uplink_commands.py) ◀── Ordered, Compare

Rules
- A coordinator that is away is no trouble: the engine never waits for it, and memory stays bounded.
- In a fresh session all that is on the disk is told, between two commands of the engine.
- Times at which repos were seen unchanged are merged while nobody listens; progress is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from evermirror.edge.rpc.transport import Connection, Dialer, PeerGone
from evermirror.edge.store.report_log import ReportLog
from evermirror.model.access import Role
from evermirror.model.failure import FailureError
from evermirror.model.messages import (
    ApplySettings,
    Command,
    HeldRepo,
    Progress,
    Report,
    Verified,
    WorkerStatus,
)
from evermirror.model.repo import RepoKey
from evermirror.model.wire import (
    PROTOCOL,
    Access,
    Answer,
    AskSource,
    Beat,
    Compare,
    Hello,
    Ordered,
    Passing,
    Question,
    Rejected,
    Taken,
    Welcomed,
)
from evermirror.nodes.clock import CoordinatorClock
from evermirror.nodes.redial import LinkState, Redial, TurnedAway, cause_of
from evermirror.nodes.running import in_time
from evermirror.nodes.worker.contact import Contact
from evermirror.nodes.worker.ports import WorkerView
from evermirror.nodes.worker.questions import answer
from evermirror.nodes.worker.uplink_commands import Incoming
from evermirror.nodes.worker.uplink_held import compared, holding
from evermirror.nodes.worker.uplink_reports import Outgoing, SetBack

log = structlog.get_logger(__name__)

WELCOME_S = 120.0  # for the answer to a Hello: of many that come back at once each waits for its turn
GATHER_S = 0.05  # progress within it goes together
PASSING_MAX = 500  # repos whose progress waits to be told
QUESTIONS_MAX = 32  # answered at a time
VERIFIED_CHUNK = 2000
UNCONFIRMED_S = 600.0  # of a fresh session: what was not assigned again by then is no longer ours
LAST_WORDS_S = 10.0


class Engine(WorkerView, Protocol):
    """What the uplink needs of the worker itself."""

    def held(self) -> list[HeldRepo]:
        """What is complete on its disk now."""
        ...

    @property
    def limits(self) -> ApplySettings | None:
        """Those that it was told last, also before it was restarted."""
        ...

    def limit(self, limits: ApplySettings) -> None:
        """These are in force from now on."""
        ...

    async def keep_limits(self) -> None:
        """Those told last are on the disk, if it takes them."""
        ...

    def began_anew(self) -> None:
        """A fresh session begins: what is assigned stays so only if it is said again."""
        ...

    async def drop_unconfirmed(self) -> None:
        """What was not assigned again is no longer looked after; mirrors stay."""
        ...


class Uplink:
    """A WorkerPort; ``attach`` the engine, then ``run`` until cancelled, which writes down what is left."""

    def __init__(
        self,
        dialer: Dialer,
        log: ReportLog,
        *,
        name: str,
        weight: float,
        capacity: int | None,
        boot: int,
        version: str,
        refs_extra: tuple[str, ...] = (),
        contact: Contact | None = None,
        clock: Callable[[], float],
        chance: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dialer = dialer
        self._reports = Outgoing(log)
        self._name, self._weight, self._capacity = name, weight, capacity
        self._boot = boot
        self.contact = contact if contact is not None else Contact()
        self._refs_extra = refs_extra
        self._version = version
        self._log = log
        self._redial = Redial(
            "worker", clock=clock, chance=chance, sleep=sleep, mono=mono, last_s=log.redial_s
        )
        self.coordinator_clock = CoordinatorClock(clock)
        self._engine: Engine | None = None
        self._commands = Incoming(
            self._tell_all,
            self._compare,
            lambda told: self._attached.limit(told),
            lambda: self._attached.keep_limits(),
            self.contact,
        )
        self._told_all = asyncio.Event()  # in this session
        self._status: WorkerStatus | None = None
        self._status_known = asyncio.Event()
        self._passing: dict[RepoKey, Progress] = {}
        self._to_pass = asyncio.Event()
        self._verified: dict[RepoKey, float] = {}  # while nobody listens
        self._answering: set[asyncio.Task[None]] = set()
        self.welcomed: Welcomed | None = None  # of the newest session
        self.access: Access | None = None  # the newest
        self.on_access: Callable[[Access], None] = lambda access: None

    def attach(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def state(self) -> LinkState:
        return self._redial.state

    @property
    def connected(self) -> bool:
        return self._redial.connected

    @property
    def unacknowledged(self) -> int:
        """Reports that the coordinator has not taken."""
        return self._reports.unacknowledged

    # What the engine sees

    async def report(self, report: Report) -> None:
        match report:
            case WorkerStatus():
                self._status = report
                self._status_known.set()
            case Progress():
                if self.connected and (report.key in self._passing or len(self._passing) < PASSING_MAX):
                    self._passing[report.key] = report
                    self._to_pass.set()
            case Verified() if not self.connected:
                self._verified |= dict(report.items)
            case _:
                await self._reports.put(report)

    def ask_source(self, key: RepoKey) -> None:
        """New tickets for what is copied from a holder come with a command, if the coordinator is there."""
        if self.connected:
            self._reports.mark((AskSource(key),))

    async def next_command(self) -> Command:
        return await self._commands.next()

    def _tell_all(self) -> None:
        self._reports.mark(holding(self._attached.held()))
        self._attached.began_anew()
        self._told_all.set()

    def _compare(self, compare: Compare) -> None:
        try:
            self._reports.mark(compared(self._attached.held(), compare))
        except ValueError as error:
            log.error("a comparison that makes no sense: not answered", reason=str(error))

    @property
    def _attached(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("no engine is attached")
        return self._engine

    # Connections

    async def run(self) -> None:
        """Until cancelled. Called again, it dials anew: reports that were not acknowledged are sent again."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reports.write(), name="uplink writes")
                group.create_task(self._reports.keep_forgetting(), name="uplink forgets")
                group.create_task(self._redial.keep(self._connect), name="uplink")
        finally:
            await in_time(self._reports.flush(), LAST_WORDS_S)

    async def _connect(self) -> None:
        """One connection, from dialling to its end; always raises."""
        connection = await self._dialer.dial()
        try:
            async with asyncio.timeout(WELCOME_S):
                welcomed = await self._greet(connection)
            self._begin(welcomed)
            await self._log.keep_redial(welcomed.redial_s)
            await self._converse(connection, welcomed)
        except SetBack:
            with contextlib.suppress(FailureError):  # then the next try finds the same
                await self._reports.renew()
            raise PeerGone("reports are numbered anew") from None
        finally:
            for task in self._answering:
                task.cancel()
            await connection.close()

    async def _greet(self, connection: Connection) -> Welcomed:
        await connection.send(
            Hello(
                protocol=PROTOCOL,
                version=self._version,
                name=self._name,
                boot=self._boot,
                generation=self._reports.generation,
                epoch=self._commands.epoch,
                seen=self._commands.seen,
                weight=self._weight,
                capacity=self._capacity,
                role=Role.WORKER,
                limits=self._attached.limits,
                refs_extra=self._refs_extra,
            )
        )
        welcomed = None
        while True:
            match frame := await connection.receive():
                case Rejected(reason, final):
                    raise TurnedAway(reason, final=final)
                case Welcomed() if welcomed is None:
                    welcomed = frame
                case Taken(generation, seq) if welcomed is not None:
                    self._reports.begin(generation, seq)
                    return welcomed
                case Access() if welcomed is not None:
                    self._take_access(frame)
                case Question():
                    self._ask(connection, frame)
                case _:
                    raise PeerGone(f"the coordinator began with {type(frame).__name__}")

    def _begin(self, welcomed: Welcomed) -> None:
        if not welcomed.resumed:
            self._reports.drop_marks()
            self._told_all.clear()
        self._commands.begin(welcomed.epoch, resumed=welcomed.resumed)
        self.welcomed = welcomed
        self._redial.welcomed(welcomed.redial_s)
        self.contact.welcomed(welcomed.grace_s, welcomed.heartbeat_s)
        log.info("connected to the coordinator", worker=welcomed.worker, resumed=welcomed.resumed)

    async def _converse(self, connection: Connection, welcomed: Welcomed) -> None:
        """Until the connection ends; always raises."""
        try:
            async with asyncio.TaskGroup() as group:
                for work in (
                    self._listen(connection),
                    self._reports.send(connection),
                    self._reports.watch(),
                    self._keep_beating(connection, welcomed),
                    self._commands.keep_acknowledging(connection),
                    self._keep_passing(connection),
                    self._tell_verified(),
                    self._confirm(),
                ):
                    group.create_task(work)
        except BaseExceptionGroup as ended:
            raise cause_of(ended, SetBack, PeerGone, FailureError) from None
        finally:
            self._passing.clear()

    # While connected

    async def _listen(self, connection: Connection) -> None:
        while True:
            frame = await connection.receive()
            self.contact.heard()
            match frame:
                case Ordered(seq, command):
                    self._commands.take_in(seq, command)
                case Compare():
                    self._commands.take_in(frame.seq, frame)
                case Taken(generation, seq):
                    self._reports.taken(generation, seq)
                case Question():
                    self._ask(connection, frame)
                case Access():
                    self._take_access(frame)
                case Rejected(reason):
                    raise PeerGone(reason)
                case _:
                    raise PeerGone(f"{type(frame).__name__} is not for a worker")

    def _take_access(self, access: Access) -> None:
        self.coordinator_clock.told(access.told_at)
        self.access = access
        self.on_access(access)

    async def _keep_beating(self, connection: Connection, welcomed: Welcomed) -> None:
        await self._status_known.wait()
        while self._status is not None:
            status = self.coordinator_clock.noted(self._status, f"worker {welcomed.name}: ")
            await connection.send(Beat(status))
            self.contact.beat_sent()
            await asyncio.sleep(welcomed.heartbeat_s)

    async def _keep_passing(self, connection: Connection) -> None:
        while True:
            await self._to_pass.wait()
            self._to_pass.clear()
            progress, self._passing = tuple(self._passing.values()), {}
            await connection.send(Passing(progress))
            await asyncio.sleep(GATHER_S)

    async def _tell_verified(self) -> None:
        """What was seen unchanged while nobody listened."""
        items, self._verified = list(self._verified.items()), {}
        for start in range(0, len(items), VERIFIED_CHUNK):
            await self._reports.put(Verified(tuple(items[start : start + VERIFIED_CHUNK])))

    async def _confirm(self) -> None:
        await self._told_all.wait()
        await asyncio.sleep(UNCONFIRMED_S)
        await self._attached.drop_unconfirmed()

    def _ask(self, connection: Connection, question: Question) -> None:
        if len(self._answering) >= QUESTIONS_MAX:
            work = self._tell(connection, Answer(question.number, "", "the worker is asked too much at once"))
        else:
            work = self._answer(connection, question)
        task = asyncio.create_task(work)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, connection: Connection, question: Question) -> None:
        try:
            said = await answer(self._attached, question)
        except Exception:
            log.exception("a question could not be answered", what=question.what, repo=question.key)
            said = Answer(question.number, "", "internal error: see the worker's log")
        await self._tell(connection, said)

    async def _tell(self, connection: Connection, said: Answer) -> None:
        with contextlib.suppress(PeerGone):
            await connection.send(said)
