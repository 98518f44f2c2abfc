"""What is noted of the pressure on sources: how it stands, and what happened since the note before."""

from __future__ import annotations

from evermirror.core.pull.views import PullView
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import Pressure
from evermirror.model.messages import Failed, Refused, Synced
from evermirror.model.pull import Load, LoadLevel
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskId
from evermirror.nodes.coordinator.pull.pull_figures import PullFigures

KEY = RepoKey("git.example.org/a")
LOAD = Load(LoadLevel.LOW, "cpu 3 %")
VIEW = PullView(5, (), False, False, 2, {Priority.HIGH: 3, Priority.LOW: 4}, LOAD, (), 9)
FAILURE = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")


def synced(look_s=0.25, phases_s=(), received=0, tasks=(1,)):
    return Synced(
        KEY, tuple(map(TaskId, tasks)), RefsDigest("a" * 64), None, 1, (), 0, 0, received, 1, False,
        100.0, 100.0, 109.0, Activity(), phases_s=phases_s, look_s=look_s,
    )  # fmt: skip


def test_what_happened_is_told_once():
    figures = PullFigures(lambda: 0.0, demote_after=3)
    figures.reported(synced(phases_s=(("fetch", 1.5), ("publish", 9.0)), received=700))
    figures.reported(synced(look_s=None, tasks=()))  # nobody asked for it
    figures.reported(Failed(KEY, (TaskId(2),), FAILURE, True, 1, 100.0, 102.0, None))
    figures.reported(Refused(KEY, (TaskId(3),), FAILURE, 100.0, 150.0))  # nobody looked
    first = figures.pressure(VIEW)
    assert first == Pressure(5, 2, 7, LOAD, looks=2, source_s=3.75, received_bytes=700)
    assert figures.pressure(VIEW) == Pressure(5, 2, 7, LOAD)
    figures.reported(synced(received=1))
    assert figures.pressure(VIEW).received_bytes == 1
    assert figures.totals(VIEW).received_bytes == 701  # which are counted on


def test_a_clock_that_was_set_back_takes_nothing_away():
    figures = PullFigures(lambda: 0.0, demote_after=3)
    figures.reported(Failed(KEY, (TaskId(2),), FAILURE, True, 1, 102.0, 100.0, None))
    assert figures.pressure(VIEW).source_s == 0.0
