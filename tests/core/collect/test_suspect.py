from dataclasses import replace

import pytest

from evermirror.core.collect.decisions import Belief
from evermirror.core.collect.events import End
from evermirror.core.collect.rows import Charge, Doubt, Suspicion
from evermirror.core.collect.settings import CollectSettings
from evermirror.core.collect.suspect import operators_for, weigh
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Mode
from tests.core.collect.small import ANNA, BERT, CARL, NOW, A, B, C, case, ended, holder, row, spec

SETTINGS = CollectSettings()
SLACK = SETTINGS.clock_slack_s


def suspected(charge=Charge.STALE, fact=B, since=NOW - 1000, strikes=0, reported_at=NOW - 2000, node=ANNA):
    return Suspicion(node, charge, fact, since, strikes, reported_at)


def doubtful(*suspicions, **fields):
    return row(doubt=Doubt(NOW, 1, suspicions), **fields)


def look(repo, reports, upstream=B):
    return weigh(ended(End.LOOKED, upstream=upstream), case(repo, reports), NOW, SETTINGS)


def test_the_first_sight_of_a_difference_is_no_strike():
    weighed = look(row(), [holder(refs=A, at=NOW - 50)])
    assert weighed.suspicions == (Suspicion(ANNA, Charge.STALE, B, NOW, 0, NOW - 50),)
    assert weighed.accusations == ()


@pytest.mark.parametrize(
    ("old", "reported", "upstream", "strikes"),
    [
        (suspected(), NOW - 1000 + SLACK, B, 1),  # reported after the first look, and it stood still
        (suspected(), NOW - 1000 + SLACK - 1, B, 0),  # its clock may be that much ahead
        (suspected(reported_at=NOW - 1000 + SLACK), NOW - 1000 + SLACK, B, 0),  # the same report as before
        (suspected(), NOW - 100, C, 0),  # upstream has moved: it begins anew
        (suspected(), None, B, 0),  # nothing is known of its looks
    ],
)
def test_a_strike_needs_a_newer_report_and_an_upstream_that_stood_still(old, reported, upstream, strikes):
    weighed = look(doubtful(old), [holder(refs=A, at=reported)], upstream)
    assert [s.strikes for s in weighed.suspicions] == [strikes]
    assert weighed.accusations == ()


def test_the_second_strike_accuses_with_evidence_that_a_person_can_check():
    weighed = look(doubtful(suspected(strikes=1)), [holder(refs=A, at=NOW - 10)])
    (found,) = weighed.accusations
    assert (found.node, found.charge) == (ANNA, Charge.STALE)
    assert A in found.evidence
    assert B in found.evidence
    assert weighed.suspicions == ()


def test_who_reports_upstreams_refs_is_cleared():
    assert look(doubtful(suspected(strikes=1)), [holder(refs=B, at=NOW - 10)]).suspicions == ()


@pytest.mark.parametrize(
    "spared",
    [
        {"held_back": True},
        {"spec": spec(fallbacks=("https://mirror.example/one",))},
        {"spec": spec(mode=Mode.APPEND_ONLY)},
    ],
)
def test_a_stated_reason_is_no_lie(spared):
    weighed = look(doubtful(suspected(strikes=1), **spared), [holder(refs=A, at=NOW - 10)])
    assert weighed.accusations == ()
    assert all(s.strikes < 2 for s in weighed.suspicions)


def test_an_append_only_holder_must_have_all_that_upstream_names():
    repo = doubtful(suspected(strikes=1), spec=spec(mode=Mode.APPEND_ONLY))
    report = holder(refs=C, at=NOW - 10)
    missing = weigh(ended(End.MISSING, upstream=B, served=C), case(repo, [report], report), NOW, SETTINGS)
    assert [a.charge for a in missing.accusations] == [Charge.STALE]
    fine = weigh(ended(End.DONE, upstream=B, published=C), case(repo, [report], report), NOW, SETTINGS)
    assert fine.suspicions == ()


def test_several_operators_that_agree_are_not_accused_but_told_of():
    reports = [holder(ANNA, A, NOW - 10, operator="x"), holder(BERT, A, NOW - 10, operator="y")]
    old = [suspected(strikes=1), suspected(strikes=1, node=BERT)]
    weighed = look(doubtful(*old), reports)
    assert weighed.split
    assert weighed.accusations == ()
    alone = look(doubtful(*old), [replace(r, operator="x") for r in reports])
    assert {a.node for a in alone.accusations} == {ANNA, BERT}


def test_a_holder_that_is_not_told_now_stays_suspected_while_upstream_stands_still():
    assert look(doubtful(suspected(strikes=1)), [holder(BERT, B)]).suspicions == (suspected(strikes=1),)
    assert look(doubtful(suspected(strikes=1)), [holder(BERT, C)], C).suspicions == ()


def test_serving_other_refs_than_reported_twice_with_a_newer_report_in_between():
    report = holder(refs=A, at=NOW - 10, trusted=True)
    differs = ended(End.DIFFERS, served=B)
    first = weigh(differs, case(row(), [report], report, Belief.HOLDER), NOW, SETTINGS)
    assert [(s.charge, s.strikes) for s in first.suspicions] == [(Charge.DIFFERS, 0)]
    repo = doubtful(suspected(Charge.DIFFERS, strikes=1))
    again = weigh(differs, case(repo, [report], report, Belief.HOLDER), NOW, SETTINGS)
    assert [a.charge for a in again.accusations] == [Charge.DIFFERS]
    moved_on = weigh(ended(End.DIFFERS, served=C), case(repo, [report], report, Belief.HOLDER), NOW, SETTINGS)
    assert [s.strikes for s in moved_on.suspicions] == [0]


def test_advertising_refs_without_their_objects_again_and_again():
    report = holder(refs=B)
    missing = ended(End.MISSING, upstream=B, served=B)
    repo, strikes = row(), []
    for _ in range(3):
        weighed = weigh(missing, case(repo, [report], report), NOW, SETTINGS)
        strikes.append([s.strikes for s in weighed.suspicions])
        repo = doubtful(*weighed.suspicions)
    assert strikes == [[0], [1], []]
    assert [a.charge for a in weighed.accusations] == [Charge.LACKS]


def test_who_does_not_say_what_it_serves_stays_suspected():
    repo, report = doubtful(suspected(Charge.LACKS, strikes=1)), holder(refs=B)
    for attempt in (ended(End.MISSING, upstream=B), ended(End.HOLDER_AWAY, upstream=B)):
        weighed = weigh(attempt, case(repo, [report], report), NOW, SETTINGS)
        assert [s.strikes for s in weighed.suspicions] == [1]


def test_reporting_a_repo_and_giving_nothing_of_it_again_and_again():
    report, repo = holder(refs=B), row()
    refused = ended(End.HOLDER_REFUSED)
    strikes = []
    for minute in (0, 1, 6, 7, 12):
        weighed = weigh(refused, case(repo, [report], report), NOW + 60 * minute, SETTINGS)
        strikes.append([s.strikes for s in weighed.suspicions])
        repo = doubtful(*weighed.suspicions)
    assert strikes == [[0], [0], [1], [1], []], "some minutes lie between two strikes"
    assert [(a.node, a.charge) for a in weighed.accusations] == [(ANNA, Charge.REFUSES)]
    assert B in weighed.accusations[0].evidence


def test_who_gave_it_after_all_or_is_trusted_is_not_suspected_of_refusing():
    repo = doubtful(suspected(Charge.REFUSES, strikes=1))
    for report, attempt in (
        (holder(refs=B), ended(End.DONE, upstream=B, served=B)),
        (replace(holder(refs=B), trusted=True), ended(End.HOLDER_REFUSED)),
    ):
        weighed = weigh(attempt, case(repo if not report.trusted else row(), [report], report), NOW, SETTINGS)
        assert (weighed.suspicions, weighed.accusations) == ((), ())


def test_broken_objects_accuse_at_once_and_only_who_gave_them():
    report, other = holder(refs=B), holder(CARL, A)
    failure = Failure(FailureKind.UNKNOWN, "object corrupt or missing")
    attempt = ended(End.CORRUPT, upstream=B, failure=failure)
    weighed = weigh(attempt, case(row(), [report, other], report), NOW, SETTINGS)
    assert [(a.node, a.charge) for a in weighed.accusations] == [(ANNA, Charge.CORRUPT)]
    assert "object corrupt" in weighed.accusations[0].evidence


def test_unnamed_operators_count_as_one():
    nameless = tuple(replace(holder(n, A), operator="") for n in (ANNA, BERT, CARL))
    assert operators_for(A, nameless) == 1
    assert operators_for(A[:16], (holder(ANNA, A), holder(BERT, A), holder(CARL, B))) == 2
    assert operators_for(None, nameless) == 0
