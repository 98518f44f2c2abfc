"""Bodies of GitHub's hooks as its documentation has them; ``make needs`` fetches them."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[3] / ".venv/test-needs/webhooks-examples-7.6.1/index.json"


@cache
def _all() -> tuple[tuple[str, dict], ...]:
    events = json.loads(_FILE.read_text())
    return tuple((event["name"], body) for event in events for body in event["examples"])


def examples(*names: str) -> list[tuple[str, dict]]:
    """(event, body) of these events; of all without names. Skips aloud where there are none, not in CI."""
    if not _FILE.exists():
        message = "the bodies of GitHub's hooks are not there: make needs"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return [(name, body) for name, body in _all() if not names or name in names]
