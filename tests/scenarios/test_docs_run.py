"""The commands of README and docs, run as they stand, by a shell, against real processes.

What a page marks otherwise is in tests/support/doc_blocks.py; the world they run in in doc_world.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.doc_blocks import pages, shell_blocks
from tests.support.doc_world import World, world

# Each command is bounded by itself; the longest page has about 140 of them, a second or two each.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RUN = [
    page for page in pages() if not page.endswith(".zh-CN.md") and any(b.is_run for b in shell_blocks(page))
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("docs")) as made:
        yield made


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_do_what_it_says(page: str, made: World) -> None:
    blocks = [block for block in shell_blocks(page) if block.is_run]
    made.begin("".join(block.text for block in blocks))
    try:
        wrong = [told for block in blocks for told in made.run(block)]
    finally:
        made.end()
    assert not wrong, "\n\n".join(wrong)
