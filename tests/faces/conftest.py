"""Whoever asks, asks a real store here and there; none of these tests is about how its tables are made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.migrated import tables_at_once


@pytest.fixture(scope="module", autouse=True)
def _tables_at_once() -> Iterator[None]:
    with tables_at_once():
        yield
