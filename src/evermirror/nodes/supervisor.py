"""Background parts of a node: started by name, started again when they fail, stopped in order.

    start ──▶ running ──raises, or returns──▶ failing: logged, counted, told ──pause──▶ runs again
                 ▲                                                                          │
                 └──────────────── has run for WELL_S without raising ◀─────────────────────┘

Rules
- A part never ends the process, and never another part. Its ``work`` is called again after each failure, so
  it must be safe to call twice: each part's own docstring says how it goes on.
- A part that returns has failed too, unless it was started with ``may_end``.
- Pauses grow, are jittered and bounded; after WELL_S without a failure the next one is the first again.
- Some errors cannot be cured by another run, because what the part has in memory is wrong (``lost_on``). Then
  ``lost`` is set, and the node is made anew from its files, in the same process (``running.until_stopped``).
- Startup is not supervised: what raises before a part is started ends the process with its error.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass

import structlog

log = structlog.get_logger(__name__)

Work = Callable[[], Coroutine[None, None, None]]

PAUSE_FIRST_S = 0.5  # most failures are over at once
PAUSE_LAST_S = 60.0  # a part that always fails costs one try and at most one log line a minute
WELL_S = 60.0  # not below PAUSE_LAST_S: one failure in each pause must not count as well
LOG_AGAIN_S = 600.0  # the same failure, again and again, is one line with a count so often
STOP_S = 60.0  # a part's own stop is bounded (a worker's takes up to 30 s); beyond this it is left behind


@dataclass(frozen=True, slots=True)
class PartState:
    """How a part is doing. ``error`` is the type of the last failure: never its text, which may hold
    anything that a peer sent."""

    name: str
    failing: bool = False  # failed, and has not run well since
    failures: int = 0  # since the process started
    error: str = ""


class PartEnded(Exception):
    """A part returned although it should run for as long as the node."""


class _Part:
    def __init__(self, name: str, work: Work, may_end: bool, lost_on: tuple[type[Exception], ...]) -> None:
        self.name, self.work, self.may_end, self.lost_on = name, work, may_end, lost_on
        self.state = PartState(name)
        self.in_a_row = 0
        self.task: asyncio.Task[None] | None = None
        self.logged: object = None  # where the failure that was logged last came from
        self.logged_at = 0.0  # monotonic
        self.unlogged = 0  # of the same, since then


class Supervisor:
    """``running`` or ``start`` and ``stop`` parts. ``tell`` hears of all parts whenever one begins to fail or
    runs well again; it is called between awaits and must not fail."""

    def __init__(
        self,
        tell: Callable[[tuple[PartState, ...]], None] = lambda states: None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        mono: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        self._tell_states = tell
        self._sleep = sleep
        self._mono = mono
        self._chance = chance or random.Random()  # noqa: S311 - spreads restarts, guards nothing
        self._parts: dict[str, _Part] = {}
        self.failures = 0  # of all parts, since the process started
        self.lost = asyncio.Event()  # the node must be made anew

    def states(self) -> tuple[PartState, ...]:
        """All parts, in the order of their start."""
        return tuple(part.state for part in self._parts.values())

    def warnings(self) -> tuple[str, ...]:
        """One line for each part that fails now."""
        return tuple(warning_of(state) for state in self.states() if state.failing)

    def start(
        self, name: str, work: Work, *, may_end: bool = False, lost_on: tuple[type[Exception], ...] = ()
    ) -> None:
        """Run ``work`` until ``stop``, again after each failure."""
        if name in self._parts:
            raise ValueError(f"a part named {name} runs already")
        part = self._parts[name] = _Part(name, work, may_end, lost_on)
        part.task = asyncio.create_task(self._supervise(part), name=name)

    async def stop(self, name: str) -> None:
        """Cancel a part and wait until it has ended, STOP_S at most. One that is unknown is no error."""
        part = self._parts.get(name)
        if part is None or part.task is None:
            return
        part.task.cancel()
        try:
            done, _ = await asyncio.wait({part.task}, timeout=STOP_S)
            if not done:
                log.error("a part does not stop: it is left behind", part=name, after_s=STOP_S)
        finally:  # also where nobody waits any longer
            self._parts.pop(name, None)
        if part.state.failing:
            self._tell()

    @contextlib.asynccontextmanager
    async def running(
        self, name: str, work: Work, *, may_end: bool = False, lost_on: tuple[type[Exception], ...] = ()
    ) -> AsyncIterator[None]:
        """A part that runs as long as the block. Blocks nest: parts stop in reverse order of their start."""
        self.start(name, work, may_end=may_end, lost_on=lost_on)
        try:
            yield
        finally:
            await self.stop(name)

    async def run_all(self, works: dict[str, Work]) -> None:
        """Run parts that belong together until cancelled; each is restarted alone."""
        async with contextlib.AsyncExitStack() as stack:
            for name, work in works.items():
                await stack.enter_async_context(self.running(name, work))
            await asyncio.Event().wait()

    # One part

    async def _supervise(self, part: _Part) -> None:
        while True:
            error = await self._run_once(part)
            if error is None:
                if part.may_end:
                    return
                error = PartEnded("returned although it should run for ever")
            pause_s = self._failed(part, error)
            if _contains(error, part.lost_on):
                log.error("what this part had in memory is lost: the node is made anew", part=part.name)
                self.lost.set()
                return
            await self._sleep(pause_s)

    async def _run_once(self, part: _Part) -> BaseException | None:
        """Why a run ended; None: it returned. In a task of its own: a task group that ends by an error
        swallows a cancellation that comes at the same moment."""
        run = asyncio.create_task(_call(part.work), name=part.name)
        well = asyncio.ensure_future(self._sleep(WELL_S)) if part.state.failing else None
        try:
            if well is not None:
                await asyncio.wait({run, well}, return_when=asyncio.FIRST_COMPLETED)
                if not run.done():
                    self._well_again(part)
            await asyncio.wait({run})
        except asyncio.CancelledError:
            run.cancel()
            await asyncio.wait({run})
            if not run.cancelled() and (error := run.exception()) is not None:
                log.error("a part failed while it was stopped", part=part.name, exc_info=error)
            raise
        finally:
            if well is not None:
                well.cancel()
        if run.cancelled():  # by something within: whoever stops us has left by now
            return asyncio.CancelledError()
        return run.exception()

    def _failed(self, part: _Part, error: BaseException) -> float:
        """Count, log and tell a failure; returns the pause before the next run."""
        most_s = min(PAUSE_FIRST_S * 2.0 ** min(part.in_a_row, 16), PAUSE_LAST_S)
        pause_s = self._chance.uniform(most_s / 2, most_s)
        part.in_a_row += 1
        self.failures += 1
        began = not part.state.failing
        part.state = PartState(part.name, True, part.state.failures + 1, type(_leaf(error)).__name__)
        self._log(part, error, pause_s)
        if began:
            self._tell()
        return pause_s

    def _well_again(self, part: _Part) -> None:
        part.in_a_row = 0
        part.state = PartState(part.name, False, part.state.failures, part.state.error)
        log.info("a part runs well again", part=part.name, failures=part.state.failures)
        self._tell()

    def _log(self, part: _Part, error: BaseException, pause_s: float) -> None:
        where, now, again_s = _origin(error), self._mono(), round(pause_s, 1)
        if where != part.logged:
            part.logged, part.logged_at, part.unlogged = where, now, 0
            log.error("a part failed: it is started again", part=part.name, again_s=again_s, exc_info=error)
            return
        part.unlogged += 1
        if now >= part.logged_at + LOG_AGAIN_S:
            times, part.unlogged, part.logged_at = part.unlogged, 0, now
            reason = f"{part.state.error}: {_leaf(error)}"[:500]
            log.error("a part fails again and again", part=part.name, times=times, reason=reason)

    def _tell(self) -> None:
        try:
            self._tell_states(self.states())
        except Exception:  # whoever is told may be the part that fails
            log.exception("nobody could be told that a part fails")


def warning_of(state: PartState) -> str:
    """One line for people."""
    return (
        f"{state.name}: this part of the process fails ({state.error}, {state.failures} times so far) "
        "and is started again; see the log"
    )


async def _call(work: Work) -> None:
    await work()


def _leaf(error: BaseException) -> BaseException:
    """The first error in a group of groups: task groups wrap what their tasks raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _contains(error: BaseException, kinds: tuple[type[Exception], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_contains(one, kinds) for one in error.exceptions)
    return isinstance(error, kinds)


def _origin(error: BaseException) -> object:
    """The type of an error and the line that raised it: texts differ with the data, these do not."""
    leaf = _leaf(error)
    trace = leaf.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = None if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return type(leaf), place
