"""A running all-in-one against a real upstream, started and stopped by the test itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stage import Stage
from tests.support.upstream import UpstreamServer


@pytest.fixture
def stage(tmp_path: Path, upstream: UpstreamServer) -> Stage:
    return Stage(tmp_path, upstream)
