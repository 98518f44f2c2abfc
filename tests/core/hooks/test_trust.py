"""What is learnt of hooks: examples, against the dumb twin, and over simulated months."""

import itertools
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.hooks import trust as rules
from evermirror.core.hooks.trust import (
    NEEDED,
    NEEDED_MAX,
    TOLERANCE_S,
    Doubted,
    Found,
    Heard,
    Relapsed,
    Reliable,
    Silent,
    Trust,
)
from evermirror.model.hook import HookMemory, HookTrust
from evermirror.model.repo import RepoKey
from tests.core.hooks.trust_twin import Twin

T0 = 1_700_000_000.0
K = RepoKey("github.com/o/r")
DAY = 86_400.0


class Story:
    """One repo's hooks and changes, an hour apart, with all that followed."""

    def __init__(self, restored=()):
        self.trust, self.now, self.effects, self.writes = Trust(restored), T0, [], {}
        if restored:
            self.now += DAY

    def took(self, learnt):
        self.effects += learnt.effects
        self.writes |= learnt.writes

    def later(self, seconds):
        self.now += seconds
        self.took(self.trust.tick(self.now))

    def hook(self):
        self.took(self.trust.hook(K, self.now))

    def found(self, by, ago=0.0):
        self.took(self.trust.changed(K, self.now - ago, by, self.now))

    def looked(self):
        self.trust.looked(K, self.now)

    def told(self, times=1):
        for _ in range(times):
            self.later(3600)
            self.hook()
            self.later(1)
            self.found(Found.BY_HOOK)
        return self

    def missed(self, times=1):
        for _ in range(times):
            self.later(3600)
            self.found(Found.BY_POLL)
            self.later(TOLERANCE_S)
        return self

    @property
    def memory(self):
        return self.trust.get(K)


def reliable():
    return Story().told(NEEDED)


def test_the_numbers_are_those_that_people_are_told():
    assert (NEEDED, NEEDED_MAX, TOLERANCE_S) == (5, 40, 120.0)


def test_five_told_in_a_row_are_reliable():
    story = Story().told(NEEDED - 1)
    assert story.memory.trust is HookTrust.UNPROVEN
    assert story.effects == []
    story.told()
    assert story.memory.trust is HookTrust.RELIABLE
    assert story.effects == [Reliable(K)]
    assert story.memory.since == story.now
    assert story.writes[K] == story.memory
    story.told(100)
    assert story.effects == [Reliable(K)], "said once"
    assert (story.memory.received, story.memory.told_total) == (105, 105)


def test_a_miss_takes_reliability_away_at_once_and_the_next_one_makes_it_silent():
    story = reliable().missed()
    assert story.memory.trust is HookTrust.UNPROVEN
    assert story.effects == [Reliable(K), Relapsed(K)]
    story.missed()
    assert story.memory.trust is HookTrust.SILENT
    assert story.effects[2:] == [Silent(K)]
    story.missed(10)
    assert len(story.effects) == 3
    assert story.memory.missed_total == 12


@pytest.mark.parametrize("relapses", range(6))
def test_after_each_relapse_twice_as_many_are_needed_up_to_a_bound(relapses):
    story, needed = Story(), NEEDED
    for _ in range(relapses):
        story.told(needed).missed()
        needed = min(NEEDED_MAX, 2 * needed)
    story.told(needed - 1)
    assert story.memory.trust is HookTrust.UNPROVEN
    story.told()
    assert story.memory.trust is HookTrust.RELIABLE


@pytest.mark.parametrize("before", [HookTrust.UNPROVEN, HookTrust.SILENT])
def test_what_was_told_counts_only_in_a_row(before):
    story = Story().told()
    story.missed(2 if before is HookTrust.SILENT else 1)
    for _ in range(20):
        story.told(NEEDED - 1).missed()
    assert story.memory.trust is HookTrust.UNPROVEN
    assert Reliable(K) not in story.effects


def test_silence_ends_after_two_told_in_a_row():
    story = Story().told().missed(2).told()
    assert story.memory.trust is HookTrust.SILENT
    story.told()
    assert story.memory.trust is HookTrust.UNPROVEN
    assert story.effects == [Silent(K), Heard(K)]
    story.told(NEEDED - 2)
    assert story.effects[-1] == Reliable(K), "those two count too"


@pytest.mark.parametrize("trust", HookTrust)
def test_a_hook_made_anew_ends_silence_and_forgives_what_was_missed(trust):
    story = Story([HookMemory(K, trust, since=1.0, received=3, missed=1, told=4, needed=10)])
    story.took(story.trust.registered(K, T0))
    after = HookTrust.UNPROVEN if trust is HookTrust.SILENT else trust
    assert (story.memory.trust, story.memory.missed, story.memory.needed) == (after, 0, 10)
    assert story.effects == ([Heard(K)] if trust is HookTrust.SILENT else [])


def test_a_repo_whose_hook_was_registered_and_never_came_is_silent_after_two_changes():
    story = Story()
    story.took(story.trust.registered(K, T0))
    story.missed(2)
    assert story.effects == [Silent(K)]
    assert story.memory.received == 0


def test_changes_of_repos_that_never_had_a_hook_teach_nothing_and_cost_nothing():
    trust = Trust()
    for n in range(1000):
        trust.changed(RepoKey(f"h/{n}"), T0, Found.BY_POLL, T0)
    assert (len(trust), trust.waiting) == (0, 0)
    assert trust.tick(T0 + DAY).writes == {}


@pytest.mark.parametrize("by", [Found.BY_POLL, Found.BY_OTHER])
@pytest.mark.parametrize("gap", [-121.0, -120.0, -60.0, 0.0, 0.5, 119.0, 120.0, 121.0, 4000.0])
def test_a_hook_within_two_minutes_before_or_after_tells_the_change(by, gap):
    story = Story().told(2)
    told, missed = story.memory.told_total, story.memory.missed_total
    story.later(3600)
    if gap <= 0:
        story.hook()
        story.looked()  # and nothing was there yet
        story.later(-gap)
    story.found(by)
    if gap > 0:
        story.later(gap)
        story.hook()
    story.later(10_000)
    near = abs(gap) < TOLERANCE_S or gap == -TOLERANCE_S  # at the very end of the wait nobody waits any more
    assert story.memory.told_total - told == near
    assert story.memory.missed_total - missed == (not near and by is Found.BY_POLL)


def test_what_others_asked_for_is_never_a_miss():
    story = reliable()
    for _ in range(50):
        story.later(3600)
        story.found(Found.BY_OTHER)
    story.later(3600)
    assert story.memory.trust is HookTrust.RELIABLE
    assert story.memory.missed_total == 0


def test_one_hook_tells_one_change():
    story = Story()
    story.hook()
    for _ in range(50):
        story.later(1)
        story.found(Found.BY_HOOK)
        story.found(Found.BY_POLL)
    story.later(3600)
    assert (story.memory.told_total, story.memory.missed_total) == (1, 0)


def test_a_burst_of_hooks_for_one_change_is_one():
    story = Story()
    for _ in range(50):
        story.hook()
    story.found(Found.BY_HOOK)
    assert (story.memory.told, story.memory.received) == (1, 50)


def test_a_hooks_look_that_was_long_under_way_tells_all_the_same():
    story = Story()
    story.hook()
    story.later(7200)
    story.found(Found.BY_HOOK)
    assert story.memory.told_total == 1


def test_hooks_that_find_nothing_teach_nothing():
    story = Story()
    for _ in range(100):
        story.later(600)
        story.hook()
    assert (story.memory.trust, story.memory.told, story.memory.received) == (HookTrust.UNPROVEN, 0, 100)


def test_news_that_comes_late_after_later_hooks_counts_for_nothing():
    story = reliable()
    story.later(DAY)
    story.hook()
    story.found(Found.BY_POLL, ago=DAY / 2)
    story.later(DAY)
    assert story.memory.missed_total == 0


def test_news_that_comes_late_without_any_hook_is_a_miss():
    story = reliable()
    story.later(DAY)
    story.found(Found.BY_POLL, ago=DAY / 2)
    story.later(1)
    story.hook()
    story.later(TOLERANCE_S)
    assert story.memory.missed_total == 1


def test_a_worker_whose_clock_is_ahead_finds_changes_now():
    story = reliable()
    story.later(3600)
    story.hook()
    story.found(Found.BY_POLL, ago=-DAY)
    story.later(3600)
    assert story.memory.missed_total == 0


def test_a_hook_whose_look_was_long_in_coming_told_what_the_first_poll_that_succeeds_finds():
    story = reliable()
    for _ in range(20):
        story.later(DAY)
        story.hook()
        story.later(5 * 3600)  # upstream is away, or the worker
        story.found(Found.BY_POLL)
        story.later(DAY)
    assert story.effects == [Reliable(K)]
    assert (story.memory.told_total, story.memory.missed_total) == (25, 0)


def test_a_hook_that_was_looked_at_in_vain_tells_nothing_that_is_found_later():
    story = reliable()
    story.later(DAY)
    story.hook()
    story.looked()
    story.later(5 * 3600)
    story.found(Found.BY_POLL)
    story.later(DAY)
    assert story.effects == [Reliable(K), Relapsed(K)]


def test_refs_that_were_known_already_are_no_change():
    """As a copy that was away finds them, once it is the one that looks."""
    trust, now = Trust([reliable().memory]), T0 + DAY
    trust.hook(K, now)
    assert trust.changed(K, now, Found.BY_HOOK, now, refs=7).writes[K].told == NEEDED + 1
    for _ in range(5):
        now += DAY
        assert trust.changed(K, now, Found.BY_POLL, now, refs=7).writes == {}
        assert trust.tick(now + 3600).writes == {}
    trust.changed(K, now, Found.BY_POLL, now, refs=8)
    assert trust.tick(now + 3600).effects == [Relapsed(K)]


def test_refs_that_were_stored_before_a_start_are_known():
    memory = reliable().memory
    trust, now = Trust(), T0 + DAY
    trust.restore([memory], {K: 7})
    trust.looked(K, now)
    trust.changed(K, now, Found.BY_POLL, now, refs=7)
    assert trust.tick(now + 3600).writes == {}


def test_a_start_excuses_only_what_the_first_look_finds():
    memory = reliable().memory
    trust, now = Trust([memory], started_at=T0 + DAY), T0 + DAY + 60
    trust.looked(K, now - 3600)  # told late: it was before the start
    trust.changed(K, now, Found.BY_POLL, now)
    assert trust.tick(now + 3600).effects == []
    again = Trust([memory], started_at=T0 + DAY)
    again.looked(K, now)
    again.changed(K, now + 60, Found.BY_POLL, now + 60)
    assert again.tick(now + 3600).effects == [Relapsed(K)]


def test_dead_hooks_are_noticed_also_where_every_change_is_found_right_after_a_start():
    memory, now, effects = reliable().memory, T0 + 30 * DAY, []
    for _ in range(4):
        trust = Trust([memory], started_at=now)
        trust.changed(K, now + 60, Found.BY_POLL, now + 60)
        effects += trust.tick(now + 3600).effects
        memory, now = trust.get(K), now + DAY
    assert effects == [Relapsed(K), Silent(K)]


def test_good_hooks_stay_reliable_however_often_a_start_is_missed():
    memory, now = reliable().memory, T0 + 30 * DAY
    for _ in range(10):
        trust = Trust([memory], started_at=now)
        trust.changed(K, now + 60, Found.BY_POLL, now + 60)
        trust.tick(now + 3600)
        trust.hook(K, now + 7200)
        trust.changed(K, now + 7201, Found.BY_HOOK, now + 7202)
        memory, now = trust.get(K), now + DAY
        assert memory.trust is HookTrust.RELIABLE


@pytest.mark.parametrize(("days", "needed"), [(29, 40), (31, 40), (61, 20), (91, 10), (4000, 10)])
def test_what_is_needed_fades_with_the_months_of_reliability(days, needed):
    """After three relapses: 40; twice what is left of it at the fourth."""
    story = Story([HookMemory(K, HookTrust.RELIABLE, since=T0, received=3, told=40, needed=40)])
    story.looked()
    story.later(T0 + days * DAY - story.now - 3600 - TOLERANCE_S)
    story.missed()
    assert story.memory.needed == needed


def test_the_first_miss_after_a_start_counts_for_nothing_and_the_next_ones_do():
    story = Story([reliable().memory])
    story.missed()
    assert story.memory.trust is HookTrust.RELIABLE
    story.missed()
    assert story.memory.trust is HookTrust.UNPROVEN
    after_a_hook = Story([reliable().memory]).told().missed()
    assert after_a_hook.memory.trust is HookTrust.UNPROVEN


def test_what_is_forgotten_starts_anew():
    story = reliable()
    story.later(3600)
    story.found(Found.BY_POLL)
    assert story.trust.forget(K).trust is HookTrust.RELIABLE
    story.later(3600)
    assert (len(story.trust), story.trust.waiting, story.trust.forget(K)) == (0, 0, None)
    assert sum(story.trust.counts.values()) == 0
    story.told(NEEDED)
    assert story.memory.trust is HookTrust.RELIABLE
    assert story.memory.told_total == NEEDED


@pytest.mark.parametrize("trust", HookTrust)
def test_a_restart_keeps_all_that_is_stored(trust):
    memory = HookMemory(K, trust, 1.5, 2**60, 2.5, 7, 8, 40, 2**61, 2**62)
    again = Trust([memory])
    assert again.get(K) == memory
    assert again.counts == {t: int(t is trust) for t in HookTrust}
    assert list(again.of(trust)) == [K]


def test_a_repo_costs_about_a_hundred_bytes():
    trust = Trust(HookMemory(RepoKey(f"h/{n}"), received=n) for n in range(1000))
    assert max(sys.getsizeof(row) for row in trust._rows.values()) < 110


# Hosts


class Forge:
    """Repos of one host, and one of another, all of them reliable."""

    def __init__(self, count):
        self.keys = [RepoKey(f"h/{n}") for n in range(count)] + [RepoKey("other/0")]
        memories = [HookMemory(k, HookTrust.RELIABLE, received=9, last_at=T0, told=9) for k in self.keys]
        self.trust, self.now, self.effects = Trust(memories), T0 + DAY, []
        for key in self.keys:
            self.trust.registered(key, self.now)

    def miss(self, *numbers):
        for n in numbers:
            self.trust.changed(self.keys[n], self.now, Found.BY_POLL, self.now)
        self.now += 3600
        self.effects += self.trust.tick(self.now).effects

    def hook(self, n):
        self.effects += self.trust.hook(self.keys[n], self.now).effects

    def doubted(self):
        return {e.key for e in self.effects if isinstance(e, Doubted)}


def test_three_repos_that_miss_one_without_a_word_of_their_host_are_enough_for_all_of_it():
    forge = Forge(6)
    forge.miss(0, 1)
    forge.miss(0)
    assert forge.doubted() == set()
    forge.miss(2)
    assert forge.doubted() == set(forge.keys[3:6])
    assert forge.trust.get(forge.keys[3]).trust is HookTrust.UNPROVEN
    assert forge.trust.get(RepoKey("other/0")).trust is HookTrust.RELIABLE
    forge.miss(3, 4, 5)
    assert len(forge.doubted()) == 3, "said once"


def test_any_hook_of_the_host_says_that_it_is_alive():
    forge = Forge(6)
    for n in range(5):
        forge.miss(n)
        forge.hook(5)
    assert forge.doubted() == set()


def test_who_was_only_doubted_is_reliable_again_with_the_next_change_told():
    forge = Forge(6)
    forge.miss(0, 1, 2)
    key = forge.keys[5]
    assert forge.trust.get(key).told == 9
    forge.hook(5)
    effects = forge.trust.changed(key, forge.now, Found.BY_HOOK, forge.now).effects
    assert effects == [Reliable(key)]
    assert forge.trust.get(key).needed == 0


def test_a_host_of_many_is_looked_through_in_parts_and_a_hook_ends_that(monkeypatch):
    monkeypatch.setattr(rules, "DOUBTS_AT_ONCE", 4)
    forge = Forge(20)
    forge.miss(0, 1, 2)
    assert len(forge.doubted()) <= 4
    for _ in range(5):
        forge.miss()
    assert forge.doubted() == set(forge.keys[3:20])
    again = Forge(20)
    again.miss(0, 1, 2)
    again.hook(10)
    for _ in range(5):
        again.miss()
    assert len(again.doubted()) <= 4


# Every short story of told and missed, against what the rules say in words


@pytest.mark.parametrize("length", range(1, 8))
def test_every_short_story_ends_as_the_rules_say(length):
    for steps in itertools.product("tm", repeat=length):
        story = Story().told()
        for step in steps:
            story.told() if step == "t" else story.missed()
        line = "t" + "".join(steps)
        memory = story.memory
        assert memory.told == len(line) - len(line.rstrip("t"))
        assert memory.missed == len(line) - len(line.rstrip("m"))
        if memory.missed >= 2:
            assert memory.trust is HookTrust.SILENT, line
        if memory.trust is HookTrust.RELIABLE:
            assert memory.told >= NEEDED, line
        if memory.told >= NEEDED and "ttttt" not in line[: -memory.told]:
            assert memory.trust is HookTrust.RELIABLE, line


# Against the twin

KEYS = [RepoKey(f"{host}/{n}") for host in ("h", "other") for n in range(4)]
steps = st.one_of(
    st.tuples(st.just("hook"), st.sampled_from(KEYS)),
    st.tuples(st.just("hook"), st.sampled_from(KEYS)),
    st.tuples(
        st.just("changed"),
        st.sampled_from(KEYS),
        st.sampled_from(Found),
        st.sampled_from([0, 5, 500, -50]),
        st.sampled_from([0, 0, 1, 2]),
    ),
    st.tuples(st.just("changed"), st.sampled_from(KEYS), st.just(Found.BY_POLL), st.just(0), st.just(0)),
    st.tuples(
        st.just("looked"), st.sampled_from(KEYS), st.sampled_from([0, 5, 500]), st.sampled_from([0, 1, 2])
    ),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 60.0, 119.0, 121.0, 9000.0, 40 * DAY])),
    st.tuples(st.just("restart")),
)


def agrees(script):
    real, twin, now, effects, seen = Trust(), Twin(), T0, [], 0
    for name, *about in script:
        match name:
            case "hook":
                effects += real.hook(about[0], now).effects
                twin.hook(about[0], now)
            case "changed":
                key, by, ago, refs = about
                effects += real.changed(key, now - ago, by, now, refs).effects
                twin.changed(key, now - ago, by.value, now, refs)
            case "looked":
                key, ago, refs = about
                real.looked(key, now - ago, refs)
                twin.looked(key, now - ago, refs)
            case "wait":
                now += about[0]
                effects += real.tick(now).effects
                twin.tick(now)
            case "restart":
                real = Trust([real.get(key) for key in KEYS if key in real], now)
                twin.restart(now)
        told = [(type(e).__name__.lower(), e.key) for e in effects]
        assert sorted(told[seen:]) == sorted(twin.effects[seen:])
        seen = len(told)
        for key, repo in twin.repos.items():
            memory = real.get(key)
            assert (memory.trust.value, memory.told, memory.missed) == (repo.trust, repo.told, repo.missed)
            assert (memory.needed or NEEDED, memory.received) == (repo.needed, repo.received)
            assert (memory.told_total, memory.missed_total) == (repo.told_total, repo.missed_total)
        assert sum(real.counts.values()) == len(real) == len(twin.repos)
        assert real.waiting <= len(real)
        for trust in HookTrust:
            assert real.counts[trust] == sum(1 for _ in real.of(trust))


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, max_size=60))
def test_it_learns_what_the_dumb_twin_learns(script):
    agrees(script)


@pytest.mark.parametrize("seed", range(40))
def test_it_learns_what_the_dumb_twin_learns_over_long_runs(seed):
    chance = random.Random(seed)
    lost = chance.choice([0.0, 0.05, 0.5])
    script = []
    for _ in range(400):
        key = chance.choice(KEYS)
        if chance.random() >= lost:
            script += [("hook", key), ("changed", key, Found.BY_HOOK, 0, 0)]
        else:
            script += [("changed", key, chance.choice(list(Found)), 0, 0)]
        if chance.random() < 0.2:
            script += [("hook", key), ("looked", chance.choice(KEYS), 0, 0)]
        script.append(("wait", chance.choice([1.0, 60.0, 119.0, 121.0, 9000.0, 90_000.0])))
        if chance.random() < 0.01:
            script.append(("restart",))
    agrees(script)


# Simulated months


def months(seed, *, lost=0.0, delay_s=5.0, dead_from=None, many_refs=0.0, days=120, pushes_a_day=3.0):
    """A repo's pushes, each told by a hook or found by a poll; trust at each day's end, and all effects."""
    chance, trust, now = random.Random(seed), Trust(), T0
    trust.hook(K, now - 3600)  # the forge's ping's first push
    effects, by_day, events = [], [], []
    while now < T0 + days * DAY:
        now += chance.expovariate(pushes_a_day / DAY)
        dead = dead_from is not None and now >= T0 + dead_from * DAY
        # GitLab sends no hook for a push of more than three refs.
        if dead or chance.random() < lost or chance.random() < many_refs:
            events.append((now + chance.uniform(60, 3000), "poll"))
            continue
        late = chance.expovariate(1 / delay_s)
        polled_after = chance.uniform(30, 3000)
        if polled_after < late:
            events += [(now + polled_after, "poll"), (now + late, "hook"), (now + late + 1, "nothing")]
        else:
            events += [(now + late, "hook"), (now + late + 1, "look")]
    day = T0 + DAY
    for at, what in sorted(events):
        while at > day:
            effects += [(day, e) for e in trust.tick(day).effects]
            by_day.append(trust.get(K).trust)
            day += DAY
        learnt = trust.tick(at).effects
        match what:
            case "hook":
                learnt = learnt + trust.hook(K, at).effects
            case "look":
                learnt = learnt + trust.changed(K, at, Found.BY_HOOK, at).effects
            case "nothing":
                trust.looked(K, at)
            case "poll":
                learnt = learnt + trust.changed(K, at, Found.BY_POLL, at).effects
        effects += [(at, e) for e in learnt]
    return by_day, effects, trust.get(K)


@pytest.mark.parametrize("seed", range(10))
def test_months_of_good_hooks_are_reliable_within_days_and_stay_so(seed):
    by_day, effects, _ = months(seed)
    assert by_day[10:] == [HookTrust.RELIABLE] * len(by_day[10:])
    assert [type(e) for _, e in effects] == [Reliable]


@pytest.mark.parametrize("seed", range(10))
def test_hooks_that_die_on_a_day_are_flagged_within_days_and_stay_so(seed):
    by_day, effects, _ = months(seed, dead_from=60)
    assert by_day[59] is HookTrust.RELIABLE
    assert by_day[65:] == [HookTrust.SILENT] * len(by_day[65:])
    assert [type(e) for _, e in effects] == [Reliable, Relapsed, Silent]


@pytest.mark.parametrize("seed", range(10))
def test_hooks_half_of_which_are_lost_are_hardly_ever_taken_for_reliable(seed):
    by_day, _, memory = months(seed, lost=0.5)
    assert by_day.count(HookTrust.RELIABLE) < len(by_day) * 0.1
    assert memory.missed_total > 80


@pytest.mark.parametrize("seed", range(10))
def test_a_lost_hook_now_and_then_makes_a_repo_prove_itself_longer_and_is_seldom_flagged(seed):
    by_day, effects, memory = months(seed, lost=0.03)
    silences = sum(isinstance(e, Silent) for _, e in effects)
    assert silences <= 4
    assert memory.missed_total > 0
    assert by_day.count(HookTrust.UNPROVEN) > 5


@pytest.mark.parametrize("seed", range(10))
def test_pushes_of_many_refs_without_a_hook_are_seen_as_misses(seed):
    by_day, effects, memory = months(seed, many_refs=0.1)
    assert sum(isinstance(e, Relapsed) for _, e in effects) >= 1
    assert memory.needed >= 2 * NEEDED
    assert by_day.count(HookTrust.RELIABLE) < len(by_day) * 0.8


@pytest.mark.parametrize("seed", range(10))
def test_hooks_that_come_ten_minutes_late_do_not_become_reliable_by_it(seed):
    _, _, slow = months(seed, delay_s=600.0)
    _, _, quick = months(seed, delay_s=5.0)
    assert slow.missed_total > 10 > quick.missed_total
