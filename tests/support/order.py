"""In which order several processes run the tests, and which of them stay together.

    what waits (whole fleets of processes) between what computes (simulations), then all other files

A file is one process's own, so that what its tests share is made once; so are all tests in a browser. Files
of long computations, whose tests share nothing, are split: else one process would end long after the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TypeVar

T = TypeVar("T")

BROWSER = "tests/browser/"
CAMPAIGNS = "tests/campaigns/"
WAITING = (BROWSER, "tests/scenarios/")  # several at a time would only slow each other down
SPLIT = ("tests/sim/", "tests/support/sim/", "tests/bench/")


def file_of(test: str) -> str:
    """Of a test's id."""
    return test.partition("::")[0]


def asks_for_campaigns(marks: str, args: Iterable[str]) -> bool:
    """By mark (``-m campaign``), or by naming them; else they are left out: they take minutes."""
    return "campaign" in marks or any(CAMPAIGNS in f"{arg}/" for arg in args)


def scope_of(test: str) -> str:
    """What of a test's id is the same for those that stay with it."""
    file = file_of(test)
    if not stays_together(file):
        return test
    return _group(file)


def stays_together(file: str) -> bool:
    return not file.startswith(SPLIT)


def arranged(tests: Iterable[T], file_of: Callable[[T], str]) -> list[T]:
    """The same tests, those of a file in their order."""
    files = [(name, list(of_file)) for name, of_file in groupby(tests, lambda test: _group(file_of(test)))]
    waiting = [of_file for name, of_file in files if name.startswith(WAITING)]
    long = [test for name, of_file in files if not stays_together(name) for test in of_file]
    rest = [
        test
        for name, of_file in files
        if stays_together(name) and not name.startswith(WAITING)
        for test in of_file
    ]
    return [*_between(waiting, long), *rest]


def _group(file: str) -> str:
    return BROWSER if file.startswith(BROWSER) else file


def _between(files: list[list[T]], tests: list[T]) -> list[T]:
    """The files with equal gaps, which the tests fill."""
    ordered: list[T] = []
    for n, of_file in enumerate(files):
        ordered += of_file
        ordered += tests[len(tests) * n // len(files) : len(tests) * (n + 1) // len(files)]
    return ordered if files else list(tests)
