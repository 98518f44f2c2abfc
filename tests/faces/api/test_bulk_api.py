"""Orders about many repos over the API: bodies, roles, refusals, also by way of an aggregator."""

from __future__ import annotations

import time

import pytest

from evermirror.errors import Conflict, NotFound
from evermirror.faces.api.app import create_app
from evermirror.faces.api.auth import Auth, AuthSettings
from evermirror.faces.api.metrics import Metrics
from evermirror.model.access import Role
from evermirror.model.bulk import BulkAction, BulkFilter, BulkWish
from evermirror.model.failure import FailureKind
from evermirror.model.repo import Priority, RepoStatus
from tests.faces.api.fake_bulk import FakeBulk
from tests.faces.pass_on.pair import Pair

BASE = "/api/bulk"
PAUSE = {"action": "pause", "filter": {}}


@pytest.fixture
def bulk(house):
    house.bulk = FakeBulk()
    return house.bulk


@pytest.fixture
async def asking(house, bulk):
    async with house.client() as client:
        yield client


async def test_what_is_given_is_what_is_ordered(asking, bulk):
    which = {
        "search": "linux", "status": "failing", "host": "h:80", "priority": "low", "worker": "w 1",
        "failure": "NOT_FOUND",
    }  # fmt: skip
    body = {"action": "priority", "filter": which, "priority": "high", "expected": 12}
    answer = await asking.post(BASE, json=body)
    assert answer.status_code == 202, answer.text
    ((wish, expected, actor),) = bulk.asked
    assert (expected, bool(actor)) == (12, True)
    assert wish == BulkWish(
        BulkAction.PRIORITY,
        filter=BulkFilter("linux", RepoStatus.FAILING, "h:80", Priority.LOW, "w 1", FailureKind.NOT_FOUND),
        priority=Priority.HIGH,
    )
    told = answer.json()
    assert (told["filter"], told["priority"]) == (which, "high")
    await asking.post(BASE, json={"action": "sync", "keys": ["b", "a", "b"]})
    assert bulk.asked[1][0] == BulkWish(BulkAction.SYNC, keys=("b", "a"))


async def test_how_far_it_is_is_told_and_one_is_stopped(asking):
    begun = (await asking.post(BASE, json=PAUSE)).json()
    assert begun == {
        "id": 1, "action": "pause", "filter": dict.fromkeys(
            ("search", "status", "host", "priority", "worker", "failure")
        ), "priority": None, "matched": 12, "done": 0, "unchanged": 0, "failed": 0, "status": "running",
        "ahead": 0, "created_at": "1970-01-01T00:00:01Z", "updated_at": "1970-01-01T00:00:02Z",
        "actor": begun["actor"], "first_error": None,
    }  # fmt: skip
    await asking.post(BASE, json={"action": "sync", "keys": ["a"]})
    second, first = (await asking.get(BASE)).json()["items"]
    assert (second["id"], second["filter"], first["id"]) == (2, None, 1)
    shown = (await asking.get(f"{BASE}/1")).json()
    assert (shown["done"], shown["unchanged"], shown["failed"]) == (3, 1, 1)
    assert shown["first_error"] == "a/b \N{REPLACEMENT CHARACTER} is paused"
    assert (await asking.post(f"{BASE}/1/stop")).json()["status"] == "stopped"


async def test_a_dry_run_counts_and_orders_nothing(asking, bulk):
    answer = await asking.post(BASE, json={**PAUSE, "dry_run": True})
    assert (answer.status_code, answer.json()) == (200, {"matched": 12})
    other = await asking.post(BASE, json={**PAUSE, "dry_run": True, "expected": 11})
    assert other.status_code == 409
    assert bulk.asked == []


async def test_refusals_are_problems_with_both_counts_and_what_to_do(asking, bulk):
    other = await asking.post(BASE, json={**PAUSE, "expected": 11})
    assert (other.status_code, other.json()["type"]) == (409, "/problems/conflict")
    assert other.json()["detail"] == "11 repos were expected, and 12 match now: nothing was done"
    bulk.matches = 10_001
    much = await asking.post(BASE, json={"action": "retry", "filter": {}})
    assert much.status_code == 422
    assert much.json()["hint"].startswith("Narrow the filter")
    bulk.explode = Conflict("20 orders wait already")
    assert (await asking.post(BASE, json=PAUSE)).status_code == 409
    bulk.explode = NotFound("'x' is not in the catalog: nothing was done")
    assert (await asking.post(BASE, json=PAUSE)).status_code == 404
    assert (await asking.get(f"{BASE}/99")).status_code == 404
    for number in ("x", "-1", "9" * 30, "1.0"):
        assert (await asking.get(f"{BASE}/{number}")).status_code == 422
        assert (await asking.post(f"{BASE}/{number}/stop")).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {}, {"action": "delete", "filter": {}}, {"action": "pause"}, {"action": "pause", "keys": []},
        {**PAUSE, "keys": ["a"]}, {**PAUSE, "keys": []}, {**PAUSE, "expected": -1},
        {**PAUSE, "expected": "12"},
        {**PAUSE, "dry_run": 1}, {**PAUSE, "priority": "high"}, {"action": "priority", "filter": {}},
        {"action": "priority", "filter": {}, "priority": "urgent"}, {**PAUSE, "unknown": 1},
        {"action": "pause", "keys": ["a\n"]}, {"action": "pause", "keys": [""]},
        {"action": "pause", "keys": "a"}, {"action": "pause", "keys": ["x"] * 1001},
        {"action": "pause", "filter": {"search": "s" * 201}}, {"action": "pause", "filter": {"status": "ok"}},
        {"action": "pause", "filter": {"failure": "EVIL"}}, {"action": "pause", "filter": {"hosts": "a"}},
        {"action": "pause", "filter": []}, [], "pause", None,
    ],
)  # fmt: skip
async def test_bad_bodies_are_refused_and_nothing_is_done(asking, bulk, body):
    answer = await asking.post(BASE, json=body)
    assert answer.status_code == 422, answer.text
    assert bulk.orders == {}


async def test_operators_order_readers_look_and_the_public_knows_nothing(house, bulk):
    house.with_tokens()
    for role, ordered, read in (
        ("admin", 202, 200), ("operator", 202, 200), ("submitter", 403, 200), ("reader", 403, 200),
        (None, 401, 401),
    ):  # fmt: skip
        async with house.client(token=f"em_{role}" if role else None) as client:
            assert (await client.post(BASE, json=PAUSE)).status_code == ordered, role
            counted = await client.post(BASE, json={**PAUSE, "dry_run": True})
            assert counted.status_code == (200 if ordered == 202 else ordered), role
            assert (await client.get(BASE)).status_code == read, role
            assert (await client.get(f"{BASE}/1")).status_code == read, role
            stopped = await client.post(f"{BASE}/1/stop")
            assert stopped.status_code == (200 if ordered == 202 else ordered), role


async def test_a_server_that_leads_nothing_says_so(house):
    async with house.client() as client:
        assert (await client.post(BASE, json=PAUSE)).status_code == 404


class BulkPair(Pair):
    def api(self):
        self.bulk = FakeBulk()
        return create_app(
            self.service,
            Auth(self.tokens, AuthSettings(tokens_required=True)),
            self.settings,
            Metrics(),
            read_pass=lambda sealed: self.read.read_pass(sealed, time.time()),
            bulk_service=self.bulk,
        )


async def test_an_aggregator_passes_all_of_it_on():
    pair = BulkPair()
    for role in Role:
        pair.tokens.add(f"em_{role.value}", role)
    async with pair.running(), pair.client("em_operator") as client, pair.client("em_reader") as reader:
        assert (await client.post(BASE, json={**PAUSE, "dry_run": True})).json() == {"matched": 12}
        begun = await client.post(BASE, json={**PAUSE, "expected": 12})
        assert (begun.status_code, begun.json()["actor"]) == (202, "operator-1")
        assert (await reader.get(BASE)).json()["items"][0]["status"] == "running"
        assert (await reader.post(f"{BASE}/1/stop")).status_code == 403
        assert (await client.post(f"{BASE}/1/stop")).json()["status"] == "stopped"
        assert (await reader.get(f"{BASE}/1")).json()["status"] == "stopped"
