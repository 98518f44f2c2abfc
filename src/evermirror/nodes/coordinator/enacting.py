"""Decisions of the fleet's machine on their way: gathered, persisted, and only then acted on.

    event ──▶ FleetMachine.handle ──▶ decisions waiting
                                          │ one transaction for all that wait
                                          ▼
                                      persisted ──▶ actions, in order

The machine is called between awaits, so events are handled one by one. While a transaction is written,
further decisions gather: many workers share one commit. While many come, they gather a little longer, for a
transaction costs as much as ten decisions.

An event that the machine cannot handle is dropped: what it had changed before is persisted, and whoever told
it gets ``EventFailed``. An action that fails is logged, and the others go on.

Where the machine's keys cannot be read any more (``LettersLost``), an event may be half taken in: nothing is
decided, persisted or acted on from then on, and ``run`` ends by it. The next process makes its machine from
the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from evermirror.core.fleet.decisions import Action, Assign, Decision, EventFailed, Send
from evermirror.core.fleet.events import CommandGiven, Event, Moment, Ticked
from evermirror.core.fleet.letters import LettersLost
from evermirror.core.fleet.machine import FleetMachine
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.writes import Decided, Write
from evermirror.model.messages import Report
from evermirror.model.worker import WorkerId

log = structlog.get_logger(__name__)

DECISIONS_MAX = 10_000  # waiting for the database; then connections are not read until it is better

GATHER_S, GATHER_MAX_S = 0.002, 0.03  # for each decision of the last transaction beyond the first; together

Told = tuple[WorkerId, Report]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A decision on its way to the disk, with what else belongs into its transaction."""

    entry: Decided
    actions: tuple[Action, ...]
    report: Told | None


class Enactor:
    """``tell`` what happens, ``run`` beside it."""

    def __init__(
        self,
        machine: FleetMachine,
        recorder: Recorder,
        *,
        act: Callable[[Action], None],
        reported: Callable[[WorkerId, Report], None],
        behind: Callable[[WorkerId, Assign], Iterable[object]],
        now: Callable[[], Moment],
    ) -> None:
        self._machine = machine
        self._recorder = recorder
        self._act = act
        self._reported = reported
        self._behind = behind  # commands that go out right behind an assignment
        self._now = now
        self._waiting: list[_Waiting] = []
        self._wake = asyncio.Event()
        self._moved = asyncio.Condition()
        self._decided = 0  # decisions ever made
        self._done = 0  # of these, persisted and acted on
        self._over = False

    async def tell(self, event: Event, *writes: Write) -> None:
        """Handle an event; ``writes`` go into its transaction."""
        await self.room()
        self.handle(event, *writes)

    async def room(self) -> None:
        """Until there is room for another decision."""
        if len(self._waiting) >= DECISIONS_MAX:
            async with self._moved:
                await self._moved.wait_for(lambda: len(self._waiting) < DECISIONS_MAX)

    async def settled(self) -> None:
        """Until everything told so far is persisted and acted on, or nothing is any more."""
        target = self._decided
        async with self._moved:
            await self._moved.wait_for(lambda: self._done >= target or self._over)

    def handle(self, event: Event, *writes: Write) -> None:
        self.enact(self.decide(event), *writes)

    def decide(self, event: Event) -> Decision:
        """What follows from an event; whoever asks has it enacted at once. Raises LettersLost, or
        EventFailed."""
        self._check_machine()
        try:
            return self._machine.handle(event, self._now())
        except EventFailed as failed:
            self.enact(failed.decision)
            raise

    def enact(self, decision: Decision, *writes: Write, report: Told | None = None) -> None:
        if not (decision.writes or decision.actions or writes or report):
            return
        self._waiting.append(_Waiting(Decided(decision.writes, writes), decision.actions, report))
        self._decided += 1
        self._wake.set()
        for action in decision.actions:
            if isinstance(action, Send) and isinstance(action.command, Assign):
                self._send_behind(action.worker, action.command)

    def _send_behind(self, worker: WorkerId, assign: Assign) -> None:
        try:
            for command in self._behind(worker, assign):
                self.handle(CommandGiven(worker, command))
        except LettersLost:
            raise
        except Exception:  # the assignment stands; its tasks are given again later
            log.exception("commands behind an assignment were left out", worker=worker)

    async def run(self) -> None:
        """Ticks, and carries out what is decided, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tick(), name="fleet ticks")
                group.create_task(self._carry_out(), name="fleet decisions")
        except* LettersLost:
            log.error(
                "keys are lost: start again, they are read from the database", reason=str(self._machine.lost)
            )
            raise
        finally:
            self._over = True
            async with self._moved:
                self._moved.notify_all()

    def _check_machine(self) -> None:
        if (lost := self._machine.lost) is not None:
            raise LettersLost(str(lost)) from lost

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._machine.settings.tick_s)
            try:
                await self.tell(Ticked())
            except EventFailed:
                log.exception("a tick of the fleet failed; the next one goes on")

    async def _carry_out(self) -> None:
        batch: list[_Waiting] = []
        while True:
            await self._wake.wait()
            if len(batch) > 1:
                await asyncio.sleep(min(GATHER_S * (len(batch) - 1), GATHER_MAX_S))
            self._wake.clear()
            self._check_machine()
            batch, self._waiting = self._waiting, []
            entries = [w.entry for w in batch if w.entry.fleet or w.entry.others]
            if entries:
                await self._recorder.put(*entries)
                await self._recorder.flush()
            for waiting in batch:
                self._act_on(waiting)
            async with self._moved:
                self._done += len(batch)
                self._moved.notify_all()

    def _act_on(self, waiting: _Waiting) -> None:
        for action in waiting.actions:
            try:
                self._act(action)
            except Exception:
                log.exception("an action failed", action=type(action).__name__)
        if waiting.report is not None:
            worker, report = waiting.report
            try:
                self._reported(worker, report)
            except Exception:
                log.exception("a stored report failed", worker=worker, report=type(report).__name__)
