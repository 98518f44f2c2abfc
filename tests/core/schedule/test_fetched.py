"""A sync that is done with its upstream and not with itself: the host is free, the git slot is not."""

import pytest

from evermirror.core.schedule.queue import Phase
from tests.core.schedule.test_scheduler import SILENT, T0, scheduler, take_by_name


def syncing(it, *keys):
    for key in keys:
        take_by_name(it, key)
        it.changed(key, T0)
        assert it.take_sync(T0) == key


def transfers(it):
    (host,) = it.hosts(T0)
    return host.transfers


def test_its_host_has_the_connection_back_and_the_slot_stays_taken():
    it = scheduler("a/1", "a/2", "a/3", host_connections=3, slots=2)  # one is for transfers
    syncing(it, "a/1")
    take_by_name(it, "a/2")
    it.changed("a/2", T0)
    assert it.take_sync(T0) is None, "no connection"
    it.fetched("a/1", T0)
    assert (transfers(it), it.syncs_running) == (0, 1)
    assert it.take_sync(T0) == "a/2"
    it.fetched("a/2", T0)
    take_by_name(it, "a/3")
    it.changed("a/3", T0)
    assert it.take_sync(T0) is None, "no slot"
    it.synced("a/1", T0)
    assert it.take_sync(T0) == "a/3"
    it.synced("a/2", T0)
    it.synced("a/3", T0)
    assert (transfers(it), it.syncs_running) == (0, 0)


def test_it_counts_as_a_success_at_once_and_is_under_way_until_its_end():
    it = scheduler("a/1", min_gap_s=60.0)
    take_by_name(it, "a/1")
    it.failed("a/1", SILENT, T0)
    syncing(it, "a/1")
    it.fetched("a/1", T0 + 10, [T0 + 5])
    told = it.explain("a/1", T0 + 10)
    assert (told.phase, told.failures, it.memory("a/1").verified_at) == (Phase.SYNCING, 0, T0 + 10)
    pushes = told.pushes_per_day
    it.request("a/1", T0 + 11)
    assert it.take(T0 + 11) is None, "it is never under way twice"
    it.synced("a/1", T0 + 500)
    assert 0 < it.explain("a/1", T0 + 500).pushes_per_day <= pushes, "what it brought counts once"
    assert it.take(T0 + 500) == "a/1", "who asked meanwhile gets a look of their own"


@pytest.mark.parametrize("end", ["synced", "failed", "abandoned"])
def test_however_it_ends_nothing_stays_taken(end):
    it = scheduler("a/1", "a/2")
    syncing(it, "a/1")
    it.fetched("a/1", T0)
    if end == "synced":
        it.synced("a/1", T0)
    elif end == "failed":
        it.failed("a/1", SILENT, T0)
    else:
        it.remove(["a/1"], T0)
        assert it.syncs_running == 1, "it ends first"
        it.abandoned("a/1", T0)
    assert (transfers(it), it.syncs_running) == (0, 0)


def test_only_a_sync_can_be_fetched():
    it = scheduler("a/1")
    with pytest.raises(ValueError, match="waiting"):
        it.fetched("a/1", T0)
