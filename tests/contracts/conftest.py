"""A store on each of the two engines, with a clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from evermirror.edge.store.store import Store
from tests.support.migrated import tables_at_once
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path) -> str:
    """Of an empty database; who asks for ``store`` gets one with tables, where these take long to make."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    with_tables = "store" in request.fixturenames
    return str(request.getfixturevalue("postgres_tables" if with_tables else "postgres_database"))


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """A database that the migrations' steps brought up to date; it is only copied."""
    url = postgres_server.create_database()

    async def make() -> None:
        store = await Store.open(url, clock=Clock())
        await store.close()

    asyncio.run(make())
    return url


@pytest.fixture
def postgres_tables(postgres_server: PostgresServer, postgres_template: str) -> Iterator[str]:
    url = postgres_server.create_database(postgres_template)
    yield url
    postgres_server.drop_database(url)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(url, clock) -> AsyncIterator[Store]:
    with tables_at_once():
        store = await Store.open(url, clock=clock)
    yield store
    await store.close()
