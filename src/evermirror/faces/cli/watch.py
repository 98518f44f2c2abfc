"""An answer of the server shown once, or again and again until Ctrl-C; for people or for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from evermirror.faces.cli.client import Fields
from evermirror.faces.cli.output import console, print_json

if TYPE_CHECKING:
    from rich.console import Group

WATCH_GAP_S = 2.0

Watch = Annotated[bool, typer.Option("--watch", help="Go on showing, until Ctrl-C.")]


def show(ask: Callable[[], Fields], view: Callable[[Fields], Group], *, watch: bool, as_json: bool) -> None:
    """What ``ask`` answers, drawn by ``view``; as JSON one object a line where it goes on."""
    if not watch:
        if as_json:
            print_json(ask())
        else:
            console().print(view(ask()))
    elif sys.stdout.isatty() and not as_json:
        _live(lambda: view(ask()))
    else:
        while True:
            if as_json:
                print(json.dumps(ask()), flush=True)
            else:
                console().print(view(ask()))
            time.sleep(WATCH_GAP_S)


def _live(draw: Callable[[], Group]) -> None:
    from rich.live import Live

    live = Live(draw(), console=console(), screen=True, auto_refresh=False)
    try:  # not `with`: a Ctrl-C while the first picture is drawn would not give the screen back
        live.start(refresh=True)
        while True:
            time.sleep(WATCH_GAP_S)
            live.update(draw(), refresh=True)
    finally:
        live.stop()
