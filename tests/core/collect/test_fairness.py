"""Few repos that cannot be had keep nobody else waiting."""

import pytest

from evermirror.core.collect.decisions import AskHolders, Fetch, LoadPending
from evermirror.core.collect.events import End, PendingLoaded
from tests.core.collect.small import NOW, A, B, here, holder, row
from tests.core.collect.test_machine import Stage

HOUR = 3600


def answered(stage, actions):
    """The fetches among these, after every question was answered."""
    found, left = [], list(actions)
    while left:
        match action := left.pop(0):
            case Fetch():
                found.append(action)
            case LoadPending(first, after, limit):
                left += stage.do(PendingLoaded(first, *stage.shelf.pending(first, after, limit)))
            case AskHolders(keys):
                for key in keys:
                    left += stage.told(holder(at=stage.now), name=key.rsplit("/", 1)[1])
            case _:
                assert action is not None
    return found


@pytest.mark.parametrize("end", [End.UPSTREAM_AWAY, End.HOLDER_REFUSED, End.HOLDER_AWAY, End.FAILED])
def test_as_many_repos_as_there_are_seats_that_always_fail_do_not_keep_others_out(end):
    stage = Stage(queue_max=20, audits_per_minute=0, strikes=HOUR)  # their holder is not accused meanwhile
    under_way = []
    for number in range(10):
        under_way += answered(stage, stage.change(f"bad{number}", seq=number + 1))
    under_way += answered(stage, stage.change("good", seq=11))
    assert len(stage.machine.queue) == 10, "every seat is taken"
    for _ in range(HOUR):
        while under_way:
            order = under_way.pop(0)
            if order.key.endswith("good"):
                return
            under_way += answered(stage, stage.end(end, of=order))
        under_way += answered(stage, stage.tick())
    pytest.fail("nobody fetched it within an hour")


def test_what_fails_again_and_again_does_not_go_before_what_was_never_tried():
    names = [f"repo{number:02}" for number in range(40)]
    rows = [row(name, wanted=B, here=here(A), place=NOW) for name in names]
    stage = Stage(rows=rows, fetches=1, audits_per_minute=0)
    tried, under_way, ends_at = [], answered(stage, stage.tick()), 0.0
    while len(tried) < len(names):
        if under_way and stage.now >= ends_at:
            (order,) = under_way
            tried.append(order.key)
            under_way, ends_at = answered(stage, stage.end(End.FAILED, of=order)), stage.now + 60
        under_way += answered(stage, stage.tick())
    assert len(set(tried)) == len(names)
