"""What workers are told of repos, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import math
import random

import pytest

from evermirror.edge.store.specs import AssignedSpec
from evermirror.edge.store.writes import RepoSynced
from evermirror.model.activity import Activity, Rhythm
from evermirror.model.repo import Host, Mode, Priority, RepoRecord, RepoSpec
from tests.support.known_repos import known_repos

A, B, C = "example.org/team/a", "example.org/team/b", "例え.jp/ü"


def repo(key=A, **kwargs):
    spec_names = ("url", "priority", "interval_s", "mode", "private", "credential", "fallbacks", "fsck_allow")
    spec = {n: kwargs.pop(n) for n in spec_names if n in kwargs}
    return RepoRecord(RepoSpec(**{"key": key, "url": f"https://{key}", "host": Host("h")} | spec), **kwargs)


def synced(key, activity):
    return RepoSynced(key, "ab" * 32, None, 1, 1, 950.0, 951.0, activity)


async def test_specs_come_in_the_order_asked_and_only_of_the_catalog(store):
    full = repo(
        A,
        priority=Priority.HIGH,
        interval_s=600.0,
        mode=Mode.APPEND_ONLY,
        private=True,
        credential="corp",
        fallbacks=("https://other.example/a",),
        fsck_allow=("hasDotgit", "gitmodulesPath"),
    )
    await store.upsert_repos([full, repo(B, enabled=False), repo(C), repo("left.org/x")])
    await store.remove_repos(["left.org/x"], 5.0)
    found = await store.specs_of([C, "left.org/x", B, "never.seen/x", "bad\0\ud800", A, C])
    assert [f.spec.key for f in found] == [C, B, A]
    assert found[2].spec == full.spec
    assert [f.enabled for f in found] == [True, False, True]
    assert found[0].activity == Activity()
    assert await store.specs_of([]) == []


async def test_a_thousand_specs_are_one_question_and_more_are_a_mistake(store):
    keys = [f"example.org/'{i}'" for i in range(1000)]
    await store.upsert_repos(repo(key) for key in keys)
    assert [f.spec.key for f in await store.specs_of(keys[::-1])] == keys[::-1]
    with pytest.raises(ValueError, match="1001"):
        await store.specs_of([*keys, A])


async def test_what_is_told_is_what_is_kept_to_the_last_digit(store):
    """The other way to read them has a column for each value."""
    chance = random.Random(7)

    def number():
        return chance.random() * 10 ** chance.uniform(-12, 9)

    keys = [f"example.org/{i}" for i in range(500)]
    odd = {"url": 'https://"\\\u2028\n', "fallbacks": ('https://"', "https://é\n"), "credential": "\t"}
    await store.upsert_repos(repo(key, interval_s=number(), **odd) for key in keys)
    waves = Rhythm(3.0, 1.5 - 0.25j, -0.5 + 2j)
    for key in keys[::2]:
        activity = Activity((number(), number(), number()), number(), number())
        if chance.random() < 0.5:
            activity = Activity(activity.counts, activity.as_of, activity.last_push_at, waves)
        await store.apply([synced(key, activity)])
    kept = {k.spec.key: k for k in await known_repos(store)}
    found = await store.specs_of(keys)
    assert found == [AssignedSpec(kept[key].spec, kept[key].activity, True) for key in keys]
    assert sum(f.activity != Activity() for f in found) == 250


@pytest.mark.parametrize("counts", [(math.ulp(0.0), 0.0, 0.0), (0.0, 0.0, 1e308), (0.0, 1 / 3, 0.0)])
async def test_nothing_of_a_count_is_lost(store, counts):
    await store.upsert_repos([repo(A, interval_s=0.1)])
    activity = Activity(counts, math.nextafter(1.7e9, 0.0), 0.0)
    await store.apply([synced(A, activity)])
    (found,) = await store.specs_of([A])
    assert (found.activity, found.spec.interval_s) == (activity, 0.1)
