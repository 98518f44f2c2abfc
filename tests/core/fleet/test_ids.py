import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.ids import IdBitmap, NoIdFree
from evermirror.model.worker import WORKERS_MAX, WorkerId


def test_the_lowest_free_id_is_given():
    ids = IdBitmap()
    assert [ids.take() for _ in range(3)] == [0, 1, 2]
    ids.free(WorkerId(1))
    assert [ids.take(), ids.take()] == [1, 3]


def test_ids_known_from_before_are_not_given_again():
    ids = IdBitmap()
    for known in (0, 2):
        ids.use(WorkerId(known))
    assert [ids.take(), ids.take()] == [1, 3]
    assert list(ids.used()) == [0, 1, 2, 3]


def test_when_all_are_in_use_it_says_what_to_do():
    ids = IdBitmap(limit=2)
    ids.take(), ids.take()
    with pytest.raises(NoIdFree, match="all 2 worker ids are in use; retire"):
        ids.take()
    ids.free(WorkerId(0))
    assert ids.take() == 0


def test_the_last_id_is_below_the_mark_for_nobody():
    ids = IdBitmap()
    for known in range(WORKERS_MAX):
        ids.use(WorkerId(known))
    assert len(ids) == WORKERS_MAX
    with pytest.raises(NoIdFree):
        ids.take()


@pytest.mark.parametrize("wrong", [-1, WORKERS_MAX])
def test_ids_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="not within"):
        IdBitmap().use(WorkerId(wrong))
    assert WorkerId(wrong) not in IdBitmap()


def test_an_id_is_neither_used_nor_freed_twice():
    ids = IdBitmap()
    ids.use(WorkerId(5))
    with pytest.raises(ValueError, match="5 is in use already"):
        ids.use(WorkerId(5))
    ids.free(WorkerId(5))
    with pytest.raises(ValueError, match="5 is not in use"):
        ids.free(WorkerId(5))


@given(st.lists(st.tuples(st.sampled_from(["take", "use", "free"]), st.integers(0, 9))))
def test_it_does_what_a_set_of_used_ids_would(steps):
    ids, used = IdBitmap(limit=8), set()
    for step, worker in steps:
        free = sorted(set(range(8)) - used)
        if step == "take" and free:
            assert ids.take() == free[0]
            used.add(free[0])
        elif step == "use" and worker in free:
            ids.use(WorkerId(worker))
            used.add(worker)
        elif step == "free" and worker in used:
            ids.free(WorkerId(worker))
            used.remove(worker)
        assert (list(ids.used()), len(ids)) == (sorted(used), len(used))
