import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.brake import Brake


def braked(suspects, members, share=0.5):
    brake = Brake(share)
    brake.update(suspects, members)
    return brake.on


def test_more_than_half_is_braked_and_exactly_half_is_not():
    assert not braked(5, 10)
    assert braked(6, 10)
    assert not braked(500, 1001)
    assert braked(501, 1001)


def test_of_two_workers_one_may_die_of_three_not_two():
    assert not braked(1, 2)
    assert braked(2, 2)
    assert not braked(1, 3)
    assert braked(2, 3)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999, 1.0])
def test_where_everybody_is_suspect_nobody_could_take_over_whatever_the_share(share):
    assert braked(1, 1, share)
    assert braked(7, 7, share)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_without_suspects_there_is_nothing_to_brake(share):
    assert not braked(0, 0, share)
    assert not braked(0, 9, share)


def test_a_share_of_one_brakes_only_where_all_are_suspect_and_none_at_the_first_suspect():
    assert not braked(9, 10, share=1.0)
    assert braked(1, 10, share=0.0)


@pytest.mark.parametrize("percent", range(1, 100))
def test_exactly_the_share_is_never_more_than_it(percent):
    assert not braked(percent, 100, share=percent / 100)
    assert braked(percent + 1, 100, share=percent / 100)


def test_update_tells_only_changes():
    brake = Brake(0.5)
    told = [brake.update(suspects, 10) for suspects in (0, 5, 6, 7, 6, 5, 4, 6)]
    assert told == [False, False, True, False, False, True, False, True]


def test_overruled_it_stays_off_until_no_more_than_the_share_is_suspect_once():
    brake = Brake(0.5)
    brake.update(6, 10)
    assert brake.overrule()
    assert not brake.on
    assert not brake.update(6, 10)
    assert not brake.update(8, 10)
    assert not brake.on
    brake.update(5, 10)
    assert brake.update(6, 10)
    assert brake.on


def test_overruling_a_brake_that_is_off_is_no_permission_for_the_next_time():
    brake = Brake(0.5)
    brake.update(2, 10)
    assert not brake.overrule()
    assert brake.update(6, 10)
    assert brake.on


def test_overruling_twice_is_overruling_once():
    brake = Brake(0.5)
    brake.update(6, 10)
    brake.overrule()
    assert not brake.overrule()
    assert not brake.update(6, 10)
    assert not brake.on


@given(st.integers(1, 50), st.integers(0, 50))
def test_after_overruling_all_suspects_can_go_down_one_by_one_and_then_it_is_armed_again(suspects, alive):
    brake = Brake(0.5)
    brake.update(suspects, suspects + alive)
    brake.overrule()
    for left in range(suspects - 1, -1, -1):
        brake.update(left, left + alive)
        assert not brake.on
    brake.update(2 * alive + 2, 3 * alive + 2)
    assert brake.on


def test_numbers_that_cannot_be_are_an_error():
    for suspects, members in ((-1, 3), (4, 3)):
        with pytest.raises(ValueError, match="suspects"):
            Brake(0.5).update(suspects, members)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="share"):
            Brake(share)


class DumbBrake:
    """The picture of the module, state by state."""

    def __init__(self, percent):
        self.percent, self.state = percent, "off"

    def update(self, suspects, members):
        more = 100 * suspects > self.percent * members or (members > 0 and suspects == members)
        if not more:
            self.state = "off"
        elif self.state == "off":
            self.state = "on"

    def overrule(self):
        if self.state == "on":
            self.state = "overruled"


numbers = st.integers(0, 12).flatmap(lambda members: st.tuples(st.integers(0, members), st.just(members)))


@given(st.integers(0, 100), st.lists(st.one_of(numbers, st.none()), max_size=40))
def test_it_goes_through_the_states_of_its_picture(percent, happenings):
    brake, dumb = Brake(percent / 100), DumbBrake(percent)
    for happening in happenings:
        before = brake.on
        changed = brake.overrule() if happening is None else brake.update(*happening)
        if happening is None:
            dumb.overrule()
        else:
            dumb.update(*happening)
        assert brake.on == (dumb.state == "on")
        assert changed == (brake.on != before)
