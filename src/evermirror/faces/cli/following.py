"""Something long at the server, followed to its end: asked about again and again, shown as a bar."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from evermirror.faces.cli.client import Client, Fields, Unreachable
from evermirror.faces.cli.output import console

POLL_FIRST_S = 0.1
POLL_MAX_S = 1.0  # a person watches; the server answers from memory
POLL_GROWS = 1.5
AWAY_S = 1.0  # between two questions while nobody answers


class Step(NamedTuple):
    """How far it is; ``total`` is None while nobody knows."""

    words: str
    done: int = 0
    total: int | None = None


def followed(
    ask: Callable[[], Fields],
    ended: Callable[[Fields], bool],
    step: Callable[[Fields], Step],
    *,
    first: str = "",
    quiet: bool,
) -> Fields:
    """The answer in which it has ended."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    shown, pause = console(stderr=True), POLL_FIRST_S
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=shown,
        transient=True,
        disable=quiet or not shown.is_terminal,
    )
    with bar:
        line = bar.add_task(first, total=None)
        while not ended(answer := ask()):
            words, done, total = step(answer)
            bar.update(line, description=words, completed=done, total=total)
            time.sleep(pause)
            pause = min(POLL_MAX_S, pause * POLL_GROWS)
    return answer


def patiently(client: Client, path: str, away_max_s: float) -> Fields:
    """The answer, also of a server that is away for a while."""
    until = time.monotonic() + away_max_s
    while True:
        try:
            return client.get(path)
        except Unreachable:
            if time.monotonic() > until:
                raise
            time.sleep(AWAY_S)
