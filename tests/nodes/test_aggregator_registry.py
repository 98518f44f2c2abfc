"""Who is in the registry of aggregators, and what it asks the database for."""

from __future__ import annotations

import pytest

from evermirror.edge.store.store import Store
from evermirror.model.access import Role
from evermirror.model.worker import AggregatorRecord
from evermirror.nodes.coordinator.aggregators import registry
from evermirror.nodes.coordinator.aggregators.registry import Registry


class Counting(Registry):
    """How often it read all tokens."""

    asked = 0

    async def _revoked(self):
        self.asked += 1
        return await super()._revoked()


class Desk:
    """A registry over a store, at a time of ours."""

    def __init__(self, store):
        self.store = store
        self.now = 1000.0
        self.told = []
        self.registry = self.opened()

    def opened(self):
        return Counting(self.store, self.told.append, away_s=5.0, utc=lambda: self.now, mono=lambda: self.now)

    async def retire(self, name):
        """One comes, goes and has its token revoked; its number."""
        _, token = await self.store.create_token(name, Role.AGGREGATOR)
        await self.registry.came(AggregatorRecord(token.id, name))
        await self.registry.left(token.id)
        await self.store.revoke_token(token.id)
        self.now += 1
        await self.registry.tick()
        return token.id


@pytest.fixture
async def desk(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path / 'db'}")
    try:
        yield Desk(store)
    finally:
        await store.close()


async def test_tokens_are_not_read_for_those_that_are_retired(desk):
    token_id = await desk.retire("front")
    at_start = desk.opened()
    await at_start.load()
    for one in (desk.registry, at_start):
        asked, alive_at = one.asked, one.get(token_id).last_alive_at
        desk.now += 2 * registry.NOTE_S
        await one.tick()
        assert one.asked == asked
        assert one.get(token_id).retired
        assert one.get(token_id).last_alive_at == alive_at, "it is not there, either"


async def test_of_many_that_retired_the_oldest_are_forgotten(desk, monkeypatch):
    monkeypatch.setattr(registry, "RETIRED_MAX", 2)
    _, token = await desk.store.create_token("old", Role.AGGREGATOR)
    await desk.registry.came(AggregatorRecord(token.id, "old"))  # and stays
    for n in range(4):
        await desk.retire(f"n{n}")
    names = ["old", "n2", "n3"]
    assert [record.name for record in desk.registry.records()] == names
    assert [record.name for record in await desk.store.aggregators()] == names
