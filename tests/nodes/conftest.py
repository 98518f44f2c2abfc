"""A running all-in-one against a real upstream, started and stopped by the test itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.migrated import tables_at_once
from tests.support.stage import Stage
from tests.support.upstream import UpstreamServer


@pytest.fixture(scope="module", autouse=True)
def _tables_at_once() -> Iterator[None]:
    with tables_at_once():
        yield


@pytest.fixture
def stage(tmp_path: Path, upstream: UpstreamServer) -> Stage:
    return Stage(tmp_path, upstream)
