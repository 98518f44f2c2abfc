"""What changed from one run to another, beyond what the runs' own noise explains. Pure.

A figure is a median, or a ratio of two, of few samples; each median is as unsure as its samples are apart.
Their range tells the deviation of one sample (range ÷ d₂, as control charts have it), that the error of the
median, and those of all sides of both runs the error of the change. A change counts when it is further than
Student's t allows for so few samples, and further than a floor: machines differ from hour to hour by more
than from minute to minute.

Seconds and megabytes of another machine are not compared, nor is the clock of a busy one; ratios are.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from bench.measure import Line, Sense
from bench.promises import PROMISES
from bench.telling.facts import BUSY_LOAD, same_machine
from bench.telling.results import Ran, Record
from bench.telling.table import unit_and_time

FLOOR_RATIO, FLOOR_TIMED, FLOOR_COUNTED = 0.10, 0.15, 0.05
LONE_SHARE = 0.06  # chosen: how unsure a single timed sample is, where no second one tells
LONE_FREEDOM = 3  # and how much we know about that
# The expected range of 2, 3, … samples, in deviations of one. Of more than these the range says too little.
D2 = (1.128, 1.693, 2.059, 2.326, 2.534, 2.704, 2.847, 2.970, 3.078)
MEDIAN_ERROR = 1.2533  # of a median against that of a mean: √(π/2)
# Student's t: one line in 200 is further, to one side, by chance alone. Degrees of freedom, and errors.
T_FREEDOM = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60)
T_ERRORS = (63.7, 9.92, 5.84, 4.60, 4.03, 3.71, 3.36, 3.17, 2.95, 2.85, 2.75, 2.66)
SHARE_MAX = 1e6  # beyond it a change is told as this
TIMED_UNITS = ("s", "ms", "µs", "per s")


@dataclass(frozen=True, slots=True)
class Change:
    """A line in both runs. Shares of the old figure: how much worse it is, and how much noise explains."""

    bench: str
    old: Line
    new: Line
    worse: float
    noise: float

    @property
    def regressed(self) -> bool:
        return self.worse > self.noise

    @property
    def improved(self) -> bool:
        return self.worse < -self.noise

    @property
    def missed_now(self) -> bool:
        """Whether a promise was kept before, and is not now: near its goal, noise alone can do that."""
        goals = [p.goal for key in self.new.promises if (p := PROMISES.get(key)) and p.goal is not None]
        return any(self.old.meets(goal) and not self.new.meets(goal) for goal in goals)


@dataclass(frozen=True, slots=True)
class Named:
    """A line that only one of the runs has."""

    bench: str
    line: Line


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is to be said about two runs."""

    changes: tuple[Change, ...]
    vanished: tuple[Named, ...]
    added: tuple[Named, ...]
    lost_promises: tuple[str, ...]
    broke: tuple[Ran, ...]
    notes: tuple[str, ...]

    @property
    def regressed(self) -> list[Change]:
        return sorted((c for c in self.changes if c.regressed), key=lambda c: -c.worse)

    @property
    def improved(self) -> list[Change]:
        return sorted((c for c in self.changes if c.improved), key=lambda c: c.worse)

    @property
    def missed_now(self) -> list[Change]:
        return [c for c in self.changes if c.missed_now and not c.regressed]

    @property
    def failed(self) -> bool:
        return bool(self.regressed or self.lost_promises or self.broke)


def is_ratio(line: Line) -> bool:
    return bool(line.theirs) and line.sense in (Sense.TIMES_LESS, Sense.TIMES_AS_MUCH)


def is_timed(line: Line) -> bool:
    """Whether a clock gave its samples: a count or a simulation gives the same each time."""
    unit, time = unit_and_time(line.unit)
    return bool(time) or "core" in unit.split() or unit in TIMED_UNITS


def by_the_clock(line: Line) -> bool:
    """Whether other processes are in its samples: they take the CPU, and the clock goes on."""
    return is_timed(line) and "CPU" not in line.unit and "core" not in line.unit


def is_busy(record: Record) -> bool:
    load = record.machine.get("load_before")
    return isinstance(load, int | float) and load > BUSY_LOAD


def has_a_better(line: Line) -> bool:
    """Whether its sense says which way is better: a ratio without its other side does not."""
    return is_ratio(line) or line.sense in (Sense.AT_MOST, Sense.AT_LEAST)


def median_error(samples: Sequence[float], timed: bool) -> float:
    """How far the median of such samples typically is from the true one, in their unit."""
    n = len(samples)
    if n == 1:
        return abs(samples[0]) * LONE_SHARE if timed else 0.0
    few = n <= len(D2) + 1
    deviation = (max(samples) - min(samples)) / D2[n - 2] if few else statistics.stdev(samples)
    return MEDIAN_ERROR * deviation / math.sqrt(n)


def errors_allowed(sides: Sequence[Sequence[float]]) -> float:
    """How many errors a change may be large: more where few samples tell the error."""
    freedom = sum(len(samples) - 1 or LONE_FREEDOM for samples in sides)
    return T_ERRORS[bisect_right(T_FREEDOM, freedom) - 1]


def change_of(bench: str, old: Line, new: Line) -> Change:
    timed = is_timed(new)
    floor = FLOOR_COUNTED if not timed else FLOOR_RATIO if is_ratio(new) else FLOOR_TIMED
    sides = [old.ours, new.ours, *((old.theirs, new.theirs) if is_ratio(new) else ())]
    medians = [statistics.median(samples) for samples in sides]
    errors = [median_error(samples, timed) for samples in sides]
    allowed = errors_allowed(sides)
    if min(medians) > 0:
        # Ratios multiply: in logarithms errors add up, and twice as slow is as far as twice as fast.
        higher = _log_figure(new) - _log_figure(old)
        error = math.hypot(*(e / m for e, m in zip(errors, medians, strict=True)))
        worse = -higher if new.sense in (Sense.TIMES_LESS, Sense.AT_LEAST) else higher
        return Change(bench, old, new, _share(worse), max(floor, _share(allowed * error)))
    # Nothing to divide by: of what may be none, or less than none, our differences are compared.
    size = abs(medians[0]) or 1.0
    higher = (medians[1] - medians[0]) / size
    noise = allowed * math.hypot(*errors[:2]) / size
    worse = -higher if new.sense is Sense.AT_LEAST else higher
    return Change(bench, old, new, worse, max(floor if medians[0] else 0.0, noise))


def _log_figure(line: Line) -> float:
    """Of medians above zero, however small: their ratio itself may be more than a float can say."""
    ours = math.log(line.ours_median)
    if line.theirs_median is None or not is_ratio(line):
        return ours
    lower = math.log(line.theirs_median) - ours
    return lower if line.sense is Sense.TIMES_LESS else -lower


def _share(log: float) -> float:
    """How much more a logarithm is, as a share; below zero how much less, counted from the smaller."""
    return math.copysign(min(math.expm1(min(abs(log), 700.0)), SHARE_MAX), log)


def compare(old: Record, new: Record) -> Comparison:
    before, after = ({ran.name: ran for ran in record.benches} for record in (old, new))
    same, busy = same_machine(old.machine, new.machine), is_busy(old) or is_busy(new)
    changes: list[Change] = []
    vanished: list[Named] = []
    added: list[Named] = []
    unjudged = 0
    for name, ran in after.items():
        pairs, gone, come = paired(before[name].lines if name in before else [], ran.lines)
        judged = [(a, b) for a, b in pairs if is_ratio(b) or (same and not (busy and by_the_clock(b)))]
        unjudged += len(pairs) - len(judged)
        changes += [change_of(name, a, b) for a, b in judged if has_a_better(b) and _alike(a, b)]
        vanished += [] if ran.error else [Named(name, line) for line in gone]
        added += [Named(name, line) for line in come]
    for name in before.keys() - after.keys() if new.whole else ():
        vanished += [Named(name, line) for line in before[name].lines]
    return Comparison(
        changes=tuple(changes),
        vanished=tuple(vanished),
        added=tuple(added),
        lost_promises=tuple(_lost(before.values(), after, new.whole)),
        broke=tuple(ran for name, ran in after.items() if ran.error and not _was_broken(before.get(name))),
        notes=tuple(_notes(old, new, unjudged)),
    )


def _alike(old: Line, new: Line) -> bool:
    return old.sense is new.sense and is_ratio(old) == is_ratio(new)


def _was_broken(ran: Ran | None) -> bool:
    return ran is not None and bool(ran.error)


def paired(
    old: Sequence[Line], new: Sequence[Line]
) -> tuple[list[tuple[Line, Line]], list[Line], list[Line]]:
    """Which line is which: by its words, else by its promise where its words changed; and what is left."""
    pairs: list[tuple[Line, Line]] = []
    gone, come = list(old), list(new)
    for key in (_words, _meaning):
        known, asked = _unique(gone, key), _unique(come, key)
        both = [(known[k], asked[k]) for k in known if k in asked]
        pairs += both
        gone = [line for line in gone if not any(line is a for a, _ in both)]
        come = [line for line in come if not any(line is b for _, b in both)]
    return pairs, gone, come


def _words(line: Line) -> Hashable:
    return line.what, line.unit, line.against


def _meaning(line: Line) -> Hashable:
    return (line.promise, line.unit, line.sense, line.against) if line.promise else None


def _unique(lines: Iterable[Line], key: Callable[[Line], Hashable]) -> dict[Hashable, Line]:
    lines = list(lines)
    count = Counter(map(key, lines))
    return {key(line): line for line in lines if key(line) is not None and count[key(line)] == 1}


def _lost(before: Iterable[Ran], after: dict[str, Ran], whole: bool) -> Iterable[str]:
    """Promises that were measured and are not any more, of benchmarks that were to run."""
    for ran in before:
        now = after.get(ran.name)
        if (now is None and not whole) or (now and now.error):
            continue
        kept = {key for one in now.found for key in one.promises} if now else set()
        yield from dict.fromkeys(key for one in ran.found for key in one.promises if key not in kept)


def _notes(old: Record, new: Record, unjudged: int) -> Iterable[str]:
    for name, record in (("OLD", old), ("NEW", new)):
        if is_busy(record):
            load = record.machine["load_before"]
            yield f"{name} was measured on a busy machine (load {load} before it began)"
    if unjudged and same_machine(old.machine, new.machine):
        yield f"so {unjudged} figures by the clock that have no alternative beside them are not judged"
    if not same_machine(old.machine, new.machine):
        yield (
            f"the machines differ ({old.machine.get('cpu')}, {old.machine.get('cores')} cores; now"
            f" {new.machine.get('cpu')}, {new.machine.get('cores')} cores): {unjudged} figures that have no"
            " alternative beside them are not judged, ratios are"
        )
    elsewhere = [ran.name for ran in old.benches if ran.name not in {r.name for r in new.benches}]
    if elsewhere and not new.whole:
        yield f"not measured in NEW, so not judged: {', '.join(elsewhere)}"
