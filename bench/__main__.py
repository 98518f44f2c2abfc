"""Runs the benchmarks and prints one table: ``python -m bench [NAME…] [--quick] [--rounds N] [--list]``.

The figures, with every sample and the machine's facts, are also written as JSON below bench/results/.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import pkgutil
import platform
import ssl
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

import bench
import evermirror
from bench.measure import Bench, Context, Line, Sense, spread

RESULTS = Path(__file__).parent / "results"


def discover() -> dict[str, Bench]:
    """Every module named bench_* declares its benchmark as BENCH."""
    names = [m.name for m in pkgutil.iter_modules(bench.__path__) if m.name.startswith("bench_")]
    found = [importlib.import_module(f"bench.{name}").BENCH for name in names]
    return {b.name: b for b in sorted(found, key=lambda b: (b.order, b.name))}


def machine_facts() -> dict[str, object]:
    cpu = next(
        (x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), ": ?"
    )
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=RESULTS.parent,
    )
    return {
        "cpu": cpu.split(":", 1)[1].strip(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_before": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
        "git": git,
        "evermirror": evermirror.__version__,
        "commit": commit.stdout.strip() or None,
    }


def figure_text(value: float | None) -> str:
    if value is None:
        return "–"
    for limit, digits in ((100, 0), (10, 1), (1, 2), (0.01, 3)):
        if abs(value) >= limit:
            return f"{value:,.{digits}f}"
    return f"{value:.2g}"


def row_of(name: str, line: Line) -> tuple[str, ...]:
    ratio = figure_text(line.figure) + (line.sense.value if line.theirs else "")
    limit = "≥" if line.sense in (Sense.TIMES_LESS, Sense.AT_LEAST) else "≤"
    return (
        name,
        line.what,
        line.unit,
        figure_text(line.ours_median),
        f"±{spread(line.ours):.0%}",
        figure_text(line.theirs_median),
        f"±{spread(line.theirs):.0%}" if line.theirs else "",
        ratio,
        f"{limit} {line.goal:g}" if line.goal is not None else "",
        {True: "met", False: "MISSED", None: ""}[line.met],
    )


def table_text(rows: list[tuple[str, ...]]) -> str:
    head = ("bench", "what", "unit", "evermirror", "", "alternative", "", "figure", "goal", "")
    widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]

    def text(row: tuple[str, ...]) -> str:
        cells = [
            c.ljust(w) if i in (0, 1, 2, 9) else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([text(head), "  ".join("─" * w for w in widths), *map(text, rows)])


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one benchmark; ``error`` where it did not run to its end."""

    bench: Bench
    lines: list[Line]
    took_s: float
    error: str = ""

    def json(self) -> dict[str, object]:
        told = {
            "name": self.bench.name,
            "measures": self.bench.measures,
            "alternative": self.bench.alternative,
        }
        return {
            **told,
            "took_s": self.took_s,
            "error": self.error,
            "lines": [line_json(x) for x in self.lines],
        }


def line_json(line: Line) -> dict[str, object]:
    return {**asdict(line), "sense": line.sense.name, "figure": line.figure, "met": line.met}


def run_one(b: Bench, quick: bool, rounds: int | None) -> Ran:
    """One that breaks must not cost the figures of the others."""
    print(f"… {b.name}: {b.measures}, against {b.alternative}", file=sys.stderr, flush=True)
    began = time.monotonic()
    lines: list[Line] = []
    error = ""
    try:
        with tempfile.TemporaryDirectory(prefix=f"evermirror-bench-{b.name}-") as folder:
            lines = b.run(Context(Path(folder), quick, rounds))
    except Exception as e:
        traceback.print_exc()
        error = f"{type(e).__name__}: {e}"
    return Ran(b, lines, round(time.monotonic() - began, 1), error)


def main() -> int:
    known = discover()
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, not how fast")
    parser.add_argument("--rounds", type=int, help="how often each side runs")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where the JSON goes")
    parser.add_argument("--list", action="store_true", help="what there is")
    asked = parser.parse_args()
    if unknown := [n for n in asked.names if n not in known]:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(known)}")
    if asked.list:
        for b in known.values():
            print(f"{b.name:10} {b.measures}")
            print(f"{'':10} against {b.alternative}; alone: make bench BENCH={b.name}")
        return 0

    quiet = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=quiet, logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    facts = machine_facts()
    record = [run_one(known[n], asked.quick, asked.rounds) for n in asked.names or known]
    print(table_text([row_of(r.bench.name, line) for r in record for line in r.lines]))
    asked.results.mkdir(exist_ok=True)
    at = datetime.now(UTC)
    file = asked.results / f"{at:%Y%m%dT%H%M%SZ}.json"
    head = {"at": at.isoformat(timespec="seconds"), "quick": asked.quick, "machine": facts}
    text = json.dumps({**head, "benches": [r.json() for r in record]}, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", "utf-8")
    print(f"\n{facts['cpu']}, {facts['cores']} cores; every sample: {os.path.relpath(file)}")
    if asked.quick:
        print("Sizes were tiny (--quick): these figures say nothing about speed.")
    broken = [r.bench.name for r in record if r.error]
    if broken:
        print(f"did not run to its end: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
