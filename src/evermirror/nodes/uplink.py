"""A worker's line to its coordinator: reports up, commands down, over connections that come and go.

                       ┌──────────── backoff ◀─────────────┐
    connecting ──dial, Hello──▶ welcomed ──▶ conversing ───┤ the connection ends
                       └─ refused: slowly again            │
    engine ── report ──▶ Outgoing (uplink_reports.py) ─────┴──▶ Numbered, and what is told between
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
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import structlog

from evermirror.edge.rpc.transport import Connection, Dialer, PeerGone
from evermirror.edge.store.report_log import ReportLog
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.messages import Command, HeldRepo, Progress, Report, Verified, WorkerStatus
from evermirror.model.repo import RepoKey
from evermirror.model.wire import (
    PROTOCOL,
    Answer,
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
from evermirror.nodes.ports import WorkerView
from evermirror.nodes.questions import answer
from evermirror.nodes.running import in_time
from evermirror.nodes.uplink_commands import Incoming
from evermirror.nodes.uplink_held import compared, holding
from evermirror.nodes.uplink_reports import Outgoing, SetBack

log = structlog.get_logger(__name__)

BACKOFF_FIRST_S = 1.0
BACKOFF_LAST_S = 60.0
REFUSED_S = 60.0  # at least, where only a person can help
LASTED_S = 30.0  # a session that lasted so long was a good one: the next failure is the first
WELCOME_S = 30.0  # for the answer to a Hello: the coordinator may be busy with many that come back
GATHER_S = 0.05  # progress within it goes together
PASSING_MAX = 500  # repos whose progress waits to be told
QUESTIONS_MAX = 32  # answered at a time
VERIFIED_CHUNK = 2000
UNCONFIRMED_S = 600.0  # of a fresh session: what was not assigned again by then is no longer ours
LAST_WORDS_S = 10.0

_HOPELESS = (FailureKind.AUTH_FAILED, FailureKind.PERMISSION_DENIED)


class Engine(WorkerView, Protocol):
    """What the uplink needs of the worker itself."""

    def held(self) -> list[HeldRepo]:
        """What is complete on its disk now."""
        ...

    def began_anew(self) -> None:
        """A fresh session begins: what is assigned stays so only if it is said again."""
        ...

    async def drop_unconfirmed(self) -> None:
        """What was not assigned again is no longer looked after; mirrors stay."""
        ...


class Phase(Enum):
    """How it stands with the coordinator."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    REFUSED = "refused"  # it answers, and does not let us in


@dataclass(frozen=True, slots=True)
class LinkState:
    """For people; ``since`` is UTC seconds, ``reason`` what stands in the way."""

    phase: Phase
    since: float
    reason: str = ""


class _Refused(Exception):
    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final


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
        clock: Callable[[], float],
        chance: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dialer = dialer
        self._reports = Outgoing(log)
        self._name, self._weight, self._capacity = name, weight, capacity
        self._boot = boot
        self._version = version
        self._clock = clock
        self._chance = chance
        self._sleep = sleep  # between two tries
        self._mono = mono
        self._engine: Engine | None = None
        self._commands = Incoming(self._tell_all, self._compare)
        self._told_all = asyncio.Event()  # in this session
        self._status: WorkerStatus | None = None
        self._status_known = asyncio.Event()
        self._passing: dict[RepoKey, Progress] = {}
        self._to_pass = asyncio.Event()
        self._verified: dict[RepoKey, float] = {}  # while nobody listens
        self._answering: set[asyncio.Task[None]] = set()
        self._connected_at: float | None = None  # monotonic
        self.state = LinkState(Phase.CONNECTING, clock())
        self.welcomed: Welcomed | None = None  # of the newest session

    def attach(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def connected(self) -> bool:
        return self.state.phase is Phase.CONNECTED

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
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reports.write(), name="uplink writes")
                group.create_task(self._reports.keep_forgetting(), name="uplink forgets")
                group.create_task(self._keep_connected(), name="uplink")
        finally:
            await in_time(self._reports.flush(), LAST_WORDS_S)

    async def _keep_connected(self) -> None:
        tries = 0
        while True:
            self._connected_at = None
            pause_s = 0.0
            try:
                await self._connect()
            except _Refused as refusal:
                if refusal.final:
                    pause_s = REFUSED_S
                self._lost(Phase.REFUSED, str(refusal))
            except FailureError as error:
                if error.failure.kind in _HOPELESS:
                    pause_s = REFUSED_S
                    self._lost(Phase.REFUSED, error.failure.message)
                else:
                    self._lost(Phase.CONNECTING, error.failure.message)
            except (PeerGone, TimeoutError) as error:
                self._lost(Phase.CONNECTING, str(error) or "no answer")
            except SetBack:
                self._lost(Phase.CONNECTING, "reports are numbered anew")
                with contextlib.suppress(FailureError):  # then the next try finds the same
                    await self._reports.renew()
            lasted = self._connected_at is not None and self._mono() - self._connected_at >= LASTED_S
            tries = 0 if lasted else min(tries + 1, 10)
            most_s = min(BACKOFF_FIRST_S * 2.0 ** max(tries - 1, 0), BACKOFF_LAST_S)
            await self._sleep(pause_s + self._chance.uniform(0.0, max(most_s, pause_s)))

    def _lost(self, phase: Phase, reason: str) -> None:
        before, self.state = self.state, LinkState(phase, self._clock(), reason)
        if phase is before.phase and reason == before.reason:
            self.state = before  # it is the same trouble as before, and was told then
        elif phase is Phase.REFUSED:
            log.error("the coordinator refuses this worker", reason=reason, alert=True)
        else:
            log.warning("no connection to the coordinator; work goes on", reason=reason)

    async def _connect(self) -> None:
        """One connection, from dialling to its end; always raises."""
        connection = await self._dialer.dial()
        try:
            async with asyncio.timeout(WELCOME_S):
                welcomed = await self._greet(connection)
            self._begin(welcomed)
            await self._converse(connection, welcomed)
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
            )
        )
        welcomed = None
        while True:
            match frame := await connection.receive():
                case Rejected(reason, final):
                    raise _Refused(reason, final=final)
                case Welcomed() if welcomed is None:
                    welcomed = frame
                case Taken(generation, seq) if welcomed is not None:
                    self._reports.begin(generation, seq)
                    return welcomed
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
        self._connected_at = self._mono()
        self.state = LinkState(Phase.CONNECTED, self._clock())
        log.info("connected to the coordinator", worker=welcomed.worker, resumed=welcomed.resumed)

    async def _converse(self, connection: Connection, welcomed: Welcomed) -> None:
        """Until the connection ends; always raises."""
        try:
            async with asyncio.TaskGroup() as group:
                for work in (
                    self._listen(connection),
                    self._reports.send(connection),
                    self._reports.watch(),
                    self._keep_beating(connection, welcomed.heartbeat_s),
                    self._commands.keep_acknowledging(connection),
                    self._keep_passing(connection),
                    self._tell_verified(),
                    self._confirm(),
                ):
                    group.create_task(work)
        except BaseExceptionGroup as ended:
            raise _cause_of(ended) from None
        finally:
            self._passing.clear()

    # While connected

    async def _listen(self, connection: Connection) -> None:
        while True:
            match frame := await connection.receive():
                case Ordered(seq, command):
                    self._commands.take_in(seq, command)
                case Compare():
                    self._commands.take_in(frame.seq, frame)
                case Taken(generation, seq):
                    self._reports.taken(generation, seq)
                case Question():
                    self._ask(connection, frame)
                case Rejected(reason):
                    raise PeerGone(reason)
                case Welcomed():
                    raise PeerGone("the coordinator said welcome twice")

    async def _keep_beating(self, connection: Connection, gap_s: float) -> None:
        await self._status_known.wait()
        while self._status is not None:
            await connection.send(Beat(self._status))
            await asyncio.sleep(gap_s)

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


def _cause_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Why the tasks of a connection ended; where one of them has a bug, the whole group. (What is raised in
    an ``except*`` would be a group again.)"""
    kinds = (SetBack, PeerGone, FailureError)
    _, others = group.split(kinds)
    for kind in kinds if others is None else ():
        if (found := group.subgroup(kind)) is not None:
            return _leaf(found)
    return group


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _leaf(error) if isinstance(error, BaseExceptionGroup) else error
