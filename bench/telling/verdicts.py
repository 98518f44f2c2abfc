"""Which promises a run met: each is judged by its own goal, on all the lines that are about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from bench.measure import Curve, Line
from bench.promises import PROMISES, Promise
from bench.telling.results import Ran, Record


class State(Enum):
    MET = "met"
    MISSED = "MISSED"
    SHOWN = "shown"  # promised without a goal
    ABSENT = "not measured"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A promise, what is about it, and what came of it."""

    promise: Promise
    ran: Ran | None
    lines: tuple[Line, ...]
    curves: tuple[Curve, ...]

    def goal(self, line: Line) -> float | None:
        """A line without a goal is not to be judged: not measured on what the promise is about, for one."""
        return line.goal if line.goal is None or self.promise.goal is None else self.promise.goal

    def state_of(self, line: Line) -> State:
        goal = self.goal(line)
        if goal is None:
            return State.SHOWN
        return State.MET if line.meets(goal) else State.MISSED

    @property
    def state(self) -> State:
        states = {self.state_of(line) for line in self.lines}
        for state in (State.MISSED, State.MET, State.SHOWN):
            if state in states:
                return state
        return State.SHOWN if self.curves else State.ABSENT

    @property
    def limit(self) -> str:
        """What stands in the way, as the missed lines tell it; each reason once."""
        told = [line.limit for line in self.lines if self.state_of(line) is State.MISSED and line.limit]
        return "; ".join(dict.fromkeys(told))


def goals_of(line: Line) -> tuple[float, ...]:
    """All that a line is judged by: the goals of its promises (a first and a next one), or its own."""
    if line.goal is None:
        return ()
    promised = [PROMISES[key].goal for key in line.promises if key in PROMISES]
    return tuple(dict.fromkeys(goal for goal in promised if goal is not None)) or (line.goal,)


def verdict_text(line: Line) -> str:
    """One word for each goal, or for all where they agree."""
    states = [State.MET if line.meets(goal) else State.MISSED for goal in goals_of(line)]
    return ", ".join(state.value for state in (states if len(set(states)) > 1 else states[:1]))


def verdicts(record: Record, promises: Iterable[Promise] = PROMISES.values()) -> list[Verdict]:
    ran_by_name = {ran.name: ran for ran in record.benches}
    found = []
    for promise in promises:
        ran = ran_by_name.get(promise.bench)
        about = [one for one in ran.found if promise.key in one.promises] if ran else []
        found.append(
            Verdict(
                promise,
                ran,
                tuple(one for one in about if isinstance(one, Line)),
                tuple(one for one in about if isinstance(one, Curve)),
            )
        )
    return found


def summary(found: list[Verdict]) -> str:
    """One sentence that can be quoted."""
    count = {state: sum(v.state is state for v in found) for state in State}
    judged = count[State.MET] + count[State.MISSED]
    text = f"{count[State.MET]} of {judged} promised figures met"
    if count[State.SHOWN]:
        text += f", {count[State.SHOWN]} more promised to be shown and shown"
    if count[State.ABSENT]:
        text += f", {count[State.ABSENT]} not measured"
    return text + "."
