"""Failures that are our own and no target's; and how long a person's word to overwrite a target holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest

from evermirror.core.pull.draft import Draft
from evermirror.core.pull.hearing import hear, judged
from evermirror.core.pull.outcome import Moment, alerts_between, conclude
from evermirror.core.pull.pace import Pace
from evermirror.core.pull.silence import SILENT_TARGETS, Silence
from evermirror.core.pull.sources import Sources
from evermirror.model.failure import CREDENTIAL, OURS, FailureKind
from evermirror.model.pull import Strategy
from tests.core.pull.small import (
    FORGE,
    HOUR,
    MINUTE,
    NOW,
    SETTINGS,
    ended,
    failure,
    key,
    project,
    pushed,
    target,
)

K = FailureKind
LOCKED_OUT = failure(K.AUTH_FAILED, context={OURS: CREDENTIAL})


def after(before, failed, *, silence=None, **push):
    """All its targets failed alike."""
    pushes = [replace(pushed(t.id, **push), failure=failed) for t in before.targets]
    end = replace(ended(kind=failed.kind, pushes=pushes), failure=failed)
    return conclude(before, end, Moment(NOW, HOUR), silence or Silence(), SETTINGS)


def told(before, found):
    return [("-" if a.over else "") + a.kind for a in alerts_between(before, found, SETTINGS)]


@pytest.mark.parametrize(
    "failed",
    [
        failure(K.NETWORK_TIMEOUT, context={OURS: "contact"}),
        failure(K.UNKNOWN, context={OURS: "busy"}),
        failure(K.UNKNOWN, corrupt=True),
        LOCKED_OUT,
    ],
)
def test_our_own_trouble_counts_against_no_target_and_is_over_soon(failed):
    found = project(targets=(target(),), next_sync_at=NOW + HOUR)
    for _ in range(SETTINGS.pause_after + 2):
        found = after(found, failed)
        (one,) = found.targets
        assert (found.failures, one.failures, one.paused, found.config.enabled) == (0, 1, "", True)
        assert one.not_before == found.next_sync_at == NOW + 5 * MINUTE
    assert one.last_failure == failed


def test_our_own_trouble_says_nothing_about_the_targets_host():
    silence = Silence()
    found = project(targets=tuple(target(n) for n in range(1, SILENT_TARGETS + 1)))
    after(found, failure(K.NETWORK_TIMEOUT, context={OURS: "contact"}), silence=silence)
    one = project("other", targets=(target(),))
    assert after(one, failure(K.NETWORK_TIMEOUT), silence=silence).failures == 1, "that host is not silent"
    after(found, failure(K.NETWORK_TIMEOUT), silence=silence)
    after(one, LOCKED_OUT, silence=silence)
    assert after(one, failure(K.NETWORK_TIMEOUT), silence=silence).failures == 0, "nobody has heard it"


def test_people_are_told_of_a_credential_that_a_worker_lacks():
    well = project(targets=(target(),))
    kept_out = after(well, LOCKED_OUT)
    assert told(well, kept_out) == ["target-credential"]
    assert told(kept_out, after(kept_out, LOCKED_OUT)) == []
    assert told(kept_out, well) == ["-target-credential"]
    assert told(kept_out, replace(kept_out, targets=())) == ["-target-credential"]
    refused = after(kept_out, failure(K.AUTH_FAILED))
    assert told(kept_out, refused) == ["project-paused", "target-paused", "-target-credential"]


def test_a_source_whose_credential_a_worker_lacks_is_tried_again_before_it_is_paused():
    found, minutes = project(targets=(target(),), source_credential="x"), []
    for _ in range(SETTINGS.pause_after):
        assert found.config.enabled
        before, end = found, replace(ended(kind=K.AUTH_FAILED), failure=LOCKED_OUT)
        found = conclude(before, end, Moment(NOW, HOUR), Silence(), SETTINGS)
        minutes.append((found.next_sync_at - NOW) / MINUTE)
    assert minutes == [5, 10, 20, 60, 60]
    assert found.paused.startswith("it failed 5 times in a row")


# A person's word


@pytest.mark.parametrize("kind", [K.NETWORK_TIMEOUT, K.UNKNOWN, K.RATE_LIMITED, K.DISK_FULL])
@pytest.mark.parametrize("changed", [False, True])
def test_a_persons_word_is_used_up_by_a_push_that_changed_something(kind, changed):
    found = after(project(targets=(target(adopt=True),)), failure(kind), put_total=int(changed))
    assert found.targets[0].adopt is not changed


def test_a_damaged_mirror_does_not_give_a_persons_word_back():
    broken = failure(K.UNKNOWN, corrupt=True)
    found = project(targets=(target(adopt=True),))
    assert after(found, broken).targets[0].adopt
    assert not after(found, broken, deleted_total=1).targets[0].adopt


def test_a_persons_word_ends_where_the_target_is_paused():
    found = project(targets=(target(adopt=True),))
    for _ in range(SETTINGS.pause_after):
        assert found.targets[0].adopt
        found = after(found, failure(K.UNKNOWN))
    assert found.targets[0].paused
    assert not found.targets[0].adopt


@pytest.mark.parametrize("failed", [LOCKED_OUT, failure(K.NETWORK_TIMEOUT, context={OURS: "contact"})])
def test_a_source_that_was_not_asked_has_neither_answered_nor_failed(failed):
    sources, draft = Sources(), Draft()
    pace = Pace(Strategy(), UTC, SETTINGS)
    end = replace(ended(kind=failed.kind), failure=failed, look_s=0.5)
    sources.failed(FORGE, NOW, asked=False)
    hear(FORGE, end, NOW + 1, sources, pace, draft)
    assert sources.closed_until(FORGE, NOW + 1) is not None, "it is still closed"
    other = Sources()
    for n in range(3):
        judged_end, excused = judged(replace(end, key=key(f"p{n}")), FORGE, NOW, other)
        assert (judged_end.counted, excused) == (True, {})
        hear(FORGE, judged_end, NOW, other, pace, draft)
    assert other.closed_until(FORGE, NOW) is None
    assert draft.decision().alerts == ()
