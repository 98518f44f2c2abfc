"""Hooks that were here before."""

from __future__ import annotations

import time

from evermirror.core.hooks.deliveries import DAY_S, UNNUMBERED_S, Deliveries, Delivery, delivery_of
from evermirror.model.forge import Forge

ONE = delivery_of(Forge.GITHUB, "72d3162e", b"{}")


def test_the_same_hook_counts_once_a_day() -> None:
    deliveries = Deliveries()
    assert not deliveries.seen(ONE, 0.0)
    deliveries.note(ONE, 0.0)
    assert deliveries.seen(ONE, DAY_S - 1)
    assert not deliveries.seen(ONE, DAY_S)


def test_another_number_another_body_or_another_forge_is_another_hook() -> None:
    others = {
        delivery_of(Forge.GITHUB, "72d3162f", b"{}"),
        delivery_of(Forge.GITHUB, "72d3162e", b"{ }"),
        delivery_of(Forge.GITEA, "72d3162e", b"{}"),
    }
    assert len(others | {ONE}) == 4


def test_without_a_number_the_same_words_count_again_soon() -> None:
    unnumbered, deliveries = delivery_of(Forge.GITEE, "", b"{}"), Deliveries()
    deliveries.note(unnumbered, 0.0)
    assert deliveries.seen(unnumbered, UNNUMBERED_S - 1)
    assert not deliveries.seen(unnumbered, UNNUMBERED_S)


def test_as_many_as_there_is_room_for_are_remembered_the_newest() -> None:
    deliveries = Deliveries(most=10)
    many = [delivery_of(Forge.GITHUB, str(n), b"") for n in range(100)]
    for n, delivery in enumerate(many):
        deliveries.note(delivery, float(n))
    assert len(deliveries) == 10
    assert [deliveries.seen(d, 100.0) for d in many] == [False] * 90 + [True] * 10


def test_what_is_older_than_a_day_takes_no_room() -> None:
    deliveries = Deliveries()
    deliveries.note(ONE, 0.0)
    deliveries.note(delivery_of(Forge.GITHUB, "new", b""), DAY_S)
    assert len(deliveries) == 1


def test_with_very_many_each_costs_as_little_as_the_first() -> None:
    deliveries = Deliveries(most=50_000)
    many = [Delivery(n.to_bytes(16, "big")) for n in range(70_000)]
    for delivery in many[:50_000]:
        deliveries.note(delivery, 0.0)
    began = time.process_time()
    for delivery in many[50_000:]:
        deliveries.note(delivery, 0.0)
    assert time.process_time() - began < 1.0  # looking for the oldest from the beginning: some seconds
