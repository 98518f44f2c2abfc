"""On which line of a TOML text each key stands. Values are tomllib's business; this only finds places.

The text was already accepted by tomllib, so the scanner need not judge it: it walks over keys, headers and
values and notes the line of every key. Keys inside an inline table share the line of the table's own key.
"""

from __future__ import annotations

import re
import tomllib

KeyPath = tuple[str, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
_STRINGS = ('"""', "'''", '"', "'")  # the longer first


def key_lines(text: str) -> dict[KeyPath, int]:
    """Line (from 1) of every key and table header; the first place wins."""
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._lines: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._at < len(self._text):
            self._skip_space()
            match self._peek():
                case "" | "\n":
                    self._at += 1
                case "#":
                    self._skip_line()
                case "[":
                    table = self._header()
                case _:
                    self._assignment(table)
        return self._lines

    def _header(self) -> KeyPath:
        line = self._line()
        self._at += 2 if self._text.startswith("[[", self._at) else 1
        path = self._key()
        self._lines.setdefault(path, line)
        self._skip_line()
        return path

    def _assignment(self, table: KeyPath) -> None:
        line = self._line()
        path = table + self._key()
        for depth in range(len(table) + 1, len(path) + 1):
            self._lines.setdefault(path[:depth], line)
        self._skip_space()
        self._at += 1  # the equals sign
        self._skip_value()

    def _key(self) -> KeyPath:
        parts = []
        while True:
            self._skip_space()
            if self._peek() in ('"', "'"):
                start = self._at
                self._skip_string()
                parts.append(str(tomllib.loads(f"k = {self._text[start : self._at]}")["k"]))
            elif bare := _BARE.match(self._text, self._at):
                parts.append(bare.group())
                self._at = bare.end()
            self._skip_space()
            if self._peek() != ".":
                return tuple(parts)
            self._at += 1

    def _skip_value(self) -> None:
        """To the end of the value: a newline outside brackets and strings."""
        depth = 0
        while (char := self._peek()) and not (char == "\n" and depth == 0):
            if char in "\"'":
                self._skip_string()
                continue
            if char == "#":
                self._skip_line()
                continue
            depth += (char in "[{") - (char in "]}")
            self._at += 1

    def _skip_string(self) -> None:
        quote = next(q for q in _STRINGS if self._text.startswith(q, self._at))
        self._at += len(quote)
        while self._at < len(self._text) and not self._text.startswith(quote, self._at):
            self._at += 2 if quote[0] == '"' and self._peek() == "\\" else 1
        self._at += len(quote)
        if len(quote) == 3:  # up to two more quotes may belong to the string's end
            while self._peek() == quote[0]:
                self._at += 1

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1
