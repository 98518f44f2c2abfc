"""Background parts that fail are started again, alone, with growing pauses; people are told of it."""

from __future__ import annotations

import asyncio
import random

import pytest
from structlog.testing import capture_logs

from evermirror.nodes import supervisor as module
from evermirror.nodes.supervisor import PAUSE_LAST_S, WELL_S, PartState, Supervisor


class Clock:
    """Time that passes only when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        done = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, done))
        await done

    async def pass_s(self, seconds: float) -> None:
        """All that is due meanwhile happens, in its order."""
        end = self.now + seconds
        await settle()
        while due := sorted(((at, f) for at, f in self._sleepers if at <= end and not f.done()), key=first):
            self.now, future = due[0]
            future.set_result(None)
            await settle()
        self.now = end


def first(pair):
    return pair[0]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Broken:
    """A part that fails as often as it is told to, then works until it is stopped."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or KeyError("what a peer sent")
        self.runs = 0
        self.stopped = 0

    async def run(self) -> None:
        self.runs += 1
        if self.runs <= self.failures:
            raise self.error
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped += 1


class House:
    def __init__(self) -> None:
        self.clock = Clock()
        self.told: list[tuple[PartState, ...]] = []
        self.supervisor = Supervisor(
            self.told.append, sleep=self.clock.sleep, mono=lambda: self.clock.now, chance=random.Random(7)
        )

    def state(self, name: str) -> PartState:
        return next(state for state in self.supervisor.states() if state.name == name)


@pytest.fixture
def house():
    return House()


async def test_a_part_that_raises_is_started_again_and_its_siblings_notice_nothing(house):
    bad, good = Broken(1), Broken(0)
    async with house.supervisor.running("bad", bad.run), house.supervisor.running("good", good.run):
        await house.clock.pass_s(1)
        assert (bad.runs, good.runs, good.stopped) == (2, 1, 0)
        assert house.supervisor.failures == 1
        assert not house.supervisor.lost.is_set()
    assert (bad.stopped, good.stopped) == (1, 1)


async def test_a_part_that_returns_has_failed_unless_it_may_end(house):
    async def over() -> None:
        return

    async with (
        house.supervisor.running("ends", over),
        house.supervisor.running("may end", over, may_end=True),
    ):
        await house.clock.pass_s(0.1)
        assert house.state("ends") == PartState("ends", True, 1, "PartEnded")
        assert house.state("may end") == PartState("may end")


async def test_a_cancellation_from_within_is_a_failure_and_not_a_stop(house):
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            inner = asyncio.ensure_future(asyncio.Event().wait())
            inner.cancel()
            await inner
        await asyncio.Event().wait()

    async with house.supervisor.running("it", run):
        await house.clock.pass_s(1)
        assert (runs, house.state("it").error) == (2, "CancelledError")


async def test_pauses_grow_are_jittered_and_bounded(house):
    bad = Broken(10**6)
    async with house.supervisor.running("bad", bad.run):
        await house.clock.pass_s(20 * PAUSE_LAST_S)
    pauses = [pause for pause in house.clock.slept if pause != WELL_S]
    for number, pause in enumerate(pauses):
        most = min(module.PAUSE_FIRST_S * 2**number, PAUSE_LAST_S)
        assert most / 2 <= pause <= most
    assert len(set(pauses[-5:])) > 1, "by chance"
    assert bad.runs <= 50


async def test_after_it_ran_well_for_a_while_the_next_failure_is_the_first_again(house):
    bad = Broken(6)
    async with house.supervisor.running("bad", bad.run):
        await house.clock.pass_s(60)
        assert house.state("bad").failing
        await house.clock.pass_s(WELL_S)
        assert house.state("bad") == PartState("bad", False, 6, "KeyError")
        assert house.supervisor._parts["bad"].in_a_row == 0


async def test_people_are_told_once_when_it_begins_to_fail_and_once_when_it_is_over(house):
    bad = Broken(4)
    async with house.supervisor.running("bad", bad.run):
        await house.clock.pass_s(30)
        assert [[state.failing for state in told] for told in house.told] == [[True]]
        (warning,) = house.supervisor.warnings()
        assert "KeyError" in warning
        assert "what a peer sent" not in warning, "an error's text may hold anything"
        await house.clock.pass_s(WELL_S)
        assert [[state.failing for state in told] for told in house.told] == [[True], [False]]
        assert house.supervisor.warnings() == ()


async def test_who_cannot_be_told_stops_nothing(house):
    def deaf(states):
        raise ValueError("alerting fails too")

    it = Supervisor(deaf, sleep=house.clock.sleep)
    bad = Broken(1)
    with capture_logs() as logs:
        async with it.running("alerts", bad.run):
            await house.clock.pass_s(1)
    assert bad.runs == 2
    assert "nobody could be told that a part fails" in [line["event"] for line in logs]


async def test_the_same_failure_again_and_again_is_few_lines_with_a_count(house):
    bad = Broken(10**6)
    with capture_logs() as logs:
        async with house.supervisor.running("bad", bad.run):
            await house.clock.pass_s(3600)
    lines = [line for line in logs if line["log_level"] == "error"]
    assert bad.runs > 60
    assert len(lines) <= 3600 / module.LOG_AGAIN_S + 1
    assert [bool(line.get("exc_info")) for line in lines] == [True] + [False] * (len(lines) - 1)
    assert 1 + sum(line.get("times", 0) for line in lines) >= bad.runs - 60


async def test_another_failure_is_logged_at_once_with_its_traceback(house):
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise KeyError("one")
        raise ValueError("another")

    with capture_logs() as logs:
        async with house.supervisor.running("bad", run):
            await house.clock.pass_s(3)
    assert [type(line["exc_info"]) for line in logs if "exc_info" in line] == [KeyError, ValueError]


async def test_parts_stop_in_reverse_order_of_their_start(house):
    stopped: list[str] = []

    def part(name: str):
        async def run() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(name)

        return run

    run = asyncio.create_task(house.supervisor.run_all({name: part(name) for name in "abc"}))
    await settle()
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert stopped == ["c", "b", "a"]
    assert house.supervisor.states() == ()


async def test_a_stop_does_not_wait_for_ever(house, monkeypatch):
    monkeypatch.setattr(module, "STOP_S", 0.01)
    leave = asyncio.Event()

    async def deaf() -> None:
        while not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                continue

    with capture_logs() as logs:
        async with house.supervisor.running("deaf", deaf):
            await settle()
    assert [line["part"] for line in logs] == ["deaf"]
    leave.set()
    await settle()


async def test_a_part_that_fails_while_it_is_stopped_is_not_started_again(house):
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            try:
                await asyncio.Event().wait()
            finally:
                raise OSError("closing failed")

    with capture_logs() as logs:
        async with house.supervisor.running("it", run):
            await settle()
    assert runs == 1
    assert [line["event"] for line in logs] == ["a part failed while it was stopped"]


async def test_one_that_is_stopped_while_it_fails_is_over(house):
    async with house.supervisor.running("bad", Broken(10**6).run):
        await settle()
    assert house.told[-1] == ()


async def test_what_only_a_new_node_can_cure_is_not_tried_again(house):
    class Lost(Exception):
        pass

    bad = Broken(10**6, ExceptionGroup("a group", [ExceptionGroup("of groups", [Lost()])]))
    async with house.supervisor.running("fleet", bad.run, lost_on=(Lost,)):
        await house.clock.pass_s(100)
        assert house.supervisor.lost.is_set()
        assert bad.runs == 1
        assert house.state("fleet").failing


async def test_a_name_is_given_once(house):
    async with house.supervisor.running("it", Broken(0).run):
        with pytest.raises(ValueError, match="runs already"):
            house.supervisor.start("it", Broken(0).run)
    house.supervisor.start("it", Broken(0).run)
    await house.supervisor.stop("it")
    await house.supervisor.stop("it")
