"""A worker is believed only where it may speak: of its repos, and of their tasks."""

from __future__ import annotations

from evermirror.model.activity import NO_ACTIVITY
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Excused, Failed, HeldRepo, Kept, Released, Started, Synced, Verified
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId
from evermirror.nodes.coordinator.believing import believed

OWN, OTHER = RepoKey("github.com/x/own"), RepoKey("github.com/x/other")
MINE, FOREIGN = TaskId(1), TaskId(2)
NOW = 1_700_000_000.0
DIGEST = RefsDigest("ab" * 32)


def given(key):
    return key == OWN


def open_tasks(key, ids):
    return tuple(i for i in ids if key == OWN and i == MINE)


def believe(report):
    return believed(report, given, open_tasks)


def synced(key, verified_at):
    return Synced(
        key, (MINE, FOREIGN), DIGEST, None, 1, (), 0, 0, 0, 0, False, NOW, verified_at, NOW, NO_ACTIVITY
    )


def test_a_failure_of_a_repo_that_it_was_not_given_counts_for_nothing():
    failure = Failure(FailureKind.NOT_FOUND, "gone, says one who never had it")
    report = Failed(OTHER, (MINE,), failure, True, 9, NOW, NOW, None)
    assert believe(report) is None
    assert believe(Started(OTHER, (MINE,), NOW)) is None


def test_a_sync_ends_only_tasks_of_its_own_repo():
    report = believe(synced(OWN, NOW - 5))
    assert report.task_ids == (MINE,)
    assert report.verified_at == NOW - 5


def test_of_a_report_about_several_only_its_own_repos_count():
    assert believe(Verified(((OTHER, NOW), (OWN, NOW)))).items == ((OWN, NOW),)
    assert believe(Excused((OTHER, OWN))).keys == (OWN,)
    told = (HeldRepo(OTHER, DIGEST, NOW), HeldRepo(OWN, DIGEST, NOW), HeldRepo(OWN, None, None))
    kept = believe(Kept(told))
    assert kept.items == (HeldRepo(OWN, DIGEST, NOW), HeldRepo(OWN, None, None))


def test_what_says_nothing_about_repos_of_others_passes_as_it_is():
    report = Released((OTHER, OWN))  # nothing of them is on its disk: true of any that it never had
    assert believe(report) is report
