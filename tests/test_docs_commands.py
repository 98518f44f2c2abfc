"""Every command block of every page is run by a test, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_blocks import Block, blocks_of, pages, shell_blocks

CHINESE = [page for page in pages() if page.endswith(".zh-CN.md")]


def test_every_block_is_run_or_says_why_not():
    found = [block for page in pages() for block in blocks_of(page)]
    assert len([block for block in found if block.kind == "sh"]) > 80
    wrong = {f"{b.page}:{b.line}": b.problem for b in found if b.problem}
    assert wrong == {}


@pytest.mark.parametrize("page", CHINESE)
def test_both_languages_have_the_same_commands(page):
    """So that those of one are run for both."""
    english = page.replace(".zh-CN.md", ".md")
    assert [b.bare for b in shell_blocks(page)] == [b.bare for b in shell_blocks(english)]


@pytest.mark.parametrize(
    ("kind", "note", "problem"),
    [
        ("sh", "", ""),
        ("sh", "not run: needs root and systemd", ""),
        ("sh", "exit 1 5: the numbers are examples", ""),
        ("sh", "run by tests/scenarios/test_guide_gitlab.py", "does not follow this page"),
        ("sh", "run by tests/scenarios/test_no_such.py", "does not follow this page"),
        ("sh", "not run:", "is not understood"),
        ("sh", "skipped", "is not understood"),
        ("bash", "", "marked as sh"),
        ("", "", "not marked as sh"),
        ("toml", "not run: needs root and systemd", "no shell block"),
    ],
)
def test_a_block_that_is_neither_run_nor_exempt_is_found(kind, note, problem):
    told = Block("docs/cli.md", 1, kind, "evermirror status\n", note).problem
    assert problem in told if problem else told == ""


def test_comments_are_found_where_they_stand_right_before_a_block(tmp_path, monkeypatch):
    text = "<!-- test: not run: needs the internet -->\n```sh\nls\n```\n\n```sh\npwd\n```\n"
    (tmp_path / "page.md").write_text(text)
    monkeypatch.setattr("tests.support.doc_blocks.ROOT", Path(tmp_path))
    first, second = blocks_of("page.md")
    assert (first.is_run, first.line, second.is_run, second.note) == (False, 2, True, "")
