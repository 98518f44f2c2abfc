"""Workers that lie, among honest ones, in a fleet of real processes: nothing false is ever served.

The liars are volunteers' workers: not trusted. Who lies about refs or objects is quarantined, and its repos
go to others; who only holds things up is left in time. The aggregator's times are short here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.aggregator_processes import AggregatedFleet, Reader
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow

HONEST = ("ann", "bob")
SETTINGS = {
    "EVERMIRROR_SCHEDULE__MIN_GAP": "500ms",
    "EVERMIRROR_SCHEDULE__MAX_GAP": "1s",
    "EVERMIRROR_FLEET__HEARTBEAT": "300ms",
    "EVERMIRROR_FLEET__GRACE": "10m",
    "EVERMIRROR_FLEET__MIN_WORKERS": str(len(HONEST)),
}
IMPATIENT = {
    "EVERMIRROR_LIMITS__NO_PROGRESS": "2s",
    "EVERMIRROR_UPSTREAMS__MAX_REPO_SIZE": "20MB",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[AggregatedFleet]:
    folder = tmp_path_factory.mktemp("lying")
    with (
        UpstreamServer(folder / "upstream") as server,
        contextlib.closing(
            AggregatedFleet(folder / "fleet", server, SETTINGS, IMPATIENT, short=True)
        ) as fleet,
    ):
        fleet.create(["honest/a", "honest/b"])
        fleet.prepare()
        fleet.lead()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(fleet.join, HONEST))
        fleet.aggregate()
        fleet.until(fleet.serves_all)
        yield fleet


def lied_about(fleet: AggregatedFleet, lie: str, weight: float = 20.0) -> list[str]:
    """New repos, some of which the liar holds."""
    fleet.lie(lie, weight)
    fleet.until(lambda: any(w["name"] == lie and w["connected"] for w in fleet.get("/api/fleet")["workers"]))
    keys = fleet.create([f"{lie}/r{n}" for n in range(4)])
    fleet.until(lambda: any(fleet.holds(lie, key) for key in keys))
    return keys


def order(fleet: AggregatedFleet, name: str, what: str, body: object = None) -> None:
    answer = fleet.coordinator.client.post(f"/api/fleet/workers/{name}/{what}", json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("digest", "reports refs as upstream's that upstream did not have"),
        ("refs", "serves other refs than it reports"),
        ("corrupt", "gave broken objects"),
    ],
)
def test_who_lies_is_found_out_and_what_it_held_is_served_from_the_honest(shared, lie, words):
    fleet = shared
    with Reader.of(fleet) as reader:
        keys = lied_about(fleet, lie)
        for key in keys:
            fleet.repos[key].commit()
        fleet.until(lambda: fleet.worker(lie)["duty"] == "quarantined")
        fleet.until(lambda: all(fleet.served(key) == fleet.repos[key].tip() for key in keys))
        fleet.until(lambda: all(any(fleet.holds(name, key) for name in HONEST) for key in keys))
        tip = fleet.repos[keys[0]].commit()
        fleet.until(lambda: fleet.served(keys[0]) == tip)
        fleet.until(fleet.serves_all)
    assert reader.false == []
    alerts = {(a["kind"], a["about"]): a["text"] for a in fleet.get("/api/fleet")["alerts"]}
    assert words in alerts["quarantine", lie]
    audited = fleet.run("audit", "--data", str(fleet.coordinator.data))
    assert "aggregator agg" in audited.stdout, audited
    assert {w["name"]: w["duty"] for w in fleet.get("/api/fleet")["workers"] if w["name"] in HONEST} == (
        dict.fromkeys(HONEST, "active")
    )
    fleet.assert_whole()
    fleet.liars[lie].kill()
    order(fleet, lie, "retire")


@pytest.mark.parametrize("lie", ["stall", "endless"])
def test_who_holds_things_up_is_left_and_others_are_served_meanwhile(shared, lie):
    fleet = shared
    with Reader.of(fleet) as reader:
        keys = lied_about(fleet, lie, weight=2.0)
        fleet.until(lambda: any("holder-away" in fleet.failed_attempts(key) for key in keys))
        tips = {key: repo.commit() for key, repo in fleet.repos.items() if not fleet.holds(lie, key)}

        def of_others() -> list[str]:
            """Without those that have moved to it by now: it still gets its share."""
            return [key for key in tips if not fleet.holds(lie, key)]

        fleet.until(lambda: of_others() and all(fleet.served(key) == tips[key] for key in of_others()))
        order(fleet, lie, "quarantine", {"reason": "it holds things up"})
        fleet.until(lambda: all(fleet.served(key) == fleet.repos[key].tip() for key in keys))
        fleet.until(fleet.serves_all)
    assert reader.false == []
    fleet.assert_whole()
    fleet.liars[lie].kill()
    order(fleet, lie, "retire")
