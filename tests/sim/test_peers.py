"""Rules of others: what each says, against the obvious slow version, and that all spend the same budget."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.schedule.intensity import DAY_S, learn
from evermirror.core.schedule.policies import CLASS_INTERVAL_S
from evermirror.errors import UsageError
from evermirror.model.activity import Activity
from evermirror.model.repo import Priority
from evermirror.sim.compare import ALL, NAMES, named, result_of, tally_of
from evermirror.sim.peers import (
    PEERS,
    Clairvoyant,
    Classes,
    GitLab,
    PeerRun,
    SoftwareHeritage,
    Sourcegraph,
    ThreeCounts,
    World,
    spread,
)
from evermirror.sim.polling import Trace, Traces
from tests.sim.test_polling import DAY, END, made_up

HOUR = 3600.0
START = END - 10 * DAY


def world(*pushes):
    return World(pushes, START, END)


class Told:
    """A rule whose gaps are told beforehand."""

    def __init__(self, gaps):
        self.gaps, self.polls = gaps, []

    def gap_s(self, repo, news, last_push_at, now):
        self.polls.append((now, repo, tuple(news), last_push_at))
        return self.gaps[repo]


def dumb_queue(pushes, gaps, mean_gap_s, until):
    """Look through everybody at every poll, for the smallest turn; what each poll sees is counted anew."""
    turns, seen, polls, at = [-1.0] * len(pushes), [START] * len(pushes), [], START
    for tick in range(10**6):
        at = START + tick * mean_gap_s / len(pushes)
        if at > until:
            return polls
        repo = min(range(len(turns)), key=lambda i: (turns[i], i))
        news = tuple(e for e in pushes[repo] if seen[repo] < e <= at)
        last = max((e for e in pushes[repo] if e <= at), default=0.0)
        polls.append((at, repo, news, last))
        seen[repo] = at
        turns[repo] = turns[repo] + gaps[repo] if turns[repo] >= 0 else gaps[repo] * spread(repo)
    raise AssertionError("too many polls")


@st.composite
def histories(draw, repos=6, pushes=12):
    count = draw(st.integers(1, repos))
    minutes = st.lists(st.integers(-12 * 1440, -1), max_size=pushes, unique=True)
    return [sorted(END + 60.0 * m for m in draw(minutes)) for _ in range(count)]


@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_polls_go_where_the_slow_queue_sends_them(pushes, data):
    gaps = [data.draw(st.floats(0.5, 50.0)) for _ in pushes]
    rule = Told(gaps)
    run = PeerRun(pushes, rule, 2 * HOUR, START)
    run.until(START + 2 * DAY)
    run.warm()
    run.until(START + 3 * DAY)
    slow = dumb_queue(pushes, gaps, 2 * HOUR, START + 3 * DAY)
    assert rule.polls == slow
    judged = [p for p in slow if p[0] > START + 2 * DAY]
    assert run.tally.polls == len(judged)
    assert run.tally.delays == [at - e for at, _, news, _ in judged for e in news if e > START + 2 * DAY]


@pytest.mark.parametrize("mean_gap_s", [600.0, 7200.0])
def test_every_rule_spends_the_same_budget_and_sees_every_push_once(mean_gap_s):
    traces = made_up()
    budget = 20 * DAY / mean_gap_s * len(traces.repos)
    pushes = sum(e > END - 20 * DAY for t in traces.repos for e in t.pushes)
    for name in ALL:
        result = result_of(traces, name, mean_gap_s, days=20, warm_in_days=5)
        assert (result.policy, result.pushes) == (name, pushes)
        if name == "oracle":
            assert result.polls <= min(budget, pushes)
        else:
            assert result.polls == pytest.approx(budget, rel=0.02), name


def test_equal_gaps_do_not_come_all_at_once():
    pushes = [[] for _ in range(100)]
    rule = Told([1.0] * 50 + [0.02] * 50)
    run = PeerRun(pushes, rule, HOUR, START)
    run.until(START + 5 * DAY)
    at = [t for t, repo, *_ in rule.polls if repo == 99]
    gaps = [b - a for a, b in pairwise(at[2:])]
    assert max(gaps) < 1.5 * min(gaps), "nobody is kept waiting by a crowd"


@given(st.lists(st.booleans(), max_size=40))
def test_software_heritage_steps_by_its_offsets(changes):
    rule, offset = SoftwareHeritage(world([])), 4
    days = {0: 1, 1: 1, 2: 2, 3: 2, 4: 2, 5: 4, 6: 16, 7: 64, 8: 256, 9: 1024, 10: 4096}
    for changed in changes:
        offset = max(0, offset - 2) if changed else min(10, offset + 1)
        gap = rule.gap_s(0, [START] if changed else [], START, START)
        assert 0.9 * days[offset] * DAY <= gap <= 1.1 * days[offset] * DAY


@given(st.floats(0, 10 * 365 * DAY))
def test_sourcegraph_looks_after_half_the_age(age):
    gap = Sourcegraph(world([])).gap_s(0, (), START - age, START)
    assert gap == sorted((45.0, (START - (START - age)) / 2, 8 * HOUR))[1]


def test_sourcegraph_looks_rarely_where_there_is_no_commit():
    assert Sourcegraph(world([])).gap_s(0, (), 0.0, START) == 8 * HOUR


def test_gitlab_looks_by_how_long_the_last_took_within_its_least():
    rule = GitLab(world(*([] for _ in range(500))))
    seen = set()
    for repo, took in enumerate(rule.durations_s):
        gap = rule.gap_s(repo, (), 0.0, START)
        assert max(1800.0, 24 * took) <= gap <= max(1800.0, 30 * took)
        seen.add(gap > 1800.0)
    assert seen == {True, False}
    again = GitLab(world(*([] for _ in range(500))))
    assert again.durations_s == rule.durations_s, "the same seed is the same run"


def test_classes_are_ranked_by_the_last_90_days_before_the_start_and_stay():
    busy = [START - 80 * DAY + i * HOUR for i in range(30)]
    once = [START - 200 * DAY + i * HOUR for i in range(90)]
    later = [START + i * HOUR for i in range(1, 90)]
    rule = Classes(world(*([once] * 9 + [later] * 10 + [busy])))
    gaps = [rule.gap_s(i, later, END, END) for i in range(20)]
    assert gaps[19] == CLASS_INTERVAL_S[Priority.CRITICAL]
    assert sorted(gaps) == [600.0] + [1800.0] * 3 + [7200.0] * 10 + [21600.0] * 6
    assert gaps[:3] == [1800.0] * 3, "of equals the first"


def test_clairvoyant_knows_the_pushes_to_come_and_no_others():
    rule = Clairvoyant(world([START + 60.0 * i for i in range(1, 5)], [START - 60.0], [START + 60.0]))
    assert [rule.gap_s(i, (), 0.0, START) for i in range(3)] == [0.5, math.inf, 1.0]


@settings(max_examples=40, deadline=None)
@given(histories(repos=3, pushes=20))
def test_three_counts_is_the_intensity_of_three_fading_counts(pushes):
    rule = ThreeCounts(World(pushes, START, END))
    now = END + DAY
    for repo, mine in enumerate(pushes):
        rate = 0.3 / (365.25 * DAY)
        for share, tau in ((0.46, 1.5 * HOUR), (0.21, 3 * DAY), (0.33, 90 * DAY)):
            rate += sum(share / tau * math.exp(-(now - e) / tau) for e in mine)
        before = rule._strides[:]
        gap = rule.gap_s(repo, [e for e in mine if e > START], END, now)
        cap = 10 * len(before) / sum(1 / s for s in before)
        assert gap == pytest.approx(min(1 / math.sqrt(rate), cap), rel=1e-6)


def test_three_counts_learns_as_the_product_did():
    chance = random.Random(3)
    mine = sorted(START + 60.0 * m for m in chance.sample(range(1, 14_000), 200))
    rule = ThreeCounts(World([mine], START, END))
    rule.gap_s(0, mine, mine[-1], END)
    counts = learn(Activity(), mine, after=0.0, now=END).counts
    assert rule._counts[0] == pytest.approx(counts[:3])


def test_a_better_clairvoyance_is_a_shorter_delay():
    traces = made_up(days=90)
    mean = {n: result_of(traces, n, 2 * HOUR, days=40).mean_s for n in ("uniform", "clairvoyant", "oracle")}
    assert mean["oracle"] < mean["clairvoyant"] < mean["uniform"]


def test_the_same_run_twice_gives_the_same_figures():
    for name in PEERS:
        assert result_of(made_up(), name, 7200.0, days=10) == result_of(made_up(), name, 7200.0, days=10)


def test_the_quiet_half_is_the_same_under_every_policy_and_told_apart():
    busy = [END - 5 * DAY + 600.0 * i for i in range(100)]
    quiet = [END - 3 * DAY, END - 1 * DAY]
    traces = Traces((Trace("busy", busy), Trace("silent", []), Trace("quiet", quiet)), END)
    for name in ALL:
        result = result_of(traces, name, HOUR, days=6, warm_in_days=1)
        assert (result.quiet_repos, result.quiet_pushes) == (1, 2)
        assert result.quiet_mean_s == pytest.approx(result.quiet_repo_mean_s)
    uniform = result_of(traces, "uniform", HOUR, days=6, warm_in_days=1)
    assert uniform.quiet_mean_s <= HOUR


def test_each_delay_under_a_rule_is_told_with_the_gap_that_the_push_fell_into():
    traces = Traces((Trace("a", [END - 4000.0]), Trace("b", [])), END)
    tally = tally_of(traces, "uniform", HOUR, days=2, warm_in_days=1)
    assert tally.gaps == pytest.approx([HOUR])
    assert 0 <= tally.delays[0] <= HOUR


def test_progress_is_told_from_begin_to_end():
    for name in ("adaptive", "uniform"):
        told = []
        result_of(made_up(), name, 7200.0, days=5, tell=told.append)
        assert told == sorted(told)
        assert told[-1] == 1.0
        assert len(told) >= 100


def test_names_are_known_or_refused():
    assert named("adaptive, gitlab") == ("adaptive", "gitlab")
    assert named("all") == named("all,gitlab") == named("adaptive, all") == ALL
    assert named("all,fixed") == (*ALL, "fixed")
    assert set(NAMES) - set(ALL) == {"fixed"}
    for wrong in ("magic", "adaptive,", "", "all,magic", "all,"):
        with pytest.raises(UsageError, match="no scheduling policy"):
            named(wrong)
    with pytest.raises(UsageError, match="no traces"):
        result_of(Traces((), END), "uniform", 60.0)
    with pytest.raises(UsageError, match="positive"):
        result_of(made_up(), "oracle", 0.0)
    assert DAY == DAY_S
