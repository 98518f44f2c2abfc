"""Made push histories: a population as forges have it, of any size, from a seed.

- **Mostly silent, heavy tail.** A repo's average rate is log-normal: half of them see less than a push in
  three years, a few dozens a day. The spread is so wide that the best poll rates (as the square root of the
  rate) bring the mean delay to about a tenth of what equal rates do. Every repo was pushed to once, years
  ago.
- **Bursts.** Pushes come in sessions: a few pushes, minutes apart. Sessions come in busy spells of days and
  of months with pauses between, each with a gamma-distributed activity of its own.
- **Day and week.** People work by day, less at noon, and little on weekends, each repo in its own time zone;
  some repos are pushed to by machines, around the clock.

Pushes are whole minutes, merged within a minute. The same numbers, seed and NumPy give the same histories.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evermirror.core.schedule.intensity import DAY_S, HOUR_S, YEAR_S
from evermirror.errors import UsageError
from evermirror.sim.polling import Trace, Traces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Places = NDArray[np.int64]

END = 1_787_443_200.0  # a Sunday, 00:00 UTC
REPOS_MAX = 100_000  # more take minutes to make, and gigabytes to simulate
_AT_ONCE = 10_000  # repos: more would only need more memory
WEEK_S = 7 * DAY_S
_MINUTE_S = 60.0

# How busy each hour of a working day is, from midnight, local time; and each day of the week, from Monday.
HOURS = (1, 1, 1, 1, 1, 1, 2, 4, 8, 13, 15, 14, 10, 13, 15, 15, 14, 12, 9, 7, 6, 6, 4, 2)
WEEKDAYS = (1.0, 1.1, 1.1, 1.1, 0.9, 0.25, 0.25)
# Hours east of Greenwich, and how many repos live there.
ZONES = ((-8, 0.15), (-5, 0.2), (0, 0.1), (1, 0.25), (5.5, 0.1), (8, 0.15), (9, 0.05))


@dataclass(frozen=True, slots=True)
class Shape:
    """What a population is like; the defaults are a guess at a forge's, told in docs/guide.md."""

    years: float = 2.0  # of history
    median_per_year: float = 0.3  # pushes of the repo in the middle
    spread: float = 3.0  # sigma of the rates' logarithm
    most_per_year: float = 20_000.0  # no repo has a higher average
    session_pushes: float = 3.0  # mean
    session_gap_s: float = 1_500.0  # mean time between two pushes of one session
    spell_days: float = 4.0  # length of a busy spell, or of a pause
    long_spell_days: float = 60.0
    spell_evenness: float = 0.7  # of the gamma distribution of both: the less, the deeper are pauses
    machines: float = 0.1  # share of the repos without day and week
    oldest_years: float = 10.0  # a repo's first push is so old at most, and older than the history

    def __post_init__(self) -> None:
        above_0 = (self.years, self.median_per_year, self.most_per_year, self.session_gap_s)
        spells = (self.spell_days, self.long_spell_days, self.spell_evenness)
        if min(*above_0, *spells) <= 0 or self.spread < 0 or self.session_pushes < 1:
            raise ValueError("a population's rates and times are positive, and a session has a push")
        if not 0 <= self.machines <= 1 or self.oldest_years < self.years:
            raise ValueError("the share of machines is within 0 and 1, and no history older than its repo")


def made(repos: int, seed: int = 1, shape: Shape | None = None) -> Traces:
    """So many repos, named ``made-0`` and so on."""
    import numpy as np

    if not 1 <= repos <= REPOS_MAX:
        raise UsageError(f"{repos:,} repos cannot be made: 1 to {REPOS_MAX:,} can")
    if seed < 0:
        raise UsageError(f"a seed of {seed} is below 0")
    shape = shape or Shape()
    chance = np.random.default_rng(seed)
    rates = np.exp(np.log(shape.median_per_year) + shape.spread * chance.standard_normal(repos))
    rates = np.minimum(rates, shape.most_per_year) / YEAR_S
    span_s = shape.years * YEAR_S
    whose, at = _sessions(rates / shape.session_pushes, span_s, shape, chance)
    whose, at = _pushes(whose, at, shape, chance)
    inside = (at > -span_s) & (at < 0.0)
    born = -span_s - chance.random(repos) * (shape.oldest_years - shape.years) * YEAR_S
    whose = np.concatenate((np.arange(repos), whose[inside]))
    minutes = np.floor(np.concatenate((born, at[inside])) / _MINUTE_S).astype(np.int64)
    # Repo and minute as one number: sorted, and each once.
    wide = int(-minutes.min()) + 1
    both = np.unique(whose * wide + (minutes + wide - 1))
    bounds = np.searchsorted(both, np.arange(repos + 1) * wide)
    times = (both % wide - (wide - 1)) * _MINUTE_S + END
    each = (times[bounds[i] : bounds[i + 1]].tolist() for i in range(repos))
    return Traces(tuple(Trace(f"made-{i}", pushes) for i, pushes in enumerate(each)), END)


def check_new(path: Path) -> None:
    """Whether ``save`` can write there, told before anything is made."""
    if os.path.lexists(path):
        raise UsageError(f"{path} is there already", hint="Name another file, or remove it first")
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: {os.strerror(errno.ENOENT)}")


def save(traces: Traces, path: Path) -> None:
    """Write an .npz as ``load_traces`` reads it: whole, or not at all."""
    import numpy as np

    offset = np.cumsum([0, *(len(trace.pushes) for trace in traces.repos)])
    pushes = np.array([at for trace in traces.repos for at in trace.pushes], dtype=np.float64)
    minutes = np.floor((pushes - traces.end) / _MINUTE_S).astype(np.int32)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            np.savez_compressed(
                file,
                name=np.array([trace.name for trace in traces.repos]),
                offset=offset,
                minutes_before_end=minutes,
                end_unix=np.int64(traces.end),
            )
        part.rename(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink()


def _sessions(
    rates: Numbers, span_s: float, shape: Shape, chance: np.random.Generator
) -> tuple[Places, Numbers]:
    """Whose sessions begin when (s before the end, negative): many, of which those stay that begin in the
    hours of the repo's people."""
    import numpy as np

    repos, rhythm = len(rates), _rhythm()
    machine = chance.random(repos) < shape.machines
    offsets, weights = zip(*ZONES, strict=True)
    east_s = chance.choice(np.array(offsets), repos, p=np.array(weights)) * HOUR_S
    # People lose what falls into the night, so they begin with more.
    rates = rates * np.where(machine, 1.0, rhythm.max() / rhythm.mean())
    parts = [
        _candidates(first, rates[first : first + _AT_ONCE], span_s, shape, chance)
        for first in range(0, repos, _AT_ONCE)
    ]
    whose = np.concatenate([part[0] for part in parts])
    at = np.concatenate([part[1] for part in parts])
    hour = ((at + east_s[whose]) % WEEK_S // HOUR_S).astype(np.int64)
    stay = machine[whose] | (chance.random(len(whose)) * rhythm.max() < rhythm[hour])
    return whose[stay], at[stay]


def _rhythm() -> Numbers:
    """How busy each hour of the week is; the week begins as the histories end, on Sunday at midnight."""
    import numpy as np

    days = (WEEKDAYS[6], *WEEKDAYS[:6])
    return np.concatenate([day * np.array(HOURS, dtype=np.float64) for day in days])


def _candidates(
    first: int, rates: Numbers, span_s: float, shape: Shape, chance: np.random.Generator
) -> tuple[Places, Numbers]:
    """Sessions at any hour: every spell of every repo has an activity of its own, times that of the long
    spell around it."""
    import numpy as np

    repos, spell_s, long_s = len(rates), shape.spell_days * DAY_S, shape.long_spell_days * DAY_S
    spells, longs = int(span_s / spell_s) + 1, int(span_s / long_s) + 2
    activity = _gamma(shape, (repos, spells), chance)
    middle_s = (np.arange(spells) + 0.5) * spell_s + chance.random((repos, 1)) * long_s
    around = (middle_s // long_s).astype(np.int64)
    activity *= np.take_along_axis(_gamma(shape, (repos, longs), chance), around, axis=1)
    counts = chance.poisson(rates[:, None] * spell_s * activity)
    place = np.repeat(np.arange(repos * spells), counts.ravel())
    at = -((place % spells) + chance.random(len(place))) * spell_s
    return first + place // spells, at


def _gamma(shape: Shape, size: tuple[int, int], chance: np.random.Generator) -> Numbers:
    """Mean 1; the less even, the deeper the pauses and the busier the spells."""
    return chance.gamma(shape.spell_evenness, 1.0 / shape.spell_evenness, size)


def _pushes(whose: Places, at: Numbers, shape: Shape, chance: np.random.Generator) -> tuple[Places, Numbers]:
    """The pushes of each session: the first at once, each next one a while after."""
    import numpy as np

    counts = chance.geometric(1.0 / shape.session_pushes, len(whose))
    gaps = chance.exponential(shape.session_gap_s, int(counts.sum()))
    firsts = np.cumsum(counts) - counts
    gaps[firsts] = 0.0
    gone = np.cumsum(gaps)
    since_first = gone - np.repeat(gone[firsts], counts)
    return np.repeat(whose, counts), np.repeat(at, counts) + since_first
