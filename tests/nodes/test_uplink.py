"""A worker's line to a coordinator that follows a script, over the in-process transport."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from evermirror.core.fleet.digests import digests_of
from evermirror.core.fleet.hashing import key_hashes
from evermirror.edge.rpc.inprocess import InProcessServer
from evermirror.edge.rpc.transport import Connection, Identity, Peer, PeerGone
from evermirror.edge.store import report_log
from evermirror.edge.store.report_log import ReportLog
from evermirror.model.access import Role
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import (
    ApplySettings,
    Command,
    Excused,
    Failed,
    HandedBack,
    HeldRepo,
    LookAt,
    Progress,
    Released,
    Started,
    Synced,
    Verified,
    WorkerStatus,
)
from evermirror.model.push import Pushed, PushedRef, RefOutcome, TargetId
from evermirror.model.refs import RefChange, RefsDigest
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId
from evermirror.model.wire import (
    PROTOCOL,
    Answer,
    Beat,
    Compare,
    Compared,
    Hello,
    Holding,
    Numbered,
    Obeyed,
    Ordered,
    Passing,
    Question,
    Rejected,
    Taken,
    Up,
    Welcomed,
)
from evermirror.nodes import redial
from evermirror.nodes.redial import Phase
from evermirror.nodes.service import PollPlan
from evermirror.nodes.worker import uplink, uplink_commands, uplink_reports
from evermirror.nodes.worker.contact import Contact
from evermirror.nodes.worker.uplink import Uplink

pytestmark = pytest.mark.timeout(60)

WHO = Identity(1, "w", Role.WORKER, trusted=True)
SOON_S = 10.0
FOREVER = 1 << 40


def key(n: int) -> RepoKey:
    return RepoKey(f"h.org/{n}")


def released(n: int) -> Released:
    return Released((key(n),))


def failed(n: int, *tasks: int) -> Failed:
    failure = Failure(FailureKind.UNKNOWN, "x" * 200)
    return Failed(key(n), tuple(map(TaskId, tasks)), failure, True, 1, 1.0, 2.0, None)


def status(polls: int) -> WorkerStatus:
    return WorkerStatus(1, polls, 0.0, 0, 0, (), 0, (), 1, 2, True, (), 5.0)


def digest(n: int) -> RefsDigest:
    return RefsDigest(f"{n:016x}" + "0" * 48)


class FakeEngine:
    """Holds what the test says."""

    def __init__(self) -> None:
        self.holds: dict[RepoKey, RefsDigest] = {}
        self.anew = 0
        self.dropped = 0
        self.may_write = asyncio.Event()
        self.may_write.set()

    def held(self) -> list[HeldRepo]:
        return [HeldRepo(k, d, 1.0) for k, d in sorted(self.holds.items())]

    limits: ApplySettings | None = None

    def limit(self, limits: ApplySettings) -> None:
        self.limits = limits

    async def keep_limits(self) -> None:
        await self.may_write.wait()

    def began_anew(self) -> None:
        self.anew += 1

    async def drop_unconfirmed(self) -> None:
        self.dropped += 1

    def plan(self, key: RepoKey) -> PollPlan:
        return PollPlan(None, f"asked for {key}", None, None)

    def guard(self, key: RepoKey) -> None:
        raise RuntimeError("a bug")

    async def refs(self, key): ...

    async def upkeep(self, key): ...

    async def history(self, key):
        await asyncio.sleep(3600)


@dataclass
class Talk:
    """One connection as the coordinator sees it."""

    peer: Peer
    hello: Hello
    got: list[Up] = field(default_factory=list)

    async def next(self) -> Up:
        """The next frame that is no heartbeat."""
        async with asyncio.timeout(SOON_S):
            while True:
                frame = await self.peer.receive()
                if not isinstance(frame, Beat):
                    self.got.append(frame)
                    return frame

    async def until(self, holds: Callable[[Up], bool]) -> Up:
        while not holds(frame := await self.next()):
            pass
        return frame

    async def reports(self, count: int, *, take: bool = True) -> list[object]:
        """So many reports, in order of their numbers."""
        found: list[object] = []
        while len(found) < count:
            frame = await self.until(lambda f: isinstance(f, Numbered))
            assert isinstance(frame, Numbered)
            assert len(frame.reports) <= uplink_reports.FRAME_REPORTS
            found += frame.reports
            if take:
                last = frame.first + len(frame.reports) - 1
                await self.peer.send(Taken(frame.generation, last))
        return found

    async def silence(self, seconds: float = 0.3) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.until(lambda f: isinstance(f, Numbered | Holding | Compared))


class Coordinator:
    """Accepts connections; the test says how each goes on."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.dials = 0
        self.away: FailureError | None = None
        self.server: InProcessServer | None = None

    async def accept(self, peer: Peer) -> None:
        self.peers.put_nowait(peer)
        await asyncio.get_running_loop().create_future()

    async def dial(self) -> Connection:
        self.dials += 1
        if self.away is not None:
            raise self.away
        assert self.server is not None
        return self.server.connect(WHO)

    async def hears(self) -> Talk:
        async with asyncio.timeout(SOON_S):
            peer = await self.peers.get()
            hello = await peer.receive()
        assert isinstance(hello, Hello)
        return Talk(peer, hello)

    async def welcomes(
        self, *, resumed: bool = False, taken: int = 0, epoch: int = 7, redial_s: float = 0.0
    ) -> Talk:
        talk = await self.hears()
        await talk.peer.send(Welcomed(3, epoch, resumed, 0.05, redial_s=redial_s))
        await talk.peer.send(Taken(talk.hello.generation, taken))
        return talk


class House:
    def __init__(
        self, coordinator: Coordinator, log: ReportLog, pauses: list[float], contact: Contact | None = None
    ) -> None:
        self.coordinator = coordinator
        self.log = log
        self.pauses = pauses  # between two tries
        self.mono = 0.0
        self.engine = FakeEngine()
        self.line = Uplink(
            coordinator,
            log,
            name="w",
            weight=2.0,
            capacity=10,
            boot=5,
            version="1.0",
            contact=contact,
            clock=lambda: 1000.0,
            chance=random.Random(1),
            sleep=self.sleep,
            mono=lambda: self.mono,
        )
        self.line.attach(self.engine)
        self.commands: list[Command] = []
        self.may_work = asyncio.Event()
        self.may_work.set()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)

    async def goes_away(self, kind: FailureKind, reason: str) -> None:
        """The coordinator closes the connection, and dialling fails from now on."""
        talk = await self.coordinator.hears()
        self.coordinator.away = FailureError(Failure(kind, reason))
        self.pauses.clear()
        await talk.peer.close(reason)

    async def work(self) -> None:
        """An engine that does nothing with its commands, for as long as the test wants."""
        while True:
            self.commands.append(await self.line.next_command())
            await self.may_work.wait()


@contextlib.asynccontextmanager
async def open_house(path: Path, contact: Contact | None = None) -> AsyncIterator[House]:
    coordinator = Coordinator()
    log = await ReportLog.open(path)
    async with InProcessServer(coordinator.accept, send_s=5.0) as server:
        coordinator.server = server
        house = House(coordinator, log, [], contact)
        tasks = [asyncio.create_task(house.line.run()), asyncio.create_task(house.work())]
        try:
            yield house
            assert not any(task.done() for task in tasks), [t for t in tasks if t.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for open_task in list(server._open):
                open_task.cancel()
    await log.close()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path / "reports.db") as house:
        yield house


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not holds():
            await asyncio.sleep(0.005)


# Reports


async def test_it_says_who_it_is_tells_what_it_holds_and_sends_reports_in_order(house):
    for n in range(450):
        await house.line.report(released(n))
    house.engine.holds = {key(n): digest(n + 1) for n in range(1500)}
    talk = await house.coordinator.welcomes()
    own = Hello(PROTOCOL, "1.0", "w", 5, house.log.generation, 0, 0, 2.0, 10, role=Role.WORKER)
    assert talk.hello == own
    assert await talk.reports(450) == [released(n) for n in range(450)]
    first, second = await talk.next(), await talk.next()
    assert isinstance(first, Holding)
    assert isinstance(second, Holding)
    assert (len(first.items), first.last, len(second.items), second.last) == (1000, False, 500, True)
    assert house.engine.anew == 1
    await house.line.report(released(999))
    assert await talk.reports(1) == [released(999)]
    await until(lambda: house.line.unacknowledged == 0 and house.log.first == 452)


async def test_what_was_not_acknowledged_is_sent_again_after_a_restart_and_nothing_else(tmp_path):
    path = tmp_path / "reports.db"
    async with open_house(path) as house:
        talk = await house.coordinator.welcomes()
        for n in range(10):
            await house.line.report(released(n))
        await talk.reports(10, take=False)
        await talk.peer.send(Taken(house.log.generation, 4))
        await house.line.report(released(10))
        await talk.reports(1, take=False)
        generation = house.log.generation
    async with open_house(path) as house:
        talk = await house.coordinator.welcomes(taken=6)
        assert talk.hello.generation == generation
        assert await talk.reports(5) == [released(n) for n in range(6, 11)]
        await talk.until(lambda f: isinstance(f, Holding))
        await until(lambda: house.line.unacknowledged == 0)
        await talk.silence()


async def test_reports_are_safe_on_the_disk_before_they_are_sent(house, monkeypatch):
    gate = asyncio.Event()
    append = house.log.append

    async def slow(reports):
        await gate.wait()
        return await append(reports)

    monkeypatch.setattr(house.log, "append", slow)
    talk = await house.coordinator.welcomes()
    await talk.until(lambda f: isinstance(f, Holding))
    await house.line.report(released(1))
    await talk.silence()
    gate.set()
    assert await talk.reports(1) == [released(1)]


async def test_a_disk_that_takes_no_writes_does_not_keep_the_worker_from_saying_so(house, monkeypatch):
    monkeypatch.setattr(uplink_reports, "RETRY_S", 0.02)
    talk = await house.coordinator.welcomes()
    await house.line.report(released(1))
    await talk.reports(1)
    append, forget = house.log.append, house.log.forget

    async def fails(_):
        raise FailureError(Failure(FailureKind.DISK_FULL, "no room"))

    monkeypatch.setattr(house.log, "append", fails)
    monkeypatch.setattr(house.log, "forget", fails)
    back = HandedBack((key(2),), "the disk is full")
    await house.line.report(back)
    assert await talk.reports(1) == [back]
    reserved, count = house.log.reserved, 3 * report_log.RESERVED
    for n in range(count):
        await house.line.report(released(n))
    told = await talk.reports(reserved - 2)
    await talk.silence()
    monkeypatch.setattr(house.log, "append", append)
    monkeypatch.setattr(house.log, "forget", forget)
    rest = await talk.reports(count - len(told))
    assert told + rest == [released(n) for n in range(count)]
    await until(lambda: house.line.unacknowledged == 0)


async def test_no_more_than_the_window_is_unacknowledged(house, monkeypatch):
    monkeypatch.setattr(uplink_reports, "WINDOW", 250)
    for n in range(400):
        await house.line.report(released(n))
    talk = await house.coordinator.welcomes()
    assert len(await talk.reports(250, take=False)) == 250
    await talk.silence()
    await talk.peer.send(Taken(house.log.generation, 100))
    assert len(await talk.reports(100, take=False)) == 100


async def test_a_large_report_goes_alone_and_a_monstrous_one_without_its_refs(house):
    def synced(n: int, name_bytes: int, refs: int) -> Synced:
        changes = tuple(RefChange(f"refs/heads/{'x' * name_bytes}{i}", None, None) for i in range(refs))
        activity = Activity((0.0, 0.0, 0.0), 0.0, 0.0)
        return Synced(key(n), (), digest(1), None, 1, changes, refs, 0, 0, 0, False, 1.0, 1.0, 1.0, activity)

    large = [synced(n, 1000, 700) for n in range(4)]
    for report in (*large, synced(9, 60_000, 100)):
        await house.line.report(report)
    talk = await house.coordinator.welcomes()
    *first, last = await talk.reports(5)
    assert first == large
    assert (last.changes, last.changes_total) == ((), 100)
    assert all(len(f.reports) <= 2 for f in talk.got if isinstance(f, Numbered))


async def test_a_monstrous_report_of_pushes_is_told_without_refs_and_with_short_failures(house):
    failure = Failure(
        FailureKind.CONFLICT, "y" * 9000, "z" * 9000, 30.0, "git push", "o" * 60_000, "e" * 60_000
    )
    ref = PushedRef("refs/heads/" + "x" * 60_000, None, None, RefOutcome.CONFLICT, "stale info")
    pushes = tuple(
        Pushed(TargetId(n), digest(n), refs=(ref,), waiting_total=7, failure=failure) for n in range(50)
    )
    activity = Activity((0.0, 0.0, 0.0), 0.0, 0.0)
    report = Synced(
        key(1),
        (TaskId(5),),
        digest(1),
        None,
        1,
        (),
        0,
        0,
        0,
        0,
        False,
        1.0,
        1.0,
        1.0,
        activity,
        pushes=pushes,
    )
    await house.line.report(report)
    talk = await house.coordinator.welcomes()
    (told,) = await talk.reports(1)
    assert (told.task_ids, [p.target for p in told.pushes]) == ((5,), list(range(50)))
    assert {(p.refs, p.waiting_total) for p in told.pushes} == {((), 7)}
    assert {p.put for p in told.pushes} == {digest(n) for n in range(50)}
    (short,) = {p.failure.message for p in told.pushes}
    assert short == "y" * uplink_reports.MESSAGE_CHARS
    assert {(p.failure.kind, p.failure.retry_after_s) for p in told.pushes} == {(FailureKind.CONFLICT, 30.0)}


async def test_report_waits_while_the_buffer_is_full_and_goes_on_when_the_disk_does(house, monkeypatch):
    monkeypatch.setattr(uplink_reports, "BUFFER_MAX", 5)
    gate = asyncio.Event()
    append = house.log.append

    async def slow(reports):
        await gate.wait()
        return await append(reports)

    monkeypatch.setattr(house.log, "append", slow)
    sent = 0

    async def send() -> None:
        nonlocal sent
        for n in range(20):
            await house.line.report(released(n))
            sent += 1

    sending = asyncio.create_task(send())
    await asyncio.sleep(0.1)
    assert sent == 5
    gate.set()
    await asyncio.wait_for(sending, SOON_S)
    await until(lambda: house.log.last == 20)


async def test_a_coordinator_that_is_away_for_long_costs_no_memory_and_no_waiting(house, monkeypatch):
    await house.goes_away(FailureKind.NETWORK_TIMEOUT, "away")
    monkeypatch.setattr(house.log, "_limit", 500)
    for n in range(3000):
        await house.line.report(failed(n % 50))
        await house.line.report(Progress(key(1), (TaskId(1),), "x", None, n, 1.0))
        await house.line.report(Verified(((key(n % 50), float(n)),)))
        await house.line.report(status(n))
        if n % 100 == 0:
            await house.line.report(released(n))
    await until(lambda: house.log.last == 3030)
    assert len(house.line._verified) == 50
    assert len(house.line._reports._buffer) == 0
    assert house.log.dropped >= 2500
    house.coordinator.away = None
    talk = await house.coordinator.welcomes()
    got = await talk.reports(3031)
    assert [r for r in got if isinstance(r, Released)] == [released(n) for n in range(0, 3000, 100)]
    assert got.count(Excused(())) == house.log.dropped
    (verified,) = [r for r in got if isinstance(r, Verified)]
    assert dict(verified.items) == {key(n % 50): float(n) for n in range(2950, 3000)}


async def test_only_what_nobody_waits_for_may_be_dropped():
    spare = uplink_reports._is_spare
    assert spare(failed(1))
    assert spare(Started(key(1), (), 1.0))
    assert not spare(failed(1, 7))
    assert not spare(Started(key(1), (TaskId(7),), 1.0))
    assert not spare(released(1))
    assert not spare(HandedBack((key(1),), ""))


async def test_status_is_the_heartbeat_and_progress_is_told_while_somebody_listens(house):
    await house.line.report(Progress(key(1), (TaskId(1),), "lost", None, 1, 1.0))
    await house.line.report(status(1))
    await house.line.report(status(2))
    talk = await house.coordinator.welcomes()
    await until(lambda: house.line.connected)
    progress = Progress(key(1), (TaskId(1),), "receiving", 5.0, 1, 1.0)
    await house.line.report(progress)
    frame = await talk.until(lambda f: isinstance(f, Passing))
    assert frame == Passing((progress,))
    async with asyncio.timeout(SOON_S):
        beats = [f for _ in range(6) if isinstance(f := await talk.peer.receive(), Beat)]
    assert set(beats) == {Beat(status(2))}
    assert len(beats) >= 3


# Sessions


async def test_a_coordinator_that_was_set_back_gets_what_is_left_under_new_numbers(house):
    for n in range(5):
        await house.line.report(released(n))
    talk = await house.coordinator.welcomes()
    await talk.reports(5, take=False)
    await talk.peer.send(Taken(house.log.generation, 3))
    await until(lambda: house.log.first == 4)
    before = house.log.generation
    await talk.peer.close("restored from a backup")
    await house.coordinator.welcomes(taken=1)
    talk = await house.coordinator.welcomes(taken=0)
    assert talk.hello.generation != before
    assert await talk.reports(2) == [released(3), released(4)]
    assert [f.first for f in talk.got if isinstance(f, Numbered)] == [1]


async def test_a_worker_whose_file_was_set_back_begins_a_new_generation(house):
    await house.line.report(released(0))
    await house.coordinator.welcomes(taken=500)
    talk = await house.coordinator.welcomes(taken=0)
    assert await talk.reports(1) == [released(0)]


async def test_a_resumed_session_goes_on_with_commands_and_does_not_tell_again(house):
    talk = await house.coordinator.welcomes(epoch=7)
    for seq in (1, 2, 3):
        await talk.peer.send(Ordered(seq, LookAt((key(seq),))))
    await talk.until(lambda f: f == Obeyed(3))
    await talk.peer.close("cut")
    talk = await house.coordinator.welcomes(resumed=True, epoch=7)
    assert (talk.hello.epoch, talk.hello.seen, talk.hello.boot) == (7, 3, 5)
    for seq in (3, 4):  # the third was on its way when the connection was cut
        await talk.peer.send(Ordered(seq, LookAt((key(seq),))))
    assert await talk.next() == Obeyed(4)
    await talk.silence()
    assert house.commands == [LookAt((key(n),)) for n in (1, 2, 3, 4)]
    assert house.engine.anew == 1


async def test_a_missing_command_ends_the_connection(house):
    talk = await house.coordinator.welcomes()
    await talk.peer.send(Ordered(1, LookAt((key(1),))))
    await talk.peer.send(Ordered(3, LookAt((key(3),))))
    with pytest.raises(PeerGone):
        await talk.until(lambda _: False)
    talk = await house.coordinator.hears()
    assert talk.hello.seen == 1


async def test_a_fresh_session_waits_for_the_command_under_way_and_forgets_the_others(house):
    house.engine.holds = {key(1): digest(1), key(2): digest(2)}
    talk = await house.coordinator.welcomes()
    await talk.until(lambda f: isinstance(f, Holding))
    house.may_work.clear()
    for seq in (1, 2, 3):
        await talk.peer.send(Ordered(seq, LookAt((key(seq),))))
    await talk.until(lambda f: f == Obeyed(3))
    await talk.peer.close("the coordinator restarts")
    talk = await house.coordinator.welcomes(epoch=8)
    await talk.peer.send(Ordered(1, LookAt((key(9),))))
    await talk.silence()
    # The first command ends: it deleted a mirror, and said so.
    del house.engine.holds[key(1)]
    await house.line.report(released(1))
    house.may_work.set()
    assert await talk.reports(1) == [released(1)]
    holding = await talk.until(lambda f: isinstance(f, Holding))
    assert holding == Holding((HeldRepo(key(2), digest(2), 1.0),), last=True)
    await until(lambda: len(house.commands) == 2)
    assert house.commands == [LookAt((key(1),)), LookAt((key(9),))]


async def test_what_is_told_of_the_disk_stands_between_earlier_and_later_reports(house, monkeypatch):
    talk = await house.coordinator.welcomes()
    await talk.until(lambda f: isinstance(f, Holding))
    for round_ in range(5):
        for n in range(30):
            await house.line.report(released(100 * round_ + n))
        await talk.peer.send(Compare(round_ + 1, (0,) * 256))
        await until(lambda: bool(house.line._reports._marks))
        for n in range(30, 60):
            await house.line.report(released(100 * round_ + n))
        frames = []
        while not frames or sum(len(f.reports) for f in frames if isinstance(f, Numbered)) < 60:
            frame = await talk.until(lambda f: isinstance(f, Numbered | Compared))
            frames.append(frame)
            if isinstance(frame, Numbered):
                await talk.peer.send(Taken(frame.generation, frame.first + len(frame.reports) - 1))
        at = next(i for i, f in enumerate(frames) if isinstance(f, Compared))
        before = [r for f in frames[:at] if isinstance(f, Numbered) for r in f.reports]
        assert before == [released(100 * round_ + n) for n in range(30)]


async def test_a_comparison_tells_the_ranges_that_differ_and_all_that_is_there(house, monkeypatch):
    monkeypatch.setattr("evermirror.nodes.worker.uplink_held.CHUNK", 100)
    house.engine.holds = {key(n): digest(n + 1) for n in range(600)}
    talk = await house.coordinator.welcomes()

    def digests(holds):
        values = np.array([int(d[:16], 16) for d in holds.values()], np.uint64)
        return digests_of(key_hashes(list(holds)), values).values

    await talk.peer.send(Compare(1, digests(house.engine.holds)))
    assert await talk.until(lambda f: isinstance(f, Compared)) == Compared((), ())
    believed = {k: d for k, d in house.engine.holds.items() if k != key(77)} | {key(1000): digest(1)}
    await talk.peer.send(Compare(2, digests(believed)))
    frame = await talk.until(lambda f: isinstance(f, Compared))
    ranges = {int(h) >> 56 for h in key_hashes([key(77), key(1000)])}
    assert set(frame.ranges) == ranges
    expected = {k for k in house.engine.holds if int(key_hashes([k])[0]) >> 56 in ranges}
    assert {item.key for item in frame.items} == expected
    await talk.peer.send(Compare(3, digests({})))
    told, seen = set(), set()
    while len(told) < 600:
        frame = await talk.until(lambda f: isinstance(f, Compared))
        assert len(frame.items) <= 100
        assert not seen & set(frame.ranges)
        seen |= set(frame.ranges)
        told |= {item.key for item in frame.items}
    await talk.peer.send(Compare(4, (1, 2, 3)))
    await talk.until(lambda f: f == Obeyed(4))


async def test_limits_are_in_force_at_once_and_acknowledged_when_they_are_written_down(house):
    talk = await house.coordinator.welcomes()
    house.engine.may_write.clear()
    told = ApplySettings(host_rate=0.5)
    await talk.peer.send(Ordered(1, told))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await talk.until(lambda f: isinstance(f, Obeyed))
    await until(lambda: house.engine.limits is not None)
    assert house.engine.limits == told
    house.engine.may_write.set()
    assert await talk.until(lambda f: isinstance(f, Obeyed)) == Obeyed(1)


async def test_commands_beyond_the_queues_bound_are_not_acknowledged_until_there_is_room(house, monkeypatch):
    monkeypatch.setattr(uplink_commands, "COMMANDS_MAX", 10)
    talk = await house.coordinator.welcomes()
    await talk.until(lambda f: isinstance(f, Holding))
    house.may_work.clear()
    for seq in range(1, 31):
        await talk.peer.send(Ordered(seq, LookAt((key(seq),))))
    await asyncio.sleep(0.3)
    house.may_work.set()
    acknowledged = [await talk.until(lambda f: isinstance(f, Obeyed))]
    while acknowledged[-1] != Obeyed(30):
        acknowledged.append(await talk.until(lambda f: isinstance(f, Obeyed)))
    assert all(a.seq <= 12 or a.seq == 30 for a in acknowledged)
    await until(lambda: len(house.commands) == 30)


async def test_what_is_not_assigned_again_is_dropped_after_a_while_in_a_session(house, monkeypatch):
    monkeypatch.setattr(uplink, "UNCONFIRMED_S", 1.0)
    talk = await house.coordinator.welcomes()
    await talk.until(lambda f: isinstance(f, Holding))
    await talk.peer.close("too early")
    await asyncio.sleep(1.5)
    assert house.engine.dropped == 0, "nobody could confirm anything"
    await house.coordinator.welcomes(resumed=True)
    await until(lambda: house.engine.dropped == 1)


# Connections


async def test_tries_are_further_and_further_apart_and_a_good_session_begins_anew(house):
    await house.goes_away(FailureKind.NETWORK_TIMEOUT, "nobody answers")
    await until(lambda: len(house.pauses) >= 40)
    assert house.line.state.phase is Phase.CONNECTING
    assert house.line.state.reason == "nobody answers"
    for n, pause in enumerate(house.pauses[:40]):
        assert 0 <= pause <= min(2**n, 60)
    assert max(house.pauses[10:40]) > 30, "jitter over the whole span"
    assert min(house.pauses[10:40]) < 30
    house.coordinator.away = None
    talk = await house.coordinator.welcomes()
    await until(lambda: house.line.connected)
    house.pauses.clear()
    house.mono += redial.LASTED_S
    house.coordinator.away = FailureError(Failure(FailureKind.NETWORK_TIMEOUT, "again"))
    await talk.peer.close("bye")
    await until(lambda: len(house.pauses) >= 2)
    assert house.pauses[0] <= 1
    assert house.pauses[1] <= 1


async def longest_pause(house: House) -> float:
    """Of many, once the coordinator is away."""
    house.pauses.clear()
    house.coordinator.away = FailureError(Failure(FailureKind.NETWORK_TIMEOUT, "away"))
    await until(lambda: len(house.pauses) >= 60)
    house.coordinator.away = None
    return max(house.pauses[10:60])


@pytest.mark.parametrize(("said", "kept"), [(4.0, 4.0), (0.001, 1.0), (3600.0, 60.0), (-5.0, 1.0)])
async def test_no_pause_is_longer_than_the_coordinator_said_also_after_a_restart(tmp_path, said, kept):
    path = tmp_path / "reports.db"
    async with open_house(path) as house:
        talk = await house.coordinator.welcomes(redial_s=said)
        await until(lambda: house.log.redial_s == said)
        await talk.peer.close("bye")
        assert kept / 2 < await longest_pause(house) <= kept
    async with open_house(path) as house:
        talk = await house.coordinator.hears()
        await talk.peer.close("not yet")
        assert kept / 2 < await longest_pause(house) <= kept


async def test_a_coordinator_that_says_nothing_of_pauses_leaves_them_to_the_worker(tmp_path):
    async with open_house(tmp_path / "reports.db") as house:
        talk = await house.coordinator.welcomes(redial_s=4.0)
        await until(lambda: house.log.redial_s == 4.0)
        await talk.peer.close("an older one comes")
        talk = await house.coordinator.welcomes()
        await until(lambda: house.log.redial_s is None)
        await talk.peer.close("bye")
        assert await longest_pause(house) > 30


@pytest.mark.parametrize("kind", [FailureKind.AUTH_FAILED, FailureKind.PERMISSION_DENIED])
async def test_where_only_a_person_can_help_it_is_tried_slowly(house, kind):
    await house.goes_away(kind, "the token is unknown")
    await until(lambda: len(house.pauses) >= 5)
    assert min(house.pauses[1:5]) >= 60
    assert (house.line.state.phase, house.line.state.reason) == (Phase.REFUSED, "the token is unknown")


async def test_a_rejection_is_shown_and_a_final_one_is_tried_slowly(house):
    talk = await house.coordinator.hears()
    house.pauses.clear()
    await talk.peer.send(Rejected("another process has this token", final=False))
    talk = await house.coordinator.hears()
    assert house.line.state.reason == "another process has this token"
    await talk.peer.send(Rejected("this worker has retired", final=True))
    await house.coordinator.welcomes()
    assert house.pauses[0] < 60 <= house.pauses[1]
    await until(lambda: house.line.connected)


async def test_acknowledgements_that_stay_out_end_the_connection_and_all_is_sent_again(house, monkeypatch):
    monkeypatch.setattr(uplink_reports, "STALL_S", 0.5)
    await house.line.report(released(1))
    talk = await house.coordinator.welcomes()
    await talk.reports(1, take=False)
    with pytest.raises(PeerGone):
        await talk.until(lambda _: False)
    monkeypatch.setattr(uplink_reports, "STALL_S", 60.0)  # what follows is acknowledged
    talk = await house.coordinator.welcomes()
    assert await talk.reports(1) == [released(1)]


# Questions


async def test_questions_are_answered_beside_the_rest_and_bounded(house, monkeypatch):
    monkeypatch.setattr(uplink, "QUESTIONS_MAX", 3)
    talk = await house.coordinator.welcomes()
    await talk.peer.send(Question(1, "history", key(1)))  # takes for ever
    await talk.peer.send(Question(2, "plan", key(1)))
    said = await talk.until(lambda f: isinstance(f, Answer))
    assert (said.number, said.error) == (2, "")
    assert "asked for h.org/1" in said.body
    await talk.peer.send(Question(3, "guard", key(1)))
    said = await talk.until(lambda f: isinstance(f, Answer))
    assert (said.number, said.body) == (3, "")
    assert "internal error" in said.error
    for number in (4, 5, 6):
        await talk.peer.send(Question(number, "history", key(1)))
    said = await talk.until(lambda f: isinstance(f, Answer))
    assert (said.number, said.error) == (6, "the worker is asked too much at once")
