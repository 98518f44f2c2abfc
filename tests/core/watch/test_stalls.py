from evermirror.core.watch.stalls import Sample, StallWatch


def sample(pending=3, progress=0, about="fleet"):
    return Sample(about, "first clones", pending, progress)


def test_work_that_waits_and_does_not_move_is_told_after_a_while_and_for_as_long_as_it_lasts():
    watch = StallWatch(3)
    for _ in range(3):
        assert watch.look([sample()]) == []
    (stall,) = watch.look([sample(pending=4)])
    assert (stall.about, stall.what, stall.pending, stall.looks) == ("fleet", "first clones", 4, 3)
    assert watch.look([sample()])


def test_any_movement_begins_the_wait_anew():
    watch = StallWatch(1)
    watch.look([sample()])
    assert watch.look([sample(progress=1)]) == []
    assert watch.look([sample(progress=1)])
    assert watch.look([sample(progress=2)]) == []


def test_where_nothing_waits_nothing_stalls():
    watch = StallWatch(1)
    for _ in range(60):
        assert watch.look([sample(pending=0)]) == []
    assert watch.look([sample()]) == []


def test_each_place_is_looked_at_alone():
    watch = StallWatch(1)
    watch.look([sample(), sample(about="attic")])
    (stall,) = watch.look([sample(progress=1), sample(about="attic")])
    assert stall.about == "attic"
