"""A bar on stderr while something is computed here, where that is a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evermirror.faces.cli.output import console

TICK_S = 0.2  # between two changes of the bar
Tell = Callable[[str, float], None]  # what is under way, and the share of all that is done


@contextmanager
def progress() -> Iterator[Tell]:
    """The bar goes away when it is done."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    shown = console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    bar = Progress(
        *columns, TimeElapsedColumn(), console=shown, transient=True, disable=not shown.is_terminal
    )
    with bar:
        line = bar.add_task("", total=1.0)
        told_at = 0.0

        def tell(what: str, share: float) -> None:
            nonlocal told_at
            if time.monotonic() - told_at >= TICK_S:
                bar.update(line, description=what, completed=share)
                told_at = time.monotonic()

        yield tell
