"""The registry of aggregators: kept across restarts, and told to others; on both engines alike."""

from __future__ import annotations

from evermirror.core.fleet.aggregators import came, left, retired, seen, went_down
from evermirror.model.worker import AggregatorRecord, Liveness

FRONT = AggregatorRecord(7, "front", "https://mirror.example.org", "front.example.org:8422", "1.2")


async def told(store):
    return [(e.type, e.data["name"]) for e in await store.events_before(2**62, 1000)][::-1]


async def test_it_comes_stays_away_and_comes_back_and_all_of_it_is_kept_and_told(store):
    record = came(None, FRONT, 100.0)
    await store.put_aggregator(record)
    await store.put_aggregator(record := left(record, 200.0))
    assert await told(store) == [("aggregator.joined", "front")], "it may be back in a moment"
    await store.put_aggregator(record := went_down(record, 225.0))
    await store.put_aggregator(record := came(record, FRONT, 300.0))
    (kept,) = await store.aggregators()
    assert kept == record
    assert (kept.status, kept.joined_at, kept.last_alive_at) == ("alive", 100.0, 300.0)
    assert [what for _, what in kept.history] == ["joined", "suspect", "down", "up"]
    assert await told(store) == [
        ("aggregator.joined", "front"), ("aggregator.down", "front"), ("aggregator.up", "front"),
    ]  # fmt: skip


async def test_a_short_absence_is_in_the_history_and_told_to_nobody(store):
    record = came(None, FRONT, 100.0)
    await store.put_aggregator(record)
    await store.put_aggregator(record := came(left(record, 200.0), FRONT, 201.0))
    await store.put_aggregator(seen(record, 261.0))
    assert await told(store) == [("aggregator.joined", "front")]
    (kept,) = await store.aggregators()
    assert [what for _, what in kept.history] == ["joined", "suspect", "up"]
    assert kept.last_alive_at == 261.0


async def test_one_whose_token_was_revoked_is_retired_and_stays_in_the_registry(store):
    record = went_down(left(came(None, FRONT, 100.0), 200.0), 225.0)
    await store.put_aggregator(record)
    await store.put_aggregator(retired(record, 300.0))
    await store.put_aggregator(came(None, AggregatorRecord(8, "next"), 310.0))
    assert [(r.name, r.status) for r in await store.aggregators()] == [
        ("front", "retired"),
        ("next", "alive"),
    ]
    assert [t for t, _ in await told(store)][-2:] == ["aggregator.changed", "aggregator.joined"]


async def test_some_can_be_forgotten_and_nobody_is_told(store):
    for token in (7, 8, 9):
        await store.put_aggregator(came(None, AggregatorRecord(token, f"n{token}"), 100.0))
    before = await told(store)
    await store.drop_aggregators([7, 9, 11])
    assert [record.name for record in await store.aggregators()] == ["n8"]
    assert await told(store) == before


async def test_what_it_says_of_itself_is_taken_over_whenever_it_comes(store):
    record = came(None, FRONT, 100.0)
    moved = AggregatorRecord(7, "front2", "https://new.example.org", "", "1.3")
    await store.put_aggregator(came(left(record, 150.0), moved, 200.0))
    (kept,) = await store.aggregators()
    assert (kept.name, kept.http_url, kept.relay, kept.version) == (
        "front2",
        "https://new.example.org",
        "",
        "1.3",
    )
    assert kept.liveness is Liveness.ALIVE
