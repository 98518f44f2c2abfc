"""The Grafana dashboard that we ship, as its tests read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).parents[2] / "deploy" / "grafana" / "evermirror.json"
# What Grafana puts in for its variables.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}
_METRIC = re.compile(r"\b(?:evermirror|pull)_[a-z_]+\b|\bup\b")


def load() -> dict:
    return json.loads(FILE.read_text("utf-8"))


def panels() -> list[dict]:
    """Without the rows' titles."""
    return [panel for panel in load()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Titles of panels, and what they ask, as Prometheus gets it."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], filled_in(target["expr"])


def filled_in(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def metrics_in(expression: str) -> set[str]:
    return set(_METRIC.findall(re.sub(r'"[^"]*"', "", expression)))
