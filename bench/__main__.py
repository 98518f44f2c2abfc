"""Runs the benchmarks and prints one table: ``python -m bench [NAME…] [--quick] [--list]``; see ``--help``.

The figures, with every sample and the machine's facts, are also written as JSON below bench/results/. A run
of all of them in full size writes the page docs/benchmarks.md too, with its charts and its JSON.
"""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from bench.measure import Bench, Context, Shared
from bench.run import StoppedError, discover, names, run_all, say, stopped_by_signals, time_text
from bench.telling.facts import machine_facts, machine_text, warnings
from bench.telling.page import DOCS, write_page
from bench.telling.results import RESULTS, Ran, Record, UnreadableError, read, write
from bench.telling.table import table_text
from bench.telling.verdicts import State, summary, verdicts

PROMISED_S = 20 * 60.0  # all of them, on two cores


def _arguments(known: Sequence[str], given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, not how fast")
    parser.add_argument("--rounds", type=_count, help="how often each side runs")
    parser.add_argument("--seconds", type=_seconds, help="how long that lasts which is a load for a time")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where the JSON goes")
    parser.add_argument(
        "--page", type=Path, metavar="FOLDER", help="write the page here, whatever was run; docs/ otherwise"
    )
    parser.add_argument(
        "--page-from", type=Path, metavar="FILE.json", help="make the page again from a JSON, measure nothing"
    )
    parser.add_argument("--list", action="store_true", help="what there is")
    asked = parser.parse_args(given)
    if unknown := [n for n in asked.names if n not in known]:
        near = [near for n in unknown for near in difflib.get_close_matches(n, known, 2)]
        meant = f" (did you mean {' or '.join(near)}?)" if near else ""
        parser.error(f"no benchmark named {', '.join(unknown)}{meant}; there are: {', '.join(known)}")
    asked.names = list(dict.fromkeys(asked.names))
    return asked


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to 1000")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds up to 3600")
    return seconds


def _list(known: dict[str, Bench]) -> None:
    for b in known.values():
        print(f"{b.name:13} {b.measures} (about {time_text(b.takes_s)})")
        print(f"{'':13} against {b.alternative}; alone: make bench BENCH={b.name}")
    print(f"{'':13} all together about {time_text(sum(b.takes_s for b in known.values()))}")


def _page_from(file: Path, folder: Path | None) -> int:
    try:
        record = read(file)
    except UnreadableError as e:
        print(e, file=sys.stderr)
        return 2
    if folder is None and not _for_the_page(record):
        print(
            f"{file} is of a part or of tiny sizes: say with --page FOLDER where to write that",
            file=sys.stderr,
        )
        return 2
    print(os.path.relpath(write_page(record, folder or DOCS)))
    return 0


def _for_the_page(record: Record) -> bool:
    return record.whole and not record.quick


class Run:
    """The results so far, in a file of their own."""

    def __init__(self, asked: argparse.Namespace, known: dict[str, Bench]) -> None:
        self._asked = asked
        self._benches = [known[n] for n in asked.names or known]
        self._all = set(known) == set(names()) and not asked.quick and asked.rounds is None
        self._began = time.monotonic()
        at = datetime.now(UTC)
        self.file: Path = asked.results / f"{at:%Y%m%dT%H%M%SZ}.json"
        self.record = Record(at, asked.quick, False, 0.0, machine_facts(), ())

    def measure(self) -> int:
        """All that is asked for, or what was done when somebody stopped it; gives the exit code."""
        for warning in [] if self._asked.quick else warnings(self.record.machine):
            say(f"Note: {warning}.")
        try:
            with stopped_by_signals():
                run_all(self._benches, self._context, self._told, self._asked.quick)
        except StoppedError as e:
            say(f"Stopped by {e}; what was measured until then is told.")
            return 128 + e.signal_number
        self.record = replace(self.record, whole=self._all)
        write(self.record, self.file)
        return 1 if self.record.broken else 0

    def _context(self, folder: Path, shared: Shared) -> Context:
        return Context(folder, shared, self._asked.quick, self._asked.rounds, self._asked.seconds)

    def _told(self, ran: Ran) -> None:
        took_s = round(time.monotonic() - self._began, 1)
        self.record = replace(self.record, benches=(*self.record.benches, ran), took_s=took_s)
        write(self.record, self.file)

    def tell(self) -> None:
        """The files first: whoever reads the table may stop reading."""
        record = self.record
        if not record.benches:
            return
        to_docs = _for_the_page(record)
        page = write_page(record, self._asked.page or DOCS) if self._asked.page or to_docs else None
        print(table_text(record.benches))
        found = [v for v in verdicts(record) if v.state is not State.ABSENT or record.whole]
        if found and not record.quick:
            print(f"\n{summary(found)}")
        late = ", longer than the 20 min promised" if record.whole and record.took_s > PROMISED_S else ""
        took = f"took {time_text(record.took_s)}{late}"
        print(f"\n{machine_text(record.machine)}; {took}; every sample: {os.path.relpath(self.file)}")
        if page:
            print(f"The page: {os.path.relpath(page)}")
        elif not record.quick:
            print("Not all was measured in full: docs/benchmarks.md stays as it is.")
        if record.quick:
            print("Sizes were tiny (--quick): these figures say nothing about speed.")
        sys.stdout.flush()
        for ran in record.broken:
            say(f"did not run to its end: {ran.name} ({ran.error})")


def main(given: Sequence[str] | None = None) -> int:
    asked = _arguments(names(), given)
    if asked.list:
        _list(discover())
        return 0
    if asked.page_from:
        return _page_from(asked.page_from, asked.page)
    run = Run(asked, discover(asked.names))
    code = run.measure()
    run.tell()
    return code


if __name__ == "__main__":
    quiet = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=quiet, logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read the table had enough; the files are written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
