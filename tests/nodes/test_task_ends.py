"""A task that ends badly with a worker that is not to do it any more has not ended: somebody else does it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import SyncNow
from evermirror.model.push import Pushed, TargetId
from evermirror.model.task import TaskId
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.tasks.tasks import Tasks
from tests.nodes.test_coordinator import KEY, failed, refused, synced

TASK = TaskId(1)
ANN, BOB = WorkerId(0), WorkerId(1)
NOT_PUSHED = Pushed(TargetId(1), None, failure=Failure(FailureKind.NETWORK_TIMEOUT, "not pushed"))
BAD = {
    "failed": failed(TASK),
    "refused": refused(TASK),
    "not pushed": replace(synced(TASK), pushes=(NOT_PUSHED,)),
}


class Desk:
    """One task, given to Ann, who is its repo's primary; nothing of what is shown here asks the store."""

    def __init__(self) -> None:
        self.repo = SimpleNamespace(primary=ANN, removed=False)
        machine = SimpleNamespace(repo=lambda key: self.repo)
        self.tasks = Tasks(None, None, lambda: SimpleNamespace(machine=machine), lambda: 0.0)
        self.book = self.tasks._book
        self.book.add(SyncNow(KEY, TASK))
        self.give(ANN)

    def give(self, worker):
        self.repo.primary = worker
        self.book.given(SyncNow(KEY, TASK), worker)

    def ends(self, worker, report):
        return self.tasks.counting(worker, report).task_ids == (TASK,)


@pytest.fixture(params=BAD.values(), ids=BAD.keys())
def bad(request):
    return request.param


@pytest.fixture
def desk():
    return Desk()


def test_with_the_one_that_was_given_it_it_ends(desk, bad):
    assert desk.ends(ANN, bad)


def test_with_one_that_fell_silent_it_does_not_until_it_is_given_again(desk, bad):
    desk.book.silent(ANN)
    assert not desk.ends(ANN, bad)
    assert desk.book.waits(TASK)
    desk.give(ANN)
    assert desk.ends(ANN, bad)


def test_while_another_does_it_it_does_not(desk, bad):
    desk.book.silent(ANN)
    desk.give(BOB)
    desk.repo.primary = ANN  # back, and given the repo again
    assert not desk.ends(ANN, bad)
    assert not desk.book.waits(TASK), "it is Bob's"


def test_where_the_repo_moved_to_another_meanwhile_it_goes_there(desk, bad):
    desk.repo.primary = BOB
    assert not desk.ends(ANN, bad)
    assert desk.book.waits(TASK)


def test_where_the_repo_left_the_catalog_or_has_nobody_it_ends(desk, bad):
    desk.repo.primary = None
    assert desk.ends(ANN, bad)
    desk.repo = SimpleNamespace(primary=BOB, removed=True)
    assert desk.ends(ANN, bad)


def test_a_good_end_counts_whoever_tells_it(desk):
    desk.book.silent(ANN)
    desk.give(BOB)
    assert desk.ends(ANN, synced(TASK))


def test_of_a_task_that_a_restart_left_open_any_end_counts(desk, bad):
    desk.book.ended(TASK)
    desk.book.add(SyncNow(KEY, TASK), held=True)
    desk.repo.primary = ANN
    assert desk.ends(ANN, bad)
