"""Every number and time that a node tells is within its bounds before anybody uses it."""

from __future__ import annotations

import dataclasses
import math
import types
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.edge.rpc import bounds
from evermirror.edge.rpc.bounds import AHEAD_MAX_S, BOUNDS, CLOCK_SLACK_S, DURATION_MAX_S, BoundedPeer, within
from evermirror.edge.rpc.inprocess import pair
from evermirror.edge.rpc.transport import Identity
from evermirror.model.access import Role
from evermirror.model.activity import NO_ACTIVITY, NO_RHYTHM, Activity, Rhythm
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import (
    ApplySettings,
    Failed,
    HeldRepo,
    Kept,
    Synced,
    Verified,
    WorkerStatus,
)
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Beat, Hello, Holding, Numbered, Up
from tests.edge.rpc.frames import ups

NOW = 1_700_000_000.0
KEY = RepoKey("github.com/x/own")
DIGEST = RefsDigest("ab" * 32)
HUGE = 2**63 - 1


def status(**told):
    fields = {"polls_total": 0, "changes_total": 0, "received_bytes_total": 0, "at": NOW, **told}
    return WorkerStatus(
        repos=0,
        polls_per_second=0.0,
        running=(),
        queued_syncs=0,
        hosts=(),
        disk_free_bytes=0,
        disk_total_bytes=0,
        accepting_clones=True,
        warnings=(),
        **fields,
    )


def synced(**told):
    fields = {"commits": 3, "started_at": NOW - 9, "verified_at": NOW, "ended_at": NOW, **told}
    return Synced(
        key=KEY,
        task_ids=(),
        digest=DIGEST,
        head_commit=None,
        refs_count=1,
        changes=(),
        changes_total=0,
        received_bytes=0,
        size_bytes=0,
        first=False,
        activity=fields.pop("activity", NO_ACTIVITY),
        **fields,
    )


def failed(**told):
    fields = {"started_at": NOW, "ended_at": NOW, "next_attempt_at": None, **told}
    failure = Failure(FailureKind.NOT_FOUND, "gone")
    return Failed(KEY, (), failure, True, fields.pop("consecutive_failures", 1), **fields)


def test_what_an_honest_node_tells_stays_the_very_object_that_came():
    report = synced(activity=Activity((1.0, 2.0, 3.0), NOW, NOW - 60, Rhythm(2.0, 1j, 0j)))
    for frame in (
        Numbered(HUGE, HUGE, (report, failed(next_attempt_at=NOW + 3600))),
        Beat(status(polls_total=9)),
    ):
        assert within(frame, NOW) is frame


def test_times_far_ahead_are_taken_for_now_wherever_they_are_told():
    year_9999 = 253_402_300_799.0
    report = within(synced(started_at=year_9999, verified_at=year_9999, ended_at=year_9999), NOW)
    assert (report.started_at, report.verified_at, report.ended_at) == (NOW, NOW, NOW)
    assert within(Verified(((KEY, year_9999), (KEY, NOW - 60))), NOW).items == ((KEY, NOW), (KEY, NOW - 60))
    assert within(Kept((HeldRepo(KEY, DIGEST, year_9999),)), NOW).items[0].verified_at == NOW
    assert within(synced(ended_at=NOW + CLOCK_SLACK_S), NOW).ended_at == NOW + CLOCK_SLACK_S
    assert within(failed(next_attempt_at=year_9999), NOW).next_attempt_at == NOW + AHEAD_MAX_S


def test_times_before_1970_and_after_2106_fit_the_tables():
    told = Holding(
        (HeldRepo(KEY, DIGEST, -1.0), HeldRepo(KEY, DIGEST, 2.0**33), HeldRepo(KEY, None, None)), True
    )
    assert [held.verified_at for held in within(told, NOW).items] == [0.0, NOW, None]


def test_work_does_not_end_before_it_began_nor_takes_years():
    assert within(synced(started_at=NOW + 60), NOW).started_at == NOW
    assert within(synced(started_at=-5.0), NOW).started_at == NOW - DURATION_MAX_S


def test_counts_are_at_most_what_they_can_mean():
    assert within(synced(commits=HUGE), NOW).commits == bounds.COMMITS_MAX
    assert within(failed(consecutive_failures=2**40), NOW).consecutive_failures == bounds.FAILURES_MAX
    told = within(Beat(status(polls_total=HUGE, received_bytes_total=HUGE)), NOW).status
    assert (told.polls_total, told.received_bytes_total) == (bounds.TOTAL_MAX, bounds.DISK_BYTES_MAX)
    rhythm = Rhythm(1e300, 0j, 0j)
    assert within(synced(activity=Activity(rhythm=rhythm)), NOW).activity.rhythm == NO_RHYTHM
    limits = ApplySettings(polls_per_second=math.nan, host_rates=(("h", -1.0),), told_at=9e12)
    hello = within(Hello(3, "", "w", 1, 1, capacity=HUGE, limits=limits), NOW)
    assert hello.capacity == bounds.REPOS_MAX
    assert hello.limits == ApplySettings(polls_per_second=0.0, host_rates=(("h", 0.0),), told_at=NOW)


@given(ups, st.floats(1e9, 4e9))
def test_any_frame_is_within_its_bounds_afterwards_and_then_stays_as_it_is(frame, now):
    once = within(frame, now)
    assert type(once) is type(frame)
    assert within(once, now) is once


def _classes(hint: object) -> typing.Iterator[type]:
    """Dataclasses that a hint names, however deep."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for part in typing.get_args(hint):
        yield from _classes(part)


def _has_numbers(hint: object) -> bool:
    if hint is None:
        return False
    if hint in (int, float) or (isinstance(hint, type) and issubclass(hint, tuple)):  # Rhythm is a NamedTuple
        return True
    supertype = getattr(hint, "__supertype__", None)  # of a NewType
    return any(map(_has_numbers, typing.get_args(hint))) or (
        supertype is not None and _has_numbers(supertype)
    )


def _reachable() -> set[type]:
    found: set[type] = set()
    waiting = list(_classes(Up))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            for hint in typing.get_type_hints(one).values():
                waiting += _classes(hint)
    return found


def test_every_number_of_every_frame_from_nodes_has_its_bound_in_the_table():
    assert isinstance(Up, types.UnionType)
    missing = []
    for cls in _reachable():
        for name, hint in typing.get_type_hints(cls).items():
            leads_on = any(part in BOUNDS for part in _classes(hint))
            if (_has_numbers(hint) or leads_on) and name not in BOUNDS.get(cls, {}):
                missing.append(f"{cls.__name__}.{name}")
    assert missing == []
    assert set(BOUNDS) <= _reachable()


@pytest.mark.asyncio
async def test_frames_of_every_transport_are_bounded_when_they_are_received():
    inner, worker = pair(Identity(1, "w", Role.WORKER, trusted=False))
    peer = BoundedPeer(inner, lambda: NOW)
    await worker.send(Numbered(1, 1, (synced(commits=HUGE, ended_at=9e12),)))
    (report,) = (await peer.receive()).reports
    assert (report.commits, report.ended_at) == (bounds.COMMITS_MAX, NOW)
