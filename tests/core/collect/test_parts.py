"""The small parts: audits, eviction, scans, clients, settings, what a change means."""

import pytest

from evermirror.core.collect.audit import Audits
from evermirror.core.collect.clients import Clients
from evermirror.core.collect.events import DiskTold, PendingLoaded, Unused
from evermirror.core.collect.evict import to_evict
from evermirror.core.collect.rows import Charge, Doubt, How, Suspicion, agree
from evermirror.core.collect.scan import LOST_S, Scan
from evermirror.core.collect.settings import CollectSettings
from evermirror.core.collect.telling import cleared, heard, told
from evermirror.core.collect.verdict import needs
from evermirror.model.refs import RefsDigest
from tests.core.collect.small import ANNA, BERT, NOW, A, B, change, here, holder, row


def test_digests_agree_by_what_both_sides_know_of_them_and_not_by_less_than_8_bytes():
    assert agree(A, A)
    assert agree(A, RefsDigest(A[:16]))
    assert not agree(A, B)
    assert not agree(A, RefsDigest(A[:15]))
    assert not agree(None, None)


def test_audits_come_evenly_one_at_a_time():
    audits, picked = Audits(6.0), []
    for second in range(61):
        if audits.due(NOW + second):
            picked.append(second)
            audits.picked(NOW + second)
    assert picked == [10, 20, 30, 40, 50, 60]


def test_an_audit_that_is_not_answered_is_asked_for_again_later_and_none_means_none():
    audits = Audits(6.0)
    assert [s for s in range(200) if audits.due(NOW + s)] == [10, 70, 130, 190]
    assert not any(Audits(0.0).due(NOW + s) for s in range(200))


def test_a_clock_that_went_back_does_not_stop_audits():
    audits = Audits(6.0)
    audits.due(NOW)
    assert audits.due(NOW - 1e6)


def disk(used, *names, read=(), size=100):
    items = tuple(Unused(row(n, here=here(size=size)), n in read) for n in names)
    return DiskTold(used, 1_000, items)


def evicted(told_, leaving=0, busy=()):
    chosen = to_evict(
        told_, leaving, lambda key: key.rsplit("/", 1)[1] in busy, CollectSettings(evict_batch=3)
    )
    return [r.key.rsplit("/", 1)[1] for r in chosen]


def test_the_least_used_leave_until_the_lower_mark_and_nothing_that_is_in_use():
    assert evicted(disk(0.84, "a", "b")) == []
    assert evicted(disk(0.95, "a", "b", "c")) == ["a", "b"]
    assert evicted(disk(0.95, "a", "b", "c", "d", read={"a"}), busy={"b"}) == ["c", "d"]
    assert evicted(disk(0.95, "a", "b", "c"), leaving=100) == ["a"]
    assert evicted(disk(1.0, "a", "b", "c", "d", "e", size=10)) == ["a", "b", "c"]


def test_a_scan_reads_on_where_it_was_and_begins_anew_only_for_what_was_passed_over():
    settings = CollectSettings(queue_max=100, load_batch=10)
    scan = Scan(True, settings)
    assert (scan.wish(50, NOW).after, scan.wish(50, NOW)) == (None, None)
    scan.loaded(PendingLoaded(True, (row("a", place=5.0),), last=False), NOW)
    assert scan.wish(25, NOW) is None  # half of the seats are taken
    assert scan.wish(26, NOW).after == (5.0, row("a").key)
    scan.loaded(PendingLoaded(True, (), last=True), NOW)
    assert scan.wish(50, NOW + 1e6) is None
    scan.left_some()
    assert scan.wish(50, NOW + 1) is None
    assert scan.wish(50, NOW + settings.rescan_s).after is None


def test_a_scan_whose_answer_is_lost_asks_again():
    scan = Scan(False, CollectSettings())
    first = scan.wish(10_000, NOW)
    assert scan.wish(10_000, NOW + LOST_S) == first
    assert scan.wish(10_000, NOW - 1e6) == first


def test_clients_of_one_repo_wait_together_for_a_bounded_time():
    clients = Clients(2, 30.0)
    one, two, three = (row(n).key for n in ("one", "two", "three"))
    assert [clients.add(k, NOW + i) for i, k in enumerate((one, two, three, one))] == [
        True,
        True,
        False,
        True,
    ]
    assert (clients.until(one), clients.until(three)) == (NOW + 30, None)
    assert clients.overdue(NOW + 29) == []
    assert clients.overdue(NOW + 30) == [one]
    assert clients.overdue(NOW - 1_000) == [one, two]
    assert (clients.answered(one), clients.answered(one), len(clients)) == (True, False, 1)


@pytest.mark.parametrize(
    "wrong",
    [{"doubt_wait_s": 300.0}, {"disk_low": 0.9}, {"fetches": 0}, {"quorum": 0}, {"queue_max": 0}],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ValueError, match=r"must|at least"):
        CollectSettings(**wrong)


def test_a_change_keeps_what_is_here_and_ends_the_pause_only_where_refs_are_new():
    old = row(here=here(), place=5.0, failures=3, retry_at=NOW + 50)
    same, moved = told(old, change(refs=A, seq=2)), told(old, change(refs=B, seq=3))
    assert (same.here, same.place, same.retry_at, same.seq) == (old.here, 5.0, NOW + 50, 2)
    assert (moved.wanted, moved.retry_at, moved.failures) == (B, 0.0, 3)


def test_refs_that_come_back_are_wanted_again():
    old = row(wanted=A, here=here(B), taken=A)
    assert not needs(old)
    assert needs(told(told(old, change(refs=B, seq=2)), change(refs=A, seq=3)))


def test_a_trusted_worker_vouches_for_what_is_here():
    repo = row(here=here(A, at=NOW - 500))
    assert heard(repo, (holder(refs=A, at=NOW - 5, trusted=True),)).here.verified_at == NOW - 5
    assert heard(repo, (holder(refs=A, at=NOW - 5),)).here.verified_at == NOW - 500
    assert heard(repo, (holder(refs=B, at=NOW - 5, trusted=True),)).here.verified_at == NOW - 500
    doubted = row(here=here(A, how=How.DOUBTED))
    assert heard(doubted, (holder(refs=A, at=NOW - 5, trusted=True),)).here == doubted.here
    assert not heard(repo, (holder(trusted=True),)).untrusted
    assert heard(repo, ()).untrusted


def test_a_report_that_fits_by_now_clears_its_holder():
    anna, bert = (Suspicion(n, Charge.STALE, B, NOW) for n in (ANNA, BERT))
    repo = row(wanted=B, here=here(B), doubt=Doubt(NOW, 1, (anna, bert)))
    assert cleared(repo, (holder(ANNA, B),)).doubt.suspicions == (bert,)
    assert cleared(repo, (holder(ANNA, B), holder(BERT, B))).doubt is None
    assert cleared(repo, (holder(ANNA, A),)) == repo
