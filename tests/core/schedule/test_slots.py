import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.schedule.hosts import Connections
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.slots import SyncSlots
from evermirror.model.repo import Host, RepoKey


class Room:
    def __init__(self, slots=10, connections=8):
        self.slots, self.settings, self.hosts = (
            SyncSlots(slots),
            ScheduleSettings(host_connections=connections),
            {},
        )

    def want(self, key, rank=2, first=False, urgent=False):
        host = Host(key.split("/")[0])
        connections = self.hosts.setdefault(host, Connections(self.settings))
        self.slots.want(RepoKey(key), host, connections, rank=rank, first=first, urgent=urgent)

    def take_all(self):
        taken = []
        while (key := self.slots.take()) is not None:
            taken.append(key)
        return taken


def test_urgent_goes_before_class_and_class_before_arrival():
    room = Room()
    room.want("a/low", rank=3)
    room.want("b/normal1")
    room.want("a/normal2")
    room.want("a/critical", rank=0)
    room.want("b/asked", rank=3, urgent=True)
    assert room.take_all() == ["b/asked", "a/critical", "b/normal1", "a/normal2", "a/low"]


def test_a_full_host_does_not_hold_up_others_and_polls_keep_two_connections():
    room = Room(slots=20, connections=5)
    for n in range(6):
        room.want(f"a/{n}")
    room.want("b/0")
    assert room.take_all() == ["a/0", "a/1", "a/2", "b/0"]
    assert room.hosts[Host("a")].may_poll


def test_slots_are_the_bound_over_all_hosts():
    room = Room(slots=2)
    for host in "abc":
        room.want(f"{host}/0")
    assert room.take_all() == ["a/0", "b/0"]
    room.slots.done(RepoKey("a/0"))
    assert room.take_all() == ["c/0"]


def test_while_clones_are_not_allowed_updates_go_on():
    room = Room()
    room.want("a/clone", rank=0, first=True)
    room.want("a/update")
    room.slots.clones_allowed = False
    assert room.take_all() == ["a/update"]
    assert not room.hosts[Host("a")].transfer_waits
    room.slots.clones_allowed = True
    assert room.take_all() == ["a/clone"]


def test_a_transfer_that_only_lacks_a_connection_keeps_the_next_one():
    room = Room(connections=3)
    room.want("a/0")
    connections = room.hosts[Host("a")]
    connections.polls = 3
    assert room.take_all() == []
    connections.polls = 2
    assert not connections.may_poll
    assert room.take_all() == ["a/0"]
    room.slots.done(RepoKey("a/0"))
    assert connections.may_poll


def test_a_clone_that_may_not_start_keeps_no_connection_from_polls():
    room = Room(connections=3)
    room.want("a/clone", first=True)
    room.slots.clones_allowed = False
    room.hosts[Host("a")].polls = 3
    assert room.take_all() == []
    room.hosts[Host("a")].polls = 2
    assert room.hosts[Host("a")].may_poll


def test_one_dropped_while_it_waited_keeps_nothing():
    room = Room(connections=1)
    room.want("a/0")
    room.hosts[Host("a")].polls = 1
    room.slots.take()
    room.slots.drop(RepoKey("a/0"))
    assert not room.hosts[Host("a")].transfer_waits
    assert room.slots.waiting == 0


def test_hastened_repos_go_first():
    room = Room()
    room.want("a/0")
    room.want("a/1", rank=3)
    room.slots.hasten(RepoKey("a/1"))
    assert room.take_all() == ["a/1", "a/0"]


def test_a_repo_cannot_wait_twice():
    room = Room()
    room.want("a/0")
    with pytest.raises(ValueError, match="a/0"):
        room.want("a/0")


@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans(), st.booleans()), max_size=25),
    st.lists(st.integers(0, 30), max_size=40),
)
def test_it_takes_what_sorting_everything_would(slots, connections, wanted, ends):
    room, waiting, running = Room(slots, connections), [], []
    for n, (host, rank, first, urgent) in enumerate(wanted):
        room.want(f"{host}/{n}", rank, first, urgent)
        waiting.append((not urgent, rank, n, f"{host}/{n}"))
    limit = max(1, connections - 2)
    for end in [*ends, *range(60)]:
        able = [w for w in waiting if sum(r[0] == w[3][0] for r in running) < limit]
        expected = min(able)[3] if able and len(running) < slots else None
        key = room.slots.take()
        assert key == expected
        if key is None:
            if running:
                room.slots.done(RepoKey(running.pop(end % len(running))))
        else:
            waiting.remove(min(able))
            running.append(key)
