"""Accusations are believed within bounds, one after the other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from evermirror.errors import Unavailable
from evermirror.model.wire import Accused
from evermirror.model.worker import Duty
from evermirror.nodes.coordinator.aggregators import accusing
from evermirror.nodes.coordinator.aggregators.accusing import Accusations, Looks

KEY = "example.org/team/a"


class Admin:
    """A fleet in memory; ``orders`` are those that were carried out."""

    def __init__(self, workers):
        self.workers = [
            SimpleNamespace(node=f"worker/{n}-7", name=f"w{n}", duty=Duty.ACTIVE) for n in range(workers)
        ]
        self.orders = []
        self.failing = False

    def view(self):
        return SimpleNamespace(workers=self.workers)

    look = view

    async def quarantine(self, name, reason, *, actor, detail=None):
        await asyncio.sleep(0)
        worker = next(w for w in self.workers if w.name == name)
        worker.duty = Duty.QUARANTINED
        self.orders.append((name, reason, actor, detail))
        if self.failing:
            raise Unavailable("the database is slow")


class House:
    def __init__(self, workers):
        self.admin = Admin(workers)
        self.alerts = []
        self.now = 1000.0
        self.it = Accusations(self.admin, self.alerts.append, lambda: self.now)

    async def accuse(self, worker, by="aggregator/1", reason="lies"):
        name = by.replace("aggregator/", "front")
        await self.it.heard(by, name, Accused(f"worker/{worker}-7", KEY, reason, "e" * 5000))

    @property
    def quarantined(self):
        return [name for name, *_ in self.admin.orders]


async def test_an_accusation_is_believed_with_its_reason_and_evidence_cut():
    house = House(8)
    await house.accuse(3, reason="r" * 1000)
    ((name, reason, actor, detail),) = house.admin.orders
    assert (name, actor) == ("w3", "aggregator front1")
    assert reason == "r" * accusing.REASON_MAX + f" ({KEY})"
    assert detail == {"repo": KEY, "evidence": "e" * accusing.EVIDENCE_MAX}
    assert not house.alerts


async def test_who_has_the_number_of_one_that_retired_does_not_answer_for_it():
    house = House(8)
    house.admin.workers[3].node = "worker/3-8"
    await house.accuse(3)
    assert house.quarantined == []
    assert not house.alerts


async def test_one_aggregator_is_believed_about_three_in_an_hour():
    house = House(100)
    for worker in range(5):
        await house.accuse(worker)
    assert house.quarantined == ["w0", "w1", "w2"]
    (alert,) = house.alerts
    assert "w3" in alert.text
    assert not alert.over
    assert (alert.facts["worker"], alert.facts["lately"]) == ("w3", "3")
    assert alert.facts["reason"] in alert.text
    await house.accuse(50, by="aggregator/2")
    assert house.quarantined[-1] == "w50"
    house.now += accusing.WITHIN_S
    await house.accuse(4)
    assert house.quarantined[-1] == "w4"


@pytest.mark.parametrize(("workers", "believed"), [(1, 1), (2, 1), (7, 1), (8, 2), (12, 3), (40, 10)])
async def test_no_more_than_a_quarter_of_the_fleet_is_quarantined(workers, believed):
    house = House(workers)
    for worker in range(workers):
        await house.accuse(worker, by=f"aggregator/{worker}")
    assert len(house.quarantined) == believed
    told = {(alert.facts["already"], alert.facts["workers"]) for alert in house.alerts}
    assert told == ({(str(believed), str(workers))} if workers > believed else set())


async def test_the_bound_holds_also_for_accusations_at_the_same_moment():
    house = House(100)
    await asyncio.gather(*(house.accuse(worker) for worker in range(10)))
    assert len(house.quarantined) == 3


async def test_the_same_again_changes_and_costs_nothing():
    house = House(100)
    for _ in range(10):
        await house.accuse(1)
    assert house.quarantined == ["w1"]
    await house.accuse(2)
    await house.accuse(3)
    assert house.quarantined == ["w1", "w2", "w3"]


async def test_the_alert_ends_when_it_is_calm_again():
    house = House(1)
    await house.accuse(0)
    house.admin.workers.append(SimpleNamespace(node="worker/1-7", name="w1", duty=Duty.ACTIVE))
    await house.accuse(1)
    await house.accuse(1)
    house.it.tick()
    assert [a.over for a in house.alerts] == [False]
    house.now += accusing.WITHIN_S
    house.it.tick()
    house.it.tick()
    assert [a.over for a in house.alerts] == [False, True]


async def test_a_slow_database_does_not_end_the_connection_and_each_counts():
    house = House(100)
    house.admin.failing = True
    for worker in range(4):
        await house.accuse(worker)
    assert house.quarantined == ["w0", "w1", "w2"]
    assert [alert.facts["lately"] for alert in house.alerts] == ["3"]


def test_a_repo_is_looked_at_once_a_minute():
    now = [1000.0]
    looks = Looks(lambda: now[0])
    assert looks.due(["a", "b", "a"]) == ["a", "b"]
    now[0] += 59
    assert looks.due(["a", "c"]) == ["c"]
    now[0] += 1
    assert looks.due(["a", "c"]) == ["a"]


def test_looks_are_bounded_and_go_on_later(monkeypatch):
    monkeypatch.setattr(accusing, "LOOKED_MAX", 3)
    now = [1000.0]
    looks = Looks(lambda: now[0])
    assert looks.due(list("abcde")) == list("abc")
    now[0] += 60
    assert looks.due(list("de")) == list("de")
    assert looks.due(list("f")) == list("f")
    assert looks.due(list("g")) == []
