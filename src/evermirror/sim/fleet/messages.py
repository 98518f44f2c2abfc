"""What a simulated worker says to the coordinator, before the shell makes events of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evermirror.core.fleet.events import HeldCopy, ReportId
from evermirror.model.messages import ApplySettings
from evermirror.model.worker import WorkerFacts, WorkerId


@dataclass(frozen=True, slots=True)
class Hello:
    """First on every link."""

    worker: WorkerId | None
    facts: WorkerFacts
    boot: int
    generation: int
    epoch: int
    seen: int
    limits: ApplySettings | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    accepting: bool
    progress: int = 0  # another number whenever a clone got further; 0: none runs


@dataclass(frozen=True, slots=True)
class Took:
    """Commands up to ``seq`` are taken in."""

    seq: int


@dataclass(frozen=True, slots=True)
class Told:
    """A chunk of all that it holds."""

    copies: tuple[HeldCopy, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """What it holds in the ranges that differ."""

    ranges: tuple[int, ...]
    copies: tuple[HeldCopy, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """``kind`` is one of the reports of ``core.fleet.events``, ``rest`` what follows its id."""

    generation: int
    seq: int
    kind: Any
    rest: tuple[Any, ...]

    def event(self, worker: WorkerId, session: int) -> Any:
        return self.kind(ReportId(worker, session, self.generation, self.seq), *self.rest)
