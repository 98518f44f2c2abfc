"""Runs benchmarks one after the other; one that breaks, or hangs, does not cost the figures of the others."""

from __future__ import annotations

import importlib
import pkgutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from bench import figures
from bench.measure import Bench, Context, Found, Shared
from bench.promises import PROMISES
from bench.telling.results import Ran, faults_of

# Far beyond what a benchmark says it takes: a busy machine is no fault, one that never ends is.
OVERDUE_S, OVERDUE_TIMES = 600.0, 4.0


class OverdueError(Exception):
    """A benchmark that did not end in time."""


class StoppedError(BaseException):
    """Somebody asked the run to end, by a key or by a signal; not for a benchmark to catch."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


def names() -> list[str]:
    """Of all that there are: a benchmark is named as its file."""
    return [m.name.replace("_", "-") for m in pkgutil.iter_modules(figures.__path__)]


def discover(some: Sequence[str] = ()) -> dict[str, Bench]:
    """Every module in figures/ declares its benchmark as BENCH; of some, only theirs are loaded."""
    found = [_declared(name.replace("-", "_")) for name in some or names()]
    return {b.name: b for b in sorted(found, key=lambda b: (b.order, b.name))}


def _declared(module: str) -> Bench:
    """One that cannot even be loaded, where a package is missing, breaks when it is run: not all do then."""
    try:
        bench: Bench = importlib.import_module(f"bench.figures.{module}").BENCH
    except Exception as e:
        fault = e

        def broken(_context: Context) -> Sequence[Found]:
            raise fault

        return Bench(module.replace("_", "-"), "nothing: it cannot be loaded", "nothing", broken)
    return bench


def time_text(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(1, round(seconds)):d} s"


def progress_text(benches: Sequence[Bench], number: int, quick: bool = False) -> str:
    """“7 of 26: hooks, about 9 min left”, counted with the one that starts now."""
    text = f"{number + 1} of {len(benches)}: {benches[number].name}"
    return text if quick else f"{text}, about {time_text(sum(b.takes_s for b in benches[number:]))} left"


def run_all(
    benches: Sequence[Bench],
    context: Callable[[Path, Shared], Context],
    told: Callable[[Ran], None],
    quick: bool = False,
) -> None:
    """Each result is told as soon as it is there: who is stopped has those before."""
    with tempfile.TemporaryDirectory(prefix="evermirror-bench-shared-") as folder:
        shared = Shared(Path(folder))
        for number, bench in enumerate(benches):
            say(f"… {progress_text(benches, number, quick)}: {bench.measures}, against {bench.alternative}")
            told(run_one(bench, lambda at: context(at, shared)))


def run_one(bench: Bench, context: Callable[[Path], Context], overdue_s: float | None = None) -> Ran:
    began = time.monotonic()
    found: tuple[Found, ...] = ()
    error = ""
    limit_s = OVERDUE_S + OVERDUE_TIMES * bench.takes_s if overdue_s is None else overdue_s
    try:
        with (
            tempfile.TemporaryDirectory(prefix=f"evermirror-bench-{bench.name}-") as folder,
            _ended_within(limit_s),
        ):
            handed = tuple(bench.run(context(Path(folder))))
        found = tuple(one for one in handed if not faults_of(one))
        error = "; ".join(filter(None, (_faults(bench, one) for one in handed)))
    except Exception as e:
        traceback.print_exc()
        error = f"{type(e).__name__}: {e}"
    if error:
        say(f"  {bench.name} did not run to its end: {error}")
    return Ran(
        bench.name, bench.measures, bench.alternative, found, round(time.monotonic() - began, 1), error
    )


def _faults(bench: Bench, found: Found) -> str:
    strange = [key for key in found.promises if key not in PROMISES or PROMISES[key].bench != bench.name]
    return faults_of(found) or (f"no promise of this benchmark: {', '.join(strange)}" if strange else "")


def say(text: str) -> None:
    """To whoever watches, if somebody still does."""
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


@contextmanager
def _ended_within(limit_s: float) -> Iterator[None]:
    def overdue(_number: int, _frame: FrameType | None) -> None:
        raise OverdueError(f"not done after {time_text(limit_s)}")

    before = signal.signal(signal.SIGALRM, overdue)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """An interrupt and a wish to end become StoppedError: folders and processes are cleaned up on the way."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)  # once is enough: cleaning up is not to be cut short
        raise StoppedError(number)

    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [each for each in asked if signal.getsignal(each) is not signal.SIG_IGN]  # nohup stays nohup
    before = {each: signal.signal(each, stop) for each in heard}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
