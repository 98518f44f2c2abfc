"""A worker's own settings, and within them what its coordinator allows."""

from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import RATE_LEAST, ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.model.messages import ApplySettings
from evermirror.model.repo import Host, RepoKey, RepoSpec

OWN = ScheduleSettings(host_rate=5.0, polls_per_second=None, slots=10)


def test_the_smaller_one_counts():
    told = ApplySettings(2.0, 50.0, 4, ((Host("a.example"), 0.5), (Host("b.example"), 9.0)))
    both = OWN.within(told)
    assert (both.polls_per_second, both.host_rate, both.slots) == (2.0, 5.0, 4)
    assert [both.rate_of(Host(f"{h}.example")) for h in "abc"] == [0.5, 5.0, 5.0]
    assert OWN.within(None) == OWN


def test_a_rate_that_is_none_at_all_is_the_least():
    assert OWN.within(ApplySettings(host_rate=-1.0)).host_rate == RATE_LEAST


def test_a_host_is_asked_at_its_own_rate_from_the_moment_it_is_told():
    scheduler = Scheduler(OWN)
    for host in ("a.example", "b.example"):
        keys = [RepoKey(f"{host}/r{n}") for n in range(200)]
        scheduler.add([Entry(RepoSpec(key, f"https://{key}", Host(host))) for key in keys], 1e9)
    scheduler.reconfigure(OWN.within(ApplySettings(host_rates=((Host("a.example"), 0.5),))), 1e9)
    polled = []
    for now in range(1_000_000_000, 1_000_000_020):
        while (key := scheduler.take(float(now))) is not None:
            polled.append(key)
            scheduler.polled(key, float(now))
    of_a = sum(key.startswith("a.example") for key in polled)
    assert of_a == 10
    assert 4 * 20 <= len(polled) - of_a <= 5 * 20  # a token may be there a moment after the full second
