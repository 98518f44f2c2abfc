"""When repos are looked at that hooks tell of, against the rules told once more in the plainest way."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.hooks.spacing import AGAIN_GAP_S, PACE_RATE, QUIET_S, UNHEARD_S, Spacing, Verdict
from evermirror.model.repo import RepoKey

KEY = RepoKey("github.com/a/b")
NOW, LATER, MERGED = Verdict.NOW, Verdict.LATER, Verdict.MERGED


def test_the_first_hook_passes_and_those_of_the_next_second_share_one_look() -> None:
    spacing = Spacing()
    verdicts = [spacing.hook(KEY, 0.004 * n) for n in range(200)]
    assert verdicts == [NOW, LATER, *[MERGED] * 198]
    assert spacing.next_wake() == 1.0
    assert spacing.due(0.99) == ()
    assert spacing.due(1.0) == (KEY,)
    assert spacing.due(1.0) == ()
    assert spacing.next_wake() is None


def test_a_look_that_found_the_change_is_not_repeated() -> None:
    spacing = Spacing()
    spacing.hook(KEY, 0.0)
    spacing.look_began(KEY, 0.1)
    spacing.look_ended(KEY, True, 0.2)
    assert spacing.next_wake() is None


def test_a_burst_whose_first_look_found_the_change_has_one_look_after_it_and_no_more() -> None:
    spacing = Spacing()
    for n in range(50):
        spacing.hook(KEY, 0.001 * n)
    spacing.look_began(KEY, 0.1)
    spacing.look_ended(KEY, True, 0.2)
    assert spacing.due(1.0) == (KEY,)
    spacing.look_began(KEY, 1.1)
    spacing.look_ended(KEY, False, 1.2)
    assert spacing.next_wake() is None


def test_a_look_that_found_nothing_is_repeated_after_3_and_15_seconds() -> None:
    spacing = Spacing()
    spacing.hook(KEY, 0.0)
    spacing.look_ended(KEY, False, 0.5)
    assert spacing.next_wake() == 3.5
    assert spacing.due(3.5) == (KEY,)
    spacing.look_ended(KEY, False, 3.6)
    assert spacing.next_wake() == 15.6
    assert spacing.due(15.6) == (KEY,)
    spacing.look_ended(KEY, False, 16.0)
    assert spacing.next_wake() is None


def test_looks_again_are_bounded_over_all_repos() -> None:
    spacing = Spacing()
    keys = [RepoKey(f"h/{n}") for n in range(2000)]
    for key in keys:
        spacing.hook(key, 0.0)
        spacing.look_ended(key, False, 0.0)
    assert 190 <= len(spacing.due(3.0)) <= 200
    for key in keys:
        spacing.hook(key, 10.0)
        spacing.look_ended(key, False, 10.0)
    assert 190 <= len(spacing.due(13.0)) <= 200


def test_a_change_that_anybody_finds_ends_the_looks_again() -> None:
    spacing = Spacing()
    spacing.hook(KEY, 0.0)
    spacing.look_ended(KEY, False, 0.5)
    spacing.look_ended(KEY, True, 2.0)  # a poll's
    assert spacing.next_wake() is None
    assert spacing.due(100.0) == ()


def test_a_flood_that_tells_nothing_costs_a_look_a_minute() -> None:
    spacing, looks = Spacing(), list[float]()
    for tick in range(36_000):  # an hour, ten hooks a second
        now = tick / 10
        if spacing.hook(KEY, now) is NOW:
            looks.append(now)
            spacing.look_ended(KEY, False, now)
        for _ in spacing.due(now):
            looks.append(now)
            spacing.look_ended(KEY, False, now)
    assert len(looks) <= 66
    assert min(b - a for a, b in itertools.pairwise(looks[8:])) >= 60.0


def test_a_change_ends_the_restraint() -> None:
    spacing = Spacing()
    for n in range(8):
        assert spacing.hook(KEY, 61.0 * n) is NOW
        spacing.look_ended(KEY, False, 61.0 * n)
    assert spacing.hook(KEY, 430.0) is LATER
    assert spacing.next_wake() == 427.0 + 60.0
    spacing.look_ended(KEY, True, 440.0)  # a poll's
    assert spacing.due(440.0) == (KEY,)
    assert spacing.hook(KEY, 440.5) is LATER
    assert spacing.next_wake() == 441.0


def test_a_look_that_waits_for_a_worker_is_enough_for_all_hooks_meanwhile() -> None:
    spacing = Spacing()
    assert spacing.hook(KEY, 0.0) is NOW
    assert {spacing.hook(KEY, 2.0 + n) for n in range(1000)} == {MERGED}
    spacing.look_began(KEY, 2000.0)
    assert spacing.next_wake() is None


def test_hooks_that_go_on_for_a_repo_without_a_worker_lead_to_two_looks() -> None:
    spacing, looks = Spacing(), 0
    for tick in range(600):
        looks += spacing.hook(KEY, tick / 10) is not MERGED
        spacing.due(tick / 10)
    assert looks == 2


def test_a_hook_so_close_before_the_beginning_that_it_may_have_come_after_it_has_a_look_of_its_own() -> None:
    spacing = Spacing()
    spacing.hook(KEY, 0.0)
    assert spacing.hook(KEY, 5.0) is MERGED
    spacing.look_began(KEY, 5.3)
    assert spacing.next_wake() == 6.3


def test_a_look_that_nobody_hears_of_any_more_holds_up_nobody_for_ever() -> None:
    spacing = Spacing()
    spacing.hook(KEY, 0.0)
    assert spacing.hook(KEY, UNHEARD_S - 1) is MERGED
    assert spacing.hook(KEY, UNHEARD_S) is NOW


def test_memory_is_bounded_and_what_is_due_is_never_forgotten() -> None:
    spacing = Spacing(repos_max=100, pace=None)
    waits = RepoKey("waits/for/ever")
    spacing.hook(waits, 0.0)
    spacing.hook(waits, 0.5)
    for n in range(1000):
        key = RepoKey(f"h/{n}")
        assert spacing.hook(key, 0.6) is NOW
        spacing.look_began(key, 0.6)
    assert len(spacing) <= 100
    assert spacing.due(1.0) == (waits,)


def test_where_all_wait_further_repos_pass_and_are_not_remembered() -> None:
    spacing = Spacing(repos_max=10)
    for n in range(10):
        spacing.hook(RepoKey(f"h/{n}"), 0.0)
        spacing.hook(RepoKey(f"h/{n}"), 0.0)
    assert [spacing.hook(KEY, 0.1) for _ in range(5)] == [NOW] * 5
    assert len(spacing) == 10


def test_hooks_for_very_many_repos_keep_a_pace_and_none_is_left_out() -> None:
    spacing = Spacing()
    keys = [RepoKey(f"h/{n}") for n in range(1000)]
    verdicts = [spacing.hook(key, n / 500) for n, key in enumerate(keys)]
    looked = [(n / 500, key) for n, key in enumerate(keys) if verdicts[n] is NOW]
    assert len(looked) < 400
    assert set(verdicts) == {NOW, LATER}
    now = 2.0
    while (wake := spacing.next_wake()) is not None:
        now = max(now, wake)
        looked += [(now, key) for key in spacing.due(now)]
    assert sorted(key for _, key in looked) == sorted(keys)
    assert 4.0 <= now <= 5.0
    for begin in range(6):
        assert sum(begin <= at < begin + 1 for at, _ in looked) <= 2 * PACE_RATE


def test_who_waits_for_a_turn_goes_before_who_comes_then() -> None:
    spacing = Spacing(pace=1.0)
    first, second = RepoKey("h/first"), RepoKey("h/second")
    assert [spacing.hook(key, 0.0) for key in (KEY, first)] == [NOW, LATER]
    assert spacing.hook(second, 1.0) is LATER
    assert spacing.due(1.0) == (first,)
    assert spacing.next_wake() == 2.0
    assert spacing.due(2.0) == (second,)
    assert spacing.hook(RepoKey("h/third"), 3.0) is NOW


def test_a_repo_that_may_have_news_goes_before_those_whose_looks_found_nothing() -> None:
    spacing = Spacing(pace=1.0)
    idle = [RepoKey(f"h/{n}") for n in range(5)]
    for n, key in enumerate(idle):
        assert spacing.hook(key, float(n)) is NOW
        spacing.look_ended(key, False, float(n))
    for key in idle:
        assert spacing.hook(key, 5.0) in (NOW, LATER)
    assert spacing.hook(KEY, 5.5) is LATER
    assert spacing.due(6.0) == (KEY,)


def test_what_is_quiet_is_forgotten() -> None:
    spacing = Spacing()
    for n in range(20):
        spacing.hook(RepoKey(f"h/{n}"), 0.0)
        spacing.look_began(RepoKey(f"h/{n}"), 0.0)
    spacing.hook(KEY, QUIET_S - 1)
    assert len(spacing) == 21
    spacing.hook(RepoKey("h/new"), QUIET_S)
    assert len(spacing) == 2


def test_what_could_not_be_stored_is_as_if_it_had_not_come() -> None:
    spacing = Spacing()
    spacing.hook(KEY, 0.0)
    spacing.forget(KEY)
    assert spacing.hook(KEY, 0.1) is NOW
    spacing.hook(KEY, 0.2)
    spacing.forget(KEY)
    assert spacing.due(50.0) == ()


class Twin:
    """One repo, told plainly: a list of what is so, no heap, no bounds."""

    def __init__(self) -> None:
        self.known = False

    def hook(self, now: float) -> Verdict:
        if not self.known:
            self.known, self.gap = True, 1.0
            self.due_at, self.why, self.asked = math.inf, "", False
            self._look(now)
            self.hoped, self.tries = True, 0
            return NOW
        self.hoped, self.tries = True, 0
        if self.due_at < math.inf and self.why == "hook":
            return MERGED
        if self.asked and 1.0 <= now - self.asked_at < 3600:
            self.merged_at = now
            return MERGED
        if now >= self.looked_at + self.gap:
            self._look(now)
            return NOW
        self.due_at, self.why = self.looked_at + self.gap, "hook"
        return LATER

    def _look(self, now: float) -> None:
        if not self.asked or now - self.asked_at >= 3600:
            self.asked, self.asked_at = True, now
        self.looked_at, self.merged_at, self.due_at = now, -math.inf, math.inf

    def began(self, now: float) -> None:
        if self.known and self.asked:
            self.asked = False
            if now - self.merged_at < 2.0 and self.due_at == math.inf:
                self.due_at, self.why = now + 1.0, "doubt"
            self.merged_at = -math.inf

    def ended(self, found: bool, now: float) -> None:
        if not self.known:
            return
        if found:
            self.gap, self.hoped, self.tries = 1.0, False, 0
            if self.why == "again":
                self.due_at = math.inf
            if self.due_at < math.inf:
                self.due_at = min(self.due_at, max(now, self.looked_at + 1.0))
            return
        self.asked = False
        if self.hoped:
            if self.tries == 0:
                self.gap = min(60.0, self.gap * 2)
            if self.due_at == math.inf and self.gap <= AGAIN_GAP_S and self.tries < 2:
                self.due_at, self.why = now + (3.0 if self.tries == 0 else 12.0), "again"
                self.tries += 1

    def due(self, now: float) -> bool:
        is_due = self.known and self.due_at <= now
        if is_due:
            self._look(now)
        return is_due


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 7.0, 12.0, 60.0]),
        st.integers(0, 2),
        st.sampled_from(["hook", "hook", "began", "found", "nothing", "due"]),
    ),
    max_size=80,
)


@given(STEPS)
def test_it_does_what_the_plain_rules_say(steps: list[tuple[float, int, str]]) -> None:
    spacing, twins, now = Spacing(), [Twin() for _ in range(3)], 0.0
    keys = [RepoKey(f"h/{n}") for n in range(3)]
    for pause_s, n, what in steps:
        now += min(pause_s, QUIET_S / 100)
        key, twin = keys[n], twins[n]
        match what:
            case "hook":
                assert spacing.hook(key, now) is twin.hook(now)
            case "began":
                spacing.look_began(key, now)
                twin.began(now)
            case "found" | "nothing":
                spacing.look_ended(key, what == "found", now)
                twin.ended(what == "found", now)
            case "due":
                expected = {key for key, twin in zip(keys, twins, strict=True) if twin.due(now)}
                assert set(spacing.due(now)) == expected
        waiting = [twin.due_at for twin in twins if twin.known]
        assert spacing.next_wake() == (min(waiting) if waiting and min(waiting) < math.inf else None)


@given(STEPS)
def test_every_hook_is_followed_by_a_look_that_begins_after_it(steps: list[tuple[float, int, str]]) -> None:
    """Whatever workers do: the latest hook of a repo has a look asked for at or after it, or one to come,
    or one that had not begun when the hook came."""
    spacing, now = Spacing(), 0.0
    key, not_begun, owed = KEY, False, False
    for pause_s, _, what in steps:
        now += pause_s
        match what:
            case "hook":
                verdict = spacing.hook(key, now)
                owed = verdict is not NOW and not not_begun
                not_begun = not_begun or verdict is NOW
            case "began":
                spacing.look_began(key, now)
                not_begun = False
            case "nothing" if not_begun is False and key in spacing:
                spacing.look_ended(key, False, now)
            case "due" if spacing.due(now):
                not_begun, owed = True, False
        assert not owed or spacing.next_wake() is not None
