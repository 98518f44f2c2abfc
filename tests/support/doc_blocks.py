"""The command blocks of README and docs, and what a page says of how a test runs them.

A block of ``sh`` is run as it stands. An HTML comment on the line before it says otherwise:

    <!-- test: not run: REASON -->            it needs what no test has: root, systemd, the internet, hours
    <!-- test: run by tests/…/test_x.py -->   another test follows it line by line
    <!-- test: exit 1 5: REASON -->           its commands may also end so (numbers that are examples, …)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELLS = frozenset({"sh", "bash", "shell", "console"})
_FENCE = re.compile(r"^ *```(?P<kind>\S*)\s*$")
_NOTE = re.compile(r"^ *<!-- test: (?P<note>.*) -->\s*$")
_NOT_RUN = re.compile(r"not run: (?P<reason>\S.{9,})")
_RUN_BY = re.compile(r"run by (?P<file>tests/\S+\.py)")
_EXIT = re.compile(r"exit (?P<codes>[1-6](?: [1-6])*): (?P<reason>\S.{9,})")
_COMMAND = re.compile(r"^ *(?:\$ |(?:evermirror|gitlab-mirror|git|make|curl|sudo|systemctl) (?!is )[a-z-])")


@dataclass(frozen=True, slots=True)
class Block:
    """``line`` is that of its fence; ``note`` what the comment before it says."""

    page: str
    line: int
    kind: str
    text: str
    note: str

    @property
    def is_run(self) -> bool:
        return not (_NOT_RUN.fullmatch(self.note) or _RUN_BY.fullmatch(self.note))

    @property
    def may_end(self) -> frozenset[int]:
        found = _EXIT.fullmatch(self.note)
        return frozenset({0, *map(int, found["codes"].split())}) if found else frozenset({0})

    @property
    def problem(self) -> str:
        """What is wrong with how it is marked; empty where nothing is."""
        if self.kind not in SHELLS:
            if self.note:
                return "a comment for tests stands before what is no shell block"
            looks = self.kind == "" and any(_COMMAND.match(line) for line in self.text.splitlines())
            return "commands stand in a block that is not marked as sh" if looks else ""
        if self.kind != "sh":
            return "a shell block is marked as sh"
        run_by = _RUN_BY.fullmatch(self.note)
        if run_by is not None:
            file = ROOT / run_by["file"]
            named = file.is_file() and Path(self.page).name in file.read_text("utf-8")
            return "" if named else f"{run_by['file']} does not follow this page"
        fine = not self.note or _NOT_RUN.fullmatch(self.note) or _EXIT.fullmatch(self.note)
        return "" if fine else f"the comment {self.note!r} is not understood"

    @property
    def bare(self) -> list[str]:
        """Its lines without comments, to be compared with those of another language."""
        return [re.sub(r"\s+#.*", "", line) for line in self.text.splitlines()]


def pages() -> list[str]:
    """Every page with blocks, English before Chinese; not the changelog and the decisions."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "bench").glob("*.md")]
    named = sorted(str(path.relative_to(ROOT)) for path in found)
    return [name for name in named if list(blocks_of(name))]


def blocks_of(page: str) -> Iterator[Block]:
    note, begun, inside = "", 0, list[str]()
    kind: str | None = None
    for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if kind is not None and fence is None:
            inside.append(line)
        elif kind is not None:
            yield Block(page, begun, kind, "\n".join(inside) + "\n", note)
            kind, note, inside = None, "", []
        elif fence is not None:
            kind, begun = fence["kind"], number
        else:
            said = _NOTE.match(line)
            note = said["note"] if said else ""


def shell_blocks(page: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.kind in SHELLS]
