"""What axe-core finds on a page for those who cannot see it or use no mouse; ``make needs`` fetches it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Page

_FILE = Path(__file__).parents[2] / ".venv/test-needs/axe-core-4.14.0/axe.min.js"
_GRAVE = ("serious", "critical")


@cache
def _source() -> str:
    if not _FILE.exists():
        message = "axe-core is not there: make needs"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return _FILE.read_text("utf-8")


def violations(page: Page) -> list[str]:
    """The grave ones, each with where it is. The policy stays in force: debuggers stand above it."""
    if page.evaluate("() => typeof axe") == "undefined":
        page.evaluate(f"() => {{ {_source()} }}")
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{v['impact']} {v['id']}: {v['help']}\n    " + "\n    ".join(_place(node) for node in v["nodes"][:5])
        for v in found["violations"]
        if v["impact"] in _GRAVE
    ]


def _place(node: dict) -> str:
    why = "; ".join(check["message"] for check in [*node["any"], *node["all"], *node["none"]])
    return f"{' '.join(map(str, node['target']))} {node['html'][:160]} -- {why[:300]}"


def assert_accessible(page: Page) -> None:
    found = violations(page)
    assert not found, "\n".join(found)
