"""What each new store and each new HTTP client would make anew, and always the same: made once for all tests.

a statement's SQL      found by SQLAlchemy for each engine; here engines of one kind share what was found
who is trusted         all of the system's authorities, read for each client; here one that vouches for nobody
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from evermirror.edge.store import database

STATEMENTS_MAX = 5_000  # then all are forgotten

Key = tuple[Dialect, *tuple[Any, ...]]


class Compiled:
    """For SQLAlchemy's option ``compiled_cache``: a dictionary, but engines are told apart by kind only."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Any] = {}

    def get(self, key: Key) -> Any:
        return self._found.get(self._of_kind(key))

    def __setitem__(self, key: Key, compiled: Any) -> None:
        if len(self._found) >= STATEMENTS_MAX:
            self._found.clear()
        self._found[self._of_kind(key)] = compiled

    @staticmethod
    def _of_kind(key: Key) -> tuple[Any, ...]:
        dialect, *statement = key
        return (type(dialect), dialect.statement_compiler, *statement)


@contextlib.contextmanager
def statements_compiled_once() -> Iterator[None]:
    found = Compiled()

    def create(*args: Any, **kwargs: Any) -> AsyncEngine:
        return create_async_engine(*args, **kwargs, execution_options={"compiled_cache": found})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "create_async_engine", create)
        yield


@contextlib.contextmanager
def one_authority(folder: Path) -> Iterator[None]:
    """It vouches for nobody. No test asks a server that one of the system's vouches for."""
    file = folder / "authority.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield
