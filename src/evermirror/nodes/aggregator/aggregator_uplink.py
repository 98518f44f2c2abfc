"""An aggregator's line to its coordinator: changes come, what is served is told, over connections that end.

    Hello ─▶ Welcomed, Access ─▶ Follow(since) ─▶ Changes ─▶ on the disk here ─▶ Followed
                    └──────────▶ Have: everything that is served, then what changes of it

Rules
- Everything goes on while the coordinator is away: nobody waits for this line.
- Of what is served only the latest word on each repo waits to be told; a new session tells all.
- Questions and doubts that cannot be told are dropped: whoever has them asks again. Accusations wait.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from evermirror.edge.relay.seal import SealInvalid, Unsealer
from evermirror.edge.rpc.transport import Connection, Dialer, PeerGone
from evermirror.model.access import Role
from evermirror.model.changes import RepoHolders
from evermirror.model.failure import FailureError
from evermirror.model.messages import HeldRepo, WorkerStatus
from evermirror.model.relay import NodeId, RelayAddress
from evermirror.model.repo import RepoKey
from evermirror.model.wire import (
    PROTOCOL,
    Access,
    Accused,
    AskHolders,
    Beat,
    Changes,
    Doubted,
    Follow,
    Followed,
    Have,
    Hello,
    Holders,
    Lack,
    Rejected,
    Welcomed,
)
from evermirror.nodes.clock import CoordinatorClock
from evermirror.nodes.redial import LinkState, Redial, TurnedAway, cause_of

log = structlog.get_logger(__name__)

WELCOME_S = 30.0
TOLD_AT_ONCE = 500  # repos in one frame
QUESTIONS_MAX = 100  # frames that wait to be told
DOUBTS_MAX = 10_000  # repos
ACCUSATIONS_MAX = 1_000
CHANGES_WAITING = 2  # frames: the next one comes once the last is on the disk
GATHER_S = 0.02  # what is told within it goes together


class Collection(Protocol):
    """What the line needs of the one who collects."""

    async def since(self) -> int:
        """Changes up to this number are on the disk."""
        ...

    async def take(self, changes: Changes) -> None:
        """They are on the disk when this returns."""
        ...

    def holders_told(self, items: tuple[RepoHolders, ...]) -> None: ...

    def unreached(self) -> tuple[NodeId, ...]:
        """Holders that cannot be read from now; bounded."""
        ...

    async def served(self, after: RepoKey | None, limit: int) -> list[HeldRepo]:
        """What is served, in the order of keys."""
        ...

    def status(self) -> WorkerStatus: ...


class AggregatorUplink:
    """``attach`` the collection, then ``run`` until cancelled."""

    def __init__(
        self,
        dialer: Dialer,
        *,
        name: str,
        boot: int,
        version: str,
        refs_extra: tuple[str, ...] = (),
        clock: Callable[[], float],
        chance: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dialer = dialer
        self._refs_extra = refs_extra
        self._name, self._boot, self._version = name, boot, version
        self._redial = Redial("aggregator", clock=clock, chance=chance, sleep=sleep, mono=mono)
        self.coordinator_clock = CoordinatorClock(clock)
        self._collection: Collection | None = None
        self._epoch = 0
        self._held: dict[RepoKey, HeldRepo | None] = {}  # None: no longer
        self._newer: set[RepoKey] = set()  # told since the store was read last
        self._questions: deque[tuple[RepoKey, ...]] = deque(maxlen=QUESTIONS_MAX)
        self._asked = 0
        self._doubts: dict[RepoKey, None] = {}
        self._accusations: deque[Accused] = deque(maxlen=ACCUSATIONS_MAX)
        self._to_tell = asyncio.Event()
        self._unsealer: Unsealer | None = None
        self.welcomed: Welcomed | None = None  # of the newest session
        self.access: Access | None = None  # the newest
        self.relay: RelayAddress | None = None  # that this process runs, as others reach it
        self.http_url = ""  # where people clone from it
        self.on_access: Callable[[Access], None] = lambda access: None

    def attach(self, collection: Collection) -> None:
        self._collection = collection

    @property
    def state(self) -> LinkState:
        return self._redial.state

    @property
    def connected(self) -> bool:
        return self._redial.connected

    def has_pass(self) -> bool:
        """Whether the coordinator gave one that has not ended."""
        return self.access is not None and self.access.until > self.coordinator_clock()

    def reader_pass(self) -> str:
        """Sealed; empty before the coordinator gave one."""
        return self.access.pass_ if self.access is not None else ""

    @property
    def user_tokens(self) -> bool:
        """Whether the coordinator has any; as last told, and yes before that."""
        return self.access is None or self.access.user_tokens

    def unsealer(self) -> Unsealer | None:
        """For the passes of others."""
        return self._unsealer

    def status(self) -> WorkerStatus:
        """How this aggregator is doing now; with what is wrong with its clock."""
        return self.coordinator_clock.noted(self._attached.status())

    # What is told

    def have(self, held: HeldRepo) -> None:
        self._tell(held.key, held)

    def lack(self, key: RepoKey) -> None:
        self._tell(key, None)

    def _tell(self, key: RepoKey, held: HeldRepo | None) -> None:
        if self.connected:
            self._held[key] = held
            self._newer.add(key)
            self._to_tell.set()

    def ask_holders(self, keys: tuple[RepoKey, ...]) -> None:
        if self.connected:
            self._questions.extend(
                keys[n : n + TOLD_AT_ONCE] for n in range(0, len(keys), TOLD_AT_ONCE)
            )  # the oldest go where there are too many
            self._to_tell.set()

    def doubt(self, key: RepoKey) -> None:
        if self.connected and len(self._doubts) < DOUBTS_MAX:
            self._doubts[key] = None
            self._to_tell.set()

    def accuse(self, accused: Accused) -> None:
        self._accusations.append(accused)
        self._to_tell.set()

    # Connections

    async def run(self) -> None:
        """Until cancelled."""
        await self._redial.keep(self._connect)

    @property
    def _attached(self) -> Collection:
        if self._collection is None:
            raise RuntimeError("nothing is attached")
        return self._collection

    async def _connect(self) -> None:
        """One connection, from dialling to its end; always raises."""
        connection = await self._dialer.dial()
        try:
            async with asyncio.timeout(WELCOME_S):
                welcomed = await self._greet(connection)
            self._begin(welcomed)
            await self._converse(connection, welcomed)
        finally:
            await connection.close()

    async def _greet(self, connection: Connection) -> Welcomed:
        await connection.send(
            Hello(
                protocol=PROTOCOL,
                version=self._version,
                name=self._name,
                boot=self._boot,
                generation=0,
                epoch=self._epoch,
                relay=self.relay,
                role=Role.AGGREGATOR,
                refs_extra=self._refs_extra,
                http_url=self.http_url,
            )
        )
        match frame := await connection.receive():
            case Rejected(reason, final):
                raise TurnedAway(reason, final=final)
            case Welcomed():
                return frame
            case _:
                raise PeerGone(f"the coordinator began with {type(frame).__name__}")

    def _begin(self, welcomed: Welcomed) -> None:
        for waiting in (self._held, self._newer, self._questions, self._doubts):
            waiting.clear()
        self._epoch = welcomed.epoch
        self.welcomed = welcomed
        self._redial.welcomed(welcomed.redial_s)
        self._to_tell.set()
        log.info("connected to the coordinator")

    async def _converse(self, connection: Connection, welcomed: Welcomed) -> None:
        """Until the connection ends; always raises."""
        changes: asyncio.Queue[Changes] = asyncio.Queue(CHANGES_WAITING)
        try:
            async with asyncio.TaskGroup() as group:
                for work in (
                    self._listen(connection, changes),
                    self._follow(connection, changes),
                    self._tell_all(connection),
                    self._keep_telling(connection),
                    self._keep_beating(connection, welcomed.heartbeat_s),
                ):
                    group.create_task(work)
        except BaseExceptionGroup as ended:
            raise cause_of(ended, PeerGone, FailureError) from None

    async def _listen(self, connection: Connection, changes: asyncio.Queue[Changes]) -> None:
        while True:
            match frame := await connection.receive():
                case Changes():
                    if changes.full():
                        raise PeerGone("the coordinator tells more changes than were asked for")
                    changes.put_nowait(frame)
                case Holders(_, items):
                    self._attached.holders_told(items)
                case Access():
                    self._take_access(frame)
                case Rejected(reason):
                    raise PeerGone(reason)
                case _:
                    raise PeerGone(f"the coordinator said {type(frame).__name__} to an aggregator")

    def _take_access(self, access: Access) -> None:
        try:
            self._unsealer = Unsealer(access.seal_key)
        except SealInvalid as invalid:
            raise PeerGone(str(invalid)) from None
        self.coordinator_clock.told(access.told_at)
        self.access = access
        self.on_access(access)

    async def _follow(self, connection: Connection, changes: asyncio.Queue[Changes]) -> None:
        await connection.send(Follow(await self._attached.since()))
        while True:
            told = await changes.get()
            await self._attached.take(told)
            await connection.send(Followed(told.upto))

    async def _tell_all(self, connection: Connection) -> None:
        """What is served, from the store; what has changed since that was read is told anyway."""
        after: RepoKey | None = None
        while True:
            self._newer.clear()
            items = await self._attached.served(after, TOLD_AT_ONCE)
            if not items:
                return
            after = items[-1].key
            if current := tuple(item for item in items if item.key not in self._newer):
                await connection.send(Have(current))

    async def _keep_telling(self, connection: Connection) -> None:
        while True:
            await self._to_tell.wait()
            self._to_tell.clear()
            await self._tell_now(connection)
            await asyncio.sleep(GATHER_S)

    async def _tell_now(self, connection: Connection) -> None:
        while self._accusations:
            await connection.send(self._accusations[0])
            self._accusations.popleft()
        while self._questions:
            self._asked += 1
            await connection.send(AskHolders(self._asked, self._questions.popleft()))
        told, self._held = self._held, {}
        have = [held for held in told.values() if held is not None]
        lack = [key for key, held in told.items() if held is None]
        for n in range(0, len(have), TOLD_AT_ONCE):
            await connection.send(Have(tuple(have[n : n + TOLD_AT_ONCE])))
        for n in range(0, len(lack), TOLD_AT_ONCE):
            await connection.send(Lack(tuple(lack[n : n + TOLD_AT_ONCE])))
        doubts, self._doubts = list(self._doubts), {}
        for n in range(0, len(doubts), TOLD_AT_ONCE):
            await connection.send(Doubted(tuple(doubts[n : n + TOLD_AT_ONCE])))

    async def _keep_beating(self, connection: Connection, gap_s: float) -> None:
        while True:
            await connection.send(Beat(self.status(), self._attached.unreached()))
            await asyncio.sleep(gap_s)
