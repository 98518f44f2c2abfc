"""What the command line prints: tables, ages, JSON; every string from outside is made harmless first."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

from evermirror.model.printable import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

OTHER_NAME = "gitlab-mirror"  # the name by which users of GitLab know the program
WIDE = 10_000  # columns of a "terminal" that is a pipe: programs want whole values
NOTHING = "–"
# In the user's part of a URL: all of it for http(s), where the name may be a token; else the password. What
# looks like a port is none.
_PASSWORD = re.compile(
    r"(?P<shown>\bhttps?://)(?:[^\s/]*|[^\s@/:]*:(?![0-9]+(?:[/\s]|$))\S*)@"
    r"|(?P<user>://[^\s@/:]*:)(?![0-9]+(?:[/\s]|$))\S*@"
    r"|(?<!\S)[^\s/@:]+:[^\s/]*@",
    re.IGNORECASE,
)


def console(*, stderr: bool = False) -> Console:
    """Colour and width of the terminal; neither where the output is a pipe. NO_COLOR is honoured."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not stream.isatty(),
        width=None if stream.isatty() else WIDE,
    )


def as_started(text: str) -> str:
    """``text`` with the commands that it tells to run under the name that the program was started by."""
    if PurePath(sys.argv[0]).name != OTHER_NAME:
        return text
    return text.replace("`evermirror ", f"`{OTHER_NAME} ")


def without_passwords(text: str) -> str:
    """``text`` with the passwords of URLs masked: what a person typed may be shown to others."""
    return _PASSWORD.sub(lambda found: f"{found['shown'] or found['user'] or ''}***@", text)


def say(text: str) -> None:
    """One line for people on stdout."""
    print(one_line(without_passwords(as_started(text))))


def warn(text: str) -> None:
    """One line for people on stderr."""
    print(one_line(without_passwords(as_started(text))), file=sys.stderr)


def print_json(value: object) -> None:
    """JSON alone on stdout. ASCII: escape codes and marks that turn text around stay escaped."""
    print(json.dumps(value, indent=2, ensure_ascii=True, default=str))


def make_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()
) -> Table:
    """A boxed table on a terminal; plain columns in a pipe."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    boxed = sys.stdout.isatty()
    table = Table(
        box=box.SQUARE if boxed else None,
        pad_edge=boxed,
        padding=(0, 1) if boxed else (0, 2, 0, 0),
        header_style="",
    )
    for column in columns:
        table.add_column(
            Text(one_line(column)), justify="right" if column in right else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    return table


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """Prints ``make_table``."""
    console().print(make_table(columns, rows, right=right))


def counted(count: int, one: str, many: str = "") -> str:
    """``1 ref``, ``2 refs``; ``many`` where it is not ``one`` with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def _cell(value: object) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(str(value))


_AGES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def age(at: object, now: float | None = None) -> str:
    """``3 min ago``, ``in 2 h``; of UTC seconds or an ISO time; a dash where there is none."""
    seconds = as_seconds(at)
    if seconds is None:
        return NOTHING
    gone = (time.time() if now is None else now) - seconds
    if abs(gone) < 1:
        return "now"
    return f"{span(gone)} ago" if gone > 0 else f"in {span(-gone)}"


def span(seconds: float | None) -> str:
    """``45 s``, ``3 min``, ``2.5 h``, ``4 d``."""
    if seconds is None:
        return NOTHING
    for unit, name in _AGES:
        if abs(seconds) >= unit:
            count = seconds / unit
            return (
                f"{count:.0f} {name}"
                if unit == 1.0 or count >= 10
                else f"{count:.1f}".removesuffix(".0") + f" {name}"
            )
    return f"{seconds:.1f} s" if seconds else "0 s"


def as_seconds(at: object) -> float | None:
    """UTC seconds of a number or an ISO time; None for none and for what is neither."""
    match at:
        case None | "" | bool():
            return None
        case int() | float():
            return float(at) or None
        case str():
            try:
                return datetime.fromisoformat(at).timestamp()
            except ValueError:
                return None
        case _:
            return None
