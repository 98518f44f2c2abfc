"""Compares two results and names what got worse beyond noise: ``python -m bench.check [OLD] [NEW]``.

OLD is docs/benchmarks.json and NEW the newest of bench/results by default. The exit code is 1 where something
got worse, a benchmark broke or a promise is no longer measured, and 2 where the files cannot be compared.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.telling.compare import Change, Comparison, Named, compare
from bench.telling.page import DATA, DOCS
from bench.telling.results import RESULTS, Record, UnreadableError, read
from bench.telling.table import figure_text, ratio_text


def newest(folder: Path) -> Path:
    """The last result that was measured in full size; their names are their times."""
    files = sorted(folder.glob("*.json"), reverse=True)
    for file in files:
        if '"quick": true' not in file.read_text("utf-8", "replace")[:400]:
            return file
    raise UnreadableError(f"{folder} has no result in full size: run `make bench`, or say NEW=FILE.json")


def measured(file: Path) -> Record:
    record = read(file)
    if record.quick:
        raise UnreadableError(
            f"{file} is of tiny sizes (--quick): it says nothing about speed; run `make bench`"
        )
    if not record.benches:
        raise UnreadableError(f"{file} has no benchmark that ran: run `make bench`")
    return record


def report(c: Comparison) -> Iterator[str]:
    yield from (f"Note: {note}." for note in c.notes)
    for title, told in (
        ("Worse beyond noise", [_change(x) for x in c.regressed]),
        ("Broke", [f"{ran.name}: {ran.error}" for ran in c.broke]),
        ("Promised, and no longer measured", c.lost_promises),
        ("Met before and missed now, within noise: measure again", [_change(x) for x in c.missed_now]),
        ("Better beyond noise", [_change(x) for x in c.improved]),
        ("Gone", [_named(x) for x in c.vanished]),
        ("New", [_named(x) for x in c.added]),
    ):
        if told:
            yield f"{title} ({len(told)}):"
            yield from (f"  {one}" for one in told)
    same = len(c.changes) - len(c.regressed) - len(c.improved)
    counts = f"{len(c.regressed)} worse, {len(c.improved)} better, {same} as before"
    yield f"{len(c.changes)} figures compared: {counts}."


def _change(c: Change) -> str:
    against = f" (against {c.new.against})" if c.new.against else ""
    return (
        f"{c.bench}: {c.new.what}, {c.new.unit}{against}: {ratio_text(c.old)} → {ratio_text(c.new)}"
        f" ({abs(c.worse):.0%} {'worse' if c.worse > 0 else 'better'}, noise explains {c.noise:.0%};"
        f" evermirror {figure_text(c.old.ours_median)} → {figure_text(c.new.ours_median)})"
    )


def _named(named: Named) -> str:
    promise = f" [{named.line.promise}]" if named.line.promise else ""
    return f"{named.bench}: {named.line.what}, {named.line.unit}{promise}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.check", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("old", nargs="?", type=Path, metavar="OLD", help="docs/benchmarks.json by default")
    parser.add_argument("new", nargs="?", type=Path, metavar="NEW", help="the newest of bench/results")
    asked = parser.parse_args(arguments)
    try:
        old_file = asked.old or DOCS / DATA
        new_file = asked.new or newest(RESULTS)
        old, new = measured(old_file), measured(new_file)
    except UnreadableError as e:
        print(e, file=sys.stderr)
        return 2
    found = compare(old, new)
    print(f"OLD {os.path.relpath(old_file)} ({old.at:%Y-%m-%d %H:%M}, {old.machine.get('commit')})")
    print(f"NEW {os.path.relpath(new_file)} ({new.at:%Y-%m-%d %H:%M}, {new.machine.get('commit')})")
    for text in report(found):
        print(text)
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main())
