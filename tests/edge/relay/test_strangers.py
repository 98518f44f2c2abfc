"""Who must go when a relay has one stranger too many."""

from __future__ import annotations

from evermirror.edge.relay.limits import RelayLimits
from evermirror.edge.relay.strangers import Strangers

LIMITS = RelayLimits(
    strangers_max=10, strangers_per_network=5, known_strangers_max=4, known_s=100.0, known_max=3
)


class Door:
    """Strangers with numbers for names."""

    def __init__(self) -> None:
        self.now = 0.0
        self.strangers = Strangers(LIMITS, lambda: self.now)
        self.inside: set[int] = set()
        self.count = 0

    def come(self, address: str) -> int:
        self.count += 1
        out = self.strangers.enter(self.count, address)
        if out is not None:
            self.inside.remove(out)
        self.inside.add(self.count)
        assert len(self.strangers) == len(self.inside) <= 14
        return self.count


def test_the_oldest_of_the_network_with_the_most_makes_room():
    door = Door()
    honest = door.come("203.0.113.1")
    silent = [door.come(f"198.51.100.{1 + n % 3}") for n in range(9)]
    assert door.inside == {honest, *silent}
    newcomer = door.come("203.0.113.2")
    assert door.inside == {honest, newcomer, *silent[1:]}


def test_a_whole_ipv6_network_counts_as_one_address():
    door = Door()
    honest = [door.come(f"203.0.113.{n}") for n in range(5)]
    flood = [door.come(f"2001:db8::{n:x}") for n in range(1, 1000)]
    assert door.inside == {*honest, *flood[-5:]}


def test_many_networks_with_one_stranger_each_push_out_the_oldest():
    door = Door()
    came = [door.come(f"198.51.100.{n}") for n in range(50)]
    assert door.inside == set(came[-10:])


def test_networks_that_somebody_was_admitted_from_have_places_of_their_own():
    door = Door()
    door.strangers.admitted("203.0.113.1")
    known = door.come("203.0.113.1")
    for n in range(1000):
        door.come(f"2001:db8:{n:x}::1")
    assert known in door.inside
    door.now += 101.0
    later = door.come("203.0.113.1")
    for n in range(10):
        door.come(f"2001:db8:{n:x}::1")
    assert later not in door.inside, "that was too long ago"


def test_a_known_network_cannot_take_the_places_of_another():
    door = Door()
    for address in ("203.0.113.1", "203.0.113.2"):
        door.strangers.admitted(address)
    other = door.come("203.0.113.2")
    for _ in range(100):
        door.come("203.0.113.1")
    assert other in door.inside


def test_what_is_remembered_of_networks_is_bounded():
    door = Door()
    for n in range(100):
        door.strangers.admitted(f"203.0.113.{n}")
    assert len(door.strangers._admitted) == 3
