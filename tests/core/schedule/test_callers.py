import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.schedule.callers import CALLERS_MAX, Asked, Callers
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId

X = RepoKey("h/x")


def test_requests_for_a_queued_repo_share_one_run():
    callers = Callers()
    assert [callers.ask(X, TaskId(n)) for n in (1, 2, 3)] == [Asked.NEW, Asked.MERGED, Asked.MERGED]
    assert callers.started(X) == (1, 2, 3)
    ended = callers.ended(X)
    assert ended.answered == (1, 2, 3)
    assert not ended.again


def test_one_that_comes_while_it_runs_gets_a_run_of_its_own():
    callers = Callers()
    callers.ask(X, TaskId(1))
    callers.started(X)
    assert callers.ask(X, TaskId(2)) is Asked.NEW
    assert callers.ask(X, TaskId(3)) is Asked.MERGED
    ended = callers.ended(X)
    assert (ended.answered, ended.again) == ((1,), True)
    assert callers.started(X) == (2, 3)


def test_a_command_sent_again_is_one_caller():
    callers = Callers()
    callers.ask(X, TaskId(1))
    assert callers.ask(X, TaskId(1)) is Asked.KNOWN
    callers.started(X)
    assert callers.ask(X, TaskId(1)) is Asked.KNOWN
    assert callers.ended(X).answered == (1,)


def test_too_many_callers_are_refused_and_those_before_them_answered():
    callers = Callers()
    answers = [callers.ask(X, TaskId(n)) for n in range(CALLERS_MAX + 1)]
    assert answers[-1] is Asked.REFUSED
    callers.started(X)
    assert len(callers.ended(X).answered) == CALLERS_MAX


def test_a_scheduled_poll_that_nobody_asked_for_answers_nobody():
    callers = Callers()
    assert callers.started(X) == ()
    assert callers.ended(X).answered == ()


def test_the_same_repo_does_not_run_twice():
    callers = Callers()
    callers.ask(X, TaskId(1))
    callers.started(X)
    with pytest.raises(ValueError, match="h/x"):
        callers.started(X)


def test_one_who_joins_a_run_is_answered_by_it_and_once():
    callers = Callers()
    callers.started(X)
    assert callers.join(X, TaskId(1)) is Asked.MERGED
    assert callers.join(X, TaskId(1)) is Asked.KNOWN
    callers.ask(X, TaskId(2))
    assert callers.join(X, TaskId(2)) is Asked.KNOWN, "it waits for a run of its own"
    callers.put_off(X)
    assert callers.started(X) == (TaskId(1), TaskId(2))
    assert all(callers.join(X, TaskId(n)) is Asked.MERGED for n in range(3, CALLERS_MAX + 1))
    assert callers.join(X, TaskId(9999)) is Asked.REFUSED
    assert callers.ended(X).answered == tuple(TaskId(n) for n in range(1, CALLERS_MAX + 1))


@given(st.lists(st.sampled_from(["ask", "start", "end", "drop"]), max_size=60))
def test_every_caller_is_answered_exactly_once_and_by_a_run_that_began_after_it_asked(script):
    callers, running, answered, asked, asked_before = Callers(), False, [], 0, 0
    for step in [*script, "end", "start", "end"]:
        if step == "ask":
            asked += 1
            callers.ask(X, TaskId(asked))
        elif step == "start" and not running:
            callers.started(X)
            running, asked_before = True, asked
        elif step == "end" and running:
            ended = callers.ended(X)
            assert all(task <= asked_before for task in ended.answered)
            assert ended.again == (asked > asked_before)
            answered += ended.answered
            running = False
        elif step == "drop":
            answered += callers.dropped(X)
            running, asked_before = False, asked
    answered += callers.dropped(X)
    assert sorted(answered) == list(range(1, asked + 1))
