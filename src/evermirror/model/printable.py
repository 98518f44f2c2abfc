"""Hostile strings made harmless: names, refs and git's words hold anything, and terminals obey."""

from __future__ import annotations

import unicodedata

# Cc: controls (ESC, CR, NUL …). Cf: invisible, among them the marks that reverse the direction of text.
# Cs: surrogates, which UTF-8 cannot hold. Zl, Zp: line breaks that are not \n.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_HIDDEN = "\ufffd"
LINE_CHARS_MAX = 300  # of a text that somebody else wrote and a person reads among others


def one_line(text: str) -> str:
    """``text`` on one line, with everything a terminal could obey replaced; spaces stand for line breaks."""
    return _clean(text, " ", " ")


def short_line(text: str, chars_max: int = LINE_CHARS_MAX) -> str:
    """The same of a text that may be of any length: cut, and it shows."""
    line = one_line(text[: chars_max + 1])
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def many_lines(text: str) -> str:
    """The same for a block of text (a traceback): its line breaks and tabs stay."""
    return _clean(text, "\n", "\t")


def _clean(text: str, newline: str, tab: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    keep = {"\n": newline, "\t": tab}
    return "".join(
        keep.get(c) or (_HIDDEN if unicodedata.category(c) in _HARMFUL else c)
        for c in text.replace("\r\n", "\n")
    )
