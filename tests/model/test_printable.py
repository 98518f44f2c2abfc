"""Whatever a string holds, what is printed of it does nothing to a terminal."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from evermirror.model.printable import many_lines, one_line

ANY_TEXT = st.text(st.characters(exclude_categories=[]))


@given(ANY_TEXT)
def test_one_line_is_one_line_of_visible_characters(text):
    shown = one_line(text)
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")


@given(ANY_TEXT)
def test_many_lines_keeps_line_breaks_and_tabs_only(text):
    shown = many_lines(text)
    assert {c for c in shown if unicodedata.category(c) == "Cc"} <= {"\n", "\t"}
    assert one_line(text) == shown.replace("\n", " ").replace("\t", " ")


def test_ordinary_names_stay_as_they_are():
    for name in ("github.com/owner/name", "项目/核心", "Ünïcode – naïve", "emoji 🎉"):
        assert one_line(name) == name == many_lines(name)
