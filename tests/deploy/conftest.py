from __future__ import annotations

import shutil

import pytest

from tests.conftest import _not_installed


@pytest.fixture(autouse=True, scope="session")
def prometheus_is_installed() -> None:
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        _not_installed("Prometheus", "prometheus")
