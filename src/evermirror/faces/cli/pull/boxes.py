"""Boxes and tables as the pull API's people know them; wide characters count as the two columns they take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evermirror.faces.cli.output import NOTHING, console
from evermirror.model.printable import one_line

if TYPE_CHECKING:
    from rich.console import Group

CELL_MIN = 8  # columns that a cell keeps, however narrow the terminal is
_WORDS = re.compile(r" *[^ ]+")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: what its columns are called, and its rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def terminal_width() -> int:
    """Columns there are to draw in; as good as endless in a pipe."""
    return console().width


def drawn(lines: Iterable[str]) -> Group:
    """Lines for ``watch.show``."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(line, no_wrap=True, overflow="ignore") for line in lines))


def show_lines(lines: Iterable[str]) -> None:
    """Prints them, once."""
    console().print(drawn(lines))


def facts_box(title: str, lines: Sequence[str], width: int | None = None) -> list[str]:
    """A title over lines. Spaces at the end of a line are the box's own."""
    room = (terminal_width() if width is None else width) - 4
    head = _folded(one_line(title), room)
    body = [part for line in lines for part in _folded(line, room)]
    inner = max((_columns(line) for line in (*head, *body)), default=0)
    bar = "─" * (inner + 2)
    return [
        f"┌{bar}┐",
        *(f"│ {_padded(line, inner)} │" for line in head),
        f"├{bar}┤",
        *(f"│ {_padded(line, inner)} │" for line in body),
        f"└{bar}┘",
    ]


def grid_box(grid: Grid, title: str = "", width: int | None = None) -> list[str]:
    """A table, below its title where it has one."""
    cells = [[_cell(value) for value in row] for row in (grid.columns, *grid.rows)]
    room = terminal_width() if width is None else width
    widths = _widths(cells, room, _columns(one_line(title)))
    rows = [line for row in cells[1:] for line in _row(row, widths)]
    above = [
        _rule("┌┐", widths, joint="─"),
        *(
            f"│ {_padded(line, _inner(widths))} │"
            for line in _folded(one_line(title), max(_inner(widths), 1))
        ),
        _rule("├┤", widths, joint="┬"),
    ]
    return [
        *(above if title else [_rule("┌┐", widths, joint="┬")]),
        *_row(cells[0], widths),
        _rule("├┤", widths, joint="┼"),
        *rows,
        _rule("└┘", widths, joint="┴"),
    ]


def _widths(cells: Sequence[Sequence[str]], room: int, title: int) -> list[int]:
    """As wide as what stands there; where that is too much, the widest give way."""
    widths = [max(_columns(row[n]) for row in cells) for n in range(len(cells[0]))]
    while _inner(widths) + 4 > room and max(widths) > CELL_MIN:
        widths[widths.index(max(widths))] -= 1
    missing = min(title, room - 4) - _inner(widths)
    widths[-1] += max(missing, 0)
    return widths


def _inner(widths: Sequence[int]) -> int:
    return sum(widths) + 3 * (len(widths) - 1)


def _rule(ends: str, widths: Sequence[int], joint: str) -> str:
    return ends[0] + joint.join("─" * (width + 2) for width in widths) + ends[1]


def _row(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    folded = [_folded(cell, width) for cell, width in zip(row, widths, strict=True)]
    height = max(len(lines) for lines in folded)
    padded = [[*lines, *[""] * (height - len(lines))] for lines in folded]
    return [
        "│ " + " │ ".join(_padded(cell, width) for cell, width in zip(line, widths, strict=True)) + " │"
        for line in zip(*padded, strict=True)
    ]


def _cell(value: object) -> str:
    return NOTHING if value is None or value == "" else one_line(str(value))


def _folded(text: str, room: int) -> list[str]:
    """In lines of at most ``room`` columns: at spaces; a word that is longer than a line is cut."""
    from rich.cells import chop_cells

    room = max(room, 2)
    lines = [""]
    for word in _WORDS.findall(text):
        if _columns(lines[-1] + word) <= room:
            lines[-1] += word
        elif _columns(word.lstrip(" ")) <= room:
            lines.append(word.lstrip(" "))
        else:
            first, *rest = chop_cells(lines[-1] + word, room)
            lines[-1:] = [first, *(part.lstrip(" ") for part in rest)]
    return lines


def _padded(text: str, width: int) -> str:
    return text + " " * max(width - _columns(text), 0)


def _columns(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
