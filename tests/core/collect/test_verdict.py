from dataclasses import replace

import pytest

from evermirror.core.collect.decisions import Belief
from evermirror.core.collect.events import End
from evermirror.core.collect.rows import Doubt, How
from evermirror.core.collect.settings import CollectSettings
from evermirror.core.collect.verdict import backoff_s, is_open, judge, needs
from evermirror.model.kept import GuardMemory, GuardReason
from evermirror.model.repo import Mode
from tests.core.collect.small import ANNA, NOW, A, B, C, case, ended, here, holder, row, spec

SETTINGS = CollectSettings()
LAST = SETTINGS.retry_last_s


def judged(attempt, repo=None, reports=None, belief=Belief.UPSTREAM, now=NOW, later=None):
    repo = repo or row(place=NOW)
    chosen = None if attempt.end is End.LOOKED else holder(trusted=belief is Belief.HOLDER)
    held = case(repo, reports or [holder()], chosen, belief)
    return judge(attempt, held, later or repo, now, SETTINGS)


@pytest.mark.parametrize(
    ("end", "wait_s", "bar_s", "ask_anew", "next_holder", "away_s", "tell_doubt", "no_room"),
    [
        (End.MISSING, 5, 5, True, True, 0, True, False),
        (End.DIFFERS, 5, 5, True, False, 0, True, False),
        (End.CORRUPT, 5, 5, True, True, 0, False, False),
        (End.HOLDER_AWAY, 5, 5, False, True, 0, False, False),
        (End.HOLDER_REFUSED, 5, 5, True, True, 0, True, False),
        (End.UPSTREAM_AWAY, 5, 0, False, False, 5, False, False),
        (End.GUARDED, LAST, 0, False, False, 0, False, False),
        (End.NO_ROOM, 300, 0, False, False, 0, False, True),
        (End.FAILED, 5, 0, False, False, 0, False, False),
    ],
)
def test_what_each_failure_means(end, wait_s, bar_s, ask_anew, next_holder, away_s, tell_doubt, no_room):
    verdict = judged(ended(end))
    assert (verdict.wait_s, verdict.bar_s, verdict.upstream_away_s) == (wait_s, bar_s, away_s)
    assert (verdict.ask_anew, verdict.next_holder, verdict.no_room) == (ask_anew, next_holder, no_room)
    assert verdict.tell_doubt is tell_doubt
    assert verdict.row.here is None
    assert verdict.row.failures == 1


def test_every_end_has_its_line():
    told = {End.DONE, End.LOOKED, End.MISSING, End.DIFFERS, End.CORRUPT, End.HOLDER_AWAY, End.HOLDER_REFUSED}
    assert set(End) == told | {End.UPSTREAM_AWAY, End.GUARDED, End.NO_ROOM, End.FAILED}


@pytest.mark.parametrize("end", [e for e in End if e not in (End.DONE, End.LOOKED)])
def test_no_failure_changes_what_is_here(end):
    before = here(B)
    assert judged(ended(end, upstream=A, served=C), row(place=NOW, here=before)).row.here == before


@pytest.mark.parametrize(
    ("belief", "how", "verified_at"),
    [
        (Belief.UPSTREAM, How.UPSTREAM, NOW),
        (Belief.HOLDER, How.HOLDER, NOW - 100),
        (Belief.QUORUM, How.QUORUM, NOW - 100),
    ],
)
def test_a_success_is_as_good_as_who_was_believed(belief, how, verified_at):
    verdict = judged(ended(End.DONE, upstream=A, published=A, size_bytes=7), belief=belief)
    found = verdict.row.here
    assert (found.digest, found.how, found.verified_at, found.source) == (A, how, verified_at, ANNA)
    assert found.size_bytes == 7
    assert not needs(verdict.row)
    assert verdict.row.doubt is None


def test_a_change_during_the_attempt_is_still_needed_after_it():
    began, now = row(wanted=A, place=NOW), row(wanted=B, place=NOW)
    assert needs(judged(ended(End.DONE, upstream=A, published=A), began, later=now).row)
    assert not needs(judged(ended(End.DONE, upstream=B, published=B), began, later=now).row)


def test_the_same_refs_told_anew_during_the_attempt_are_fetched_once_more():
    began = row(wanted=A, at=NOW - 100, place=NOW)
    assert needs(
        judged(ended(End.DONE, upstream=B, published=B), began, later=replace(began, wanted_at=NOW)).row
    )


def test_upstream_ahead_of_the_report_settles_it_and_is_looked_at_again():
    verdict = judged(ended(End.DONE, upstream=B, published=B), row(wanted=A, place=NOW))
    assert not needs(verdict.row)
    assert verdict.row.doubt.again_at == NOW + SETTINGS.doubt_wait_s
    assert verdict.tell_doubt


def test_a_trusted_holder_that_is_behind_does_not_settle_what_is_wanted():
    repo = row(wanted=B, at=NOW - 50, place=NOW)
    behind = judged(ended(End.DONE, served=A, published=A), repo, belief=Belief.HOLDER)
    assert needs(behind.row)
    ahead = judged(
        ended(End.DONE, served=A, published=A), replace(repo, wanted_at=NOW - 200), belief=Belief.HOLDER
    )
    assert not needs(ahead.row)


def test_a_look_vouches_or_asks_for_a_fetch():
    repo = row(here=here(A, how=How.HOLDER), taken=A)
    same = judged(ended(End.LOOKED, upstream=A), repo)
    assert (same.row.here.how, same.row.here.verified_at, same.fetch) == (How.UPSTREAM, NOW, False)
    moved = judged(ended(End.LOOKED, upstream=B), repo)
    assert moved.fetch
    assert moved.row.here == repo.here
    assert not judged(ended(End.LOOKED, upstream=B), replace(repo, held_back=True)).fetch


def test_a_doubt_has_a_bounded_number_of_rounds():
    repo, rounds, now = row(here=here(B), taken=A), 0, NOW
    while True:
        verdict = judged(ended(End.LOOKED, upstream=B), repo, now=now)
        repo = verdict.row
        if repo.doubt is None:
            break
        rounds, now = rounds + 1, repo.doubt.again_at
    assert rounds == SETTINGS.doubt_rounds


def test_fetches_in_between_do_not_put_the_next_look_off():
    repo = row(place=NOW, doubt=Doubt(NOW + 100, 1, ()), here=here(B))
    assert judged(ended(End.MISSING, upstream=C, served=A), repo).row.doubt.again_at == NOW + 100


def test_what_the_guard_remembers_is_kept_for_the_next_fetch():
    memory = GuardMemory(GuardReason.EMPTIED, NOW, 1, A, 3)
    assert judged(ended(End.GUARDED, guard=memory)).row.guard == memory


def test_pauses_double_and_what_the_other_side_asks_for_counts_up_to_the_bound():
    assert [backoff_s(n, SETTINGS) for n in (1, 2, 3, 10**9)] == [5, 10, 20, LAST]
    assert judged(ended(End.UPSTREAM_AWAY, retry_after_s=120.0)).wait_s == 120
    assert judged(ended(End.UPSTREAM_AWAY, retry_after_s=1e9)).wait_s == LAST


@pytest.mark.parametrize(
    ("fields", "needed", "open_"),
    [
        ({}, True, True),
        ({"wanted": None}, False, False),
        ({"enabled": False}, False, False),
        ({"here": here(A)}, False, False),
        ({"here": here(B)}, True, True),
        ({"here": here(B), "taken": A}, False, True),
        ({"here": here(A, how=How.DOUBTED)}, True, True),
        ({"here": here(B), "taken": A, "spec": spec(mode=Mode.APPEND_ONLY)}, False, False),
        ({"here": here(B), "taken": B, "spec": spec(mode=Mode.APPEND_ONLY)}, True, True),
    ],
)
def test_what_is_needed(fields, needed, open_):
    assert (needs(row(**fields)), is_open(row(**fields))) == (needed, open_)
