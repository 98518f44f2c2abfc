"""`/api/fleet`: what is shown, who may order what, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from evermirror.faces.api.fleet_metrics import FleetCollector
from tests.faces.api.fake_fleet import FakeFleet
from tests.support.fleet import QUICK

WORKERS = "/api/fleet/workers"


async def test_the_fleet_shows_every_worker_and_the_whole(client):
    answer = await client.get("/api/fleet")
    assert answer.status_code == 200
    fleet = answer.json()
    assert fleet.keys() == {"workers", "aggregators", "totals", "rates", "alerts", "now"}
    assert [w["name"] for w in fleet["workers"]] == ["own", "wörker 2", "third"]
    worker = fleet["workers"][1]
    assert (worker["id"], worker["status"], worker["liveness"], worker["duty"]) == (
        1,
        "alive",
        "alive",
        "active",
    )
    assert (worker["weight"], worker["weight_now"], worker["capacity"]) == (2.0, 2.0, None)
    assert (worker["disk_free_bytes"], worker["disk_total_bytes"], worker["polls_per_second"]) == (
        40,
        100,
        1.5,
    )
    assert (worker["queued_syncs"], worker["running_syncs"], worker["version"]) == (3, 0, "0.1")
    assert worker["last_alive_at"].endswith("Z")
    assert sum(w["held"] for w in fleet["workers"]) == 4
    totals = fleet["totals"]
    assert (totals["repos"], totals["owned"], totals["held"], totals["no_room"]) == (4, 4, 4, 0)
    assert (totals["workers"], totals["alive"], totals["braked"], totals["warming"]) == (3, 3, False, False)
    assert fleet["alerts"] == []
    assert fleet["rates"] == []
    assert worker["limits"] is None, "nothing is split"


async def test_one_worker_has_its_history_and_what_losing_it_would_mean(client, house):
    worker = (await client.get(f"{WORKERS}/third")).json()
    assert [e["what"] for e in worker["history"]] == ["joined"]
    assert worker["losing"] == {"copies": worker["held"], "alone": worker["held"]}
    assert (await client.get(f"{WORKERS}/2")).json() == worker, "by id"
    assert (await client.get(f"{WORKERS}/w%C3%B6rker%202")).json()["id"] == 1


async def test_a_worker_is_drained_resumed_and_retired(client, house):
    drained = await client.post(f"{WORKERS}/third/drain")
    assert drained.status_code == 200
    assert (drained.json()["status"], drained.json()["wanted"]) == ("draining", 0)
    house.fleet.crew.run()
    assert (await client.get(f"{WORKERS}/third")).json()["held"] == 0, "others have it all"
    assert (await client.post(f"{WORKERS}/third/drain")).status_code == 200, "it drains already: fine"
    assert (await client.post(f"{WORKERS}/third/resume")).json()["status"] == "alive"
    retired = (await client.post(f"{WORKERS}/third/retire")).json()
    assert (retired["status"], retired["connected"], retired["held"]) == ("retired", False, 0)
    assert (await client.post(f"{WORKERS}/third/retire")).status_code == 404
    assert house.fleet.notes == [
        ("local", "worker.drained", "third"),
        ("local", "worker.resumed", "third"),
        ("local", "worker.retired", "third"),
    ]


async def test_a_quarantine_has_a_reason_and_is_an_alert(client, house):
    answer = await client.post(f"{WORKERS}/third/quarantine", json={"reason": "objects fail"})
    assert (answer.status_code, answer.json()["status"]) == (200, "quarantined")
    (alert,) = (await client.get("/api/fleet")).json()["alerts"]
    assert (alert["kind"], alert["about"]) == ("quarantine", "third")
    assert "objects fail" in alert["text"]
    refused = await client.post(f"{WORKERS}/third/drain")
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/conflict")
    assert (await client.post(f"{WORKERS}/third/resume")).status_code == 200
    assert (await client.get("/api/fleet")).json()["alerts"] == []


@pytest.mark.parametrize(
    "body",
    [None, {}, {"reason": ""}, {"reason": "x" * 201}, {"reason": "a\x00b"}, {"reason": 3}, {"why": "x"}],
)
async def test_a_quarantine_without_a_usable_reason_changes_nothing(client, house, body):
    answer = await client.post(f"{WORKERS}/third/quarantine", json=body)
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/invalid-input"
    assert house.fleet.notes == []


@pytest.mark.parametrize("order", ["drain", "resume", "retire", "quarantine"])
async def test_an_unknown_worker_is_not_found(client, house, order):
    answer = await client.post(
        f"{WORKERS}/nobody/{order}", json={"reason": "x"} if order == "quarantine" else None
    )
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
    assert "nobody" in answer.json()["detail"]
    assert answer.json()["hint"]
    assert (await client.get(f"{WORKERS}/nobody")).status_code == 404
    assert (await client.get(f"{WORKERS}/third/{order}")).status_code == 405
    assert house.fleet.notes == []


async def test_the_worker_of_the_process_itself_is_not_retired(client):
    answer = await client.post(f"{WORKERS}/own/retire")
    assert answer.status_code == 409
    assert "Drain" in answer.json()["hint"]


async def test_the_brake_is_overruled_only_while_it_is_on(client, house):
    assert (await client.post("/api/fleet/brake/overrule")).status_code == 409
    crew = house.fleet.crew
    for worker in crew.workers[1:]:
        crew.cut(worker)
    crew.tick(60)
    fleet = (await client.get("/api/fleet")).json()
    assert (fleet["totals"]["braked"], fleet["totals"]["suspect"]) == (True, 2)
    assert [a["kind"] for a in fleet["alerts"]] == ["brake"]
    crew.tick(660)
    answer = await client.post("/api/fleet/brake/overrule")
    assert answer.status_code == 200
    assert [w["status"] for w in answer.json()["workers"]] == ["alive", "down", "down"]
    assert house.fleet.notes == [("local", "fleet.brake-overruled", "fleet")]


ORDERS = [
    ("operator", f"{WORKERS}/third/drain", None),
    ("operator", f"{WORKERS}/third/resume", None),
    ("operator", "/api/fleet/brake/overrule", None),
    ("admin", f"{WORKERS}/third/retire", None),
    ("admin", f"{WORKERS}/third/quarantine", {"reason": "x"}),
]
RANKS = ("reader", "submitter", "operator", "admin")


@pytest.mark.parametrize(("needed", "path", "body"), ORDERS)
async def test_orders_need_their_role(house, needed, path, body):
    house.with_tokens()
    for role in RANKS:
        async with house.client(token=f"em_{role}") as client:
            answer = await client.post(path, json=body)
        if RANKS.index(role) < RANKS.index(needed):
            assert (answer.status_code, answer.json()["type"]) == (403, "/problems/role-too-low"), role
            assert house.fleet.notes == []
        else:
            assert answer.status_code in (200, 404, 409), (role, answer.text)


async def test_only_an_admin_ends_a_quarantine(house):
    house.with_tokens()
    async with house.client(token="em_admin") as admin, house.client(token="em_operator") as operator:
        await admin.post(f"{WORKERS}/third/quarantine", json={"reason": "x"})
        assert (await operator.post(f"{WORKERS}/third/resume")).status_code == 403
        assert (await admin.post(f"{WORKERS}/third/resume")).status_code == 200


async def test_the_public_sees_the_fleet_without_its_alerts(house):
    house.with_tokens()
    await house.fleet.quarantine("third", "a secret matter", actor="root")
    async with house.client(address="192.0.2.7") as public, house.client(token="em_reader") as reader:
        seen = await public.get("/api/fleet")
        assert seen.status_code == 200
        assert seen.json()["alerts"] == []
        assert "secret" not in (await public.get(f"{WORKERS}/third")).text
        assert len((await reader.get("/api/fleet")).json()["alerts"]) == 1
        assert (await public.post(f"{WORKERS}/third/drain")).status_code == 401


RATED = replace(
    QUICK, host_rate=0.02, polls_per_second=0.1
)  # of h, four repos can use up three times as much


@pytest.fixture
async def rated(house):
    """A client of a fleet whose rates are split."""
    house.fleet = FakeFleet(RATED)
    async with house.client() as client:
        yield client


async def test_the_fleet_shows_how_its_rates_are_split(rated):
    fleet = (await rated.get("/api/fleet")).json()
    rates = {rate["host"]: rate for rate in fleet["rates"]}
    assert rates.keys() == {"h", None}
    for host, most in (("h", 0.02), (None, 0.1)):
        assert rates[host]["rate"] == most
        assert 0 < rates[host]["in_use"] <= most
    limits = [worker["limits"] for worker in fleet["workers"]]
    assert sum(one["polls_per_second"] for one in limits) <= 0.1
    assert [(one["hosts"][0]["host"], one["hosts_total"]) for one in limits] == [("h", 1)] * 3
    assert 0 < sum(one["hosts"][0]["rate"] for one in limits) <= 0.02
    assert {one["host_rate"] for one in limits} == {0.02}
    assert all(one["told_at"].endswith("Z") for one in limits)
    assert (await rated.get(f"{WORKERS}/third")).json()["limits"] == limits[2]


async def test_the_list_shows_the_largest_shares_of_a_worker_and_the_worker_all(house, rated):
    house.fleet.crew.catalog(*(f"h{n:02}/{r}" for n in range(12) for r in range(4)))
    for _ in range(20):
        house.fleet.crew.tick(10)
        house.fleet.crew.run()
    shown = (await rated.get("/api/fleet")).json()["workers"][0]["limits"]
    assert (len(shown["hosts"]), shown["hosts_total"]) == (10, 13)
    whole = (await rated.get(f"{WORKERS}/own")).json()["limits"]
    assert len(whole["hosts"]) == 13
    assert whole["hosts"][:10] == shown["hosts"]
    shares = [share["rate"] for share in whole["hosts"]]
    assert shares == sorted(shares, reverse=True)


async def test_the_public_sees_no_host_that_is_polled(house):
    house.with_tokens()
    house.fleet = FakeFleet(RATED)
    async with house.client(address="192.0.2.7") as public, house.client(token="em_reader") as reader:
        for path in ("/api/fleet", f"{WORKERS}/third"):
            seen, known = (await public.get(path)).text, (await reader.get(path)).text
            assert '"host":"h"' not in seen
            assert '"host":"h"' in known


async def test_a_server_that_leads_no_fleet_says_so(house):
    house.fleet = None
    async with house.client() as client:
        answer = await client.get("/api/fleet")
    assert (answer.status_code, answer.json()["detail"]) == (404, "this server leads no fleet")


async def test_metrics_of_the_fleet_have_bounded_labels(house, client):
    house.metrics.registry.register(FleetCollector(house.fleet.view))
    await house.fleet.drain("third", actor="root")
    text = (await client.get("/metrics")).text
    assert "wörker" not in text
    samples = {
        (s.name, *s.labels.values()): s.value for f in text_string_to_metric_families(text) for s in f.samples
    }
    assert samples["evermirror_fleet_workers", "alive"] == 2
    assert samples["evermirror_fleet_workers", "draining"] == 1
    assert samples["evermirror_fleet_workers", "down"] == 0
    assert samples["evermirror_fleet_copies", "held"] == 4
    assert samples["evermirror_fleet_repos_owned",] == 4
    assert samples["evermirror_fleet_repos_held",] == 4
    assert samples["evermirror_fleet_repos_no_room",] == 0
    moving = samples["evermirror_fleet_repos_moving",]
    asked = samples["evermirror_fleet_copies", "asked"] + samples["evermirror_fleet_copies", "planned"]
    assert moving == asked
    assert (samples["evermirror_fleet_commands_unacknowledged",] > 0) == (asked > 0)
    assert samples["evermirror_fleet_brake",] == 0
    assert samples["evermirror_fleet_hosts_split",] == 0
    assert samples["evermirror_fleet_rate_in_use_share", "all"] == 0
    assert samples["evermirror_fleet_reports_total",] == 0


async def test_metrics_tell_how_much_of_the_rates_is_in_use_without_names(house, rated):
    house.metrics.registry.register(FleetCollector(house.fleet.view))
    text = (await rated.get("/metrics")).text
    samples = {
        (s.name, *s.labels.values()): s.value for f in text_string_to_metric_families(text) for s in f.samples
    }
    assert samples["evermirror_fleet_hosts_split",] == 1
    assert 0 < samples["evermirror_fleet_rate_in_use_share", "all"] <= 1
    assert 0 < samples["evermirror_fleet_rate_in_use_share", "busiest_host"] <= 1
    assert '"h"' not in text
