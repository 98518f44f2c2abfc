"""What is asked often, or over all projects, is answered by SQLite from indexes alone."""

from __future__ import annotations

import sqlite3

import pytest
import sqlalchemy as sa

from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import RepoFailed
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import ErrorFilter
from evermirror.model.repo import Host, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import TaskStatus

KEY = "example.org/a"
DAY = (1000.0, 2000.0)

# Each question, and how each of its statements is to begin.
QUESTIONS = {
    "progress": (
        lambda store: store.pull_progress(1.0, [KEY]),
        [
            "SCAN pull_projects USING COVERING INDEX ix_pull_projects_progress",
            "SEARCH repos USING INDEX sqlite_autoindex_repos_1 (key=?)",
        ],
    ),
    "periods": (
        lambda store: store.periods(*DAY),
        [
            "SEARCH tasks USING COVERING INDEX ix_tasks_ended (priority=? AND status=? AND completed_at>?)",
        ],
    ),
    "error statistics": (
        lambda store: store.error_statistics(*DAY),
        [
            "CO-ROUTINE anon_1 CO-ROUTINE (subquery-4) CO-ROUTINE (subquery-5) MATERIALIZE anon_2 "
            "SEARCH tasks USING COVERING INDEX ix_tasks_errors (completed_at>? AND"
        ],
    ),
    "errors": (
        lambda store: store.error_page(None, ErrorFilter(FailureKind.UNKNOWN, *DAY)),
        [
            "SEARCH tasks USING INDEX ix_tasks_errors (completed_at>? AND completed_at<?)",
            "SEARCH tasks USING COVERING INDEX ix_tasks_errors (completed_at>? AND completed_at<?)",
        ],
    ),
    "errors of a project": (
        lambda store: store.error_page(KEY, ErrorFilter()),
        [
            "SEARCH tasks USING INDEX ix_tasks_repo_errors (repo=?)",
            "SEARCH tasks USING COVERING INDEX ix_tasks_repo_errors (repo=?)",
        ],
    ),
    "tasks of a project": (
        lambda store: store.task_page(KEY, 1, 10),
        [
            "SEARCH tasks USING INDEX ix_tasks_repo_id (repo=?)",
            "SEARCH tasks USING COVERING INDEX ix_tasks_repo_id (repo=?)",
        ],
    ),
    "tasks of all": (
        lambda store: store.newest_tasks(None, 1000, 50),
        ["SEARCH tasks USING INTEGER PRIMARY KEY (rowid<?)"],
    ),
    "any private repo": (
        lambda store: store.any_private_repo(),
        ["SEARCH repos USING COVERING INDEX ix_repos_private (removed_at=?"],
    ),
    "failed tasks of all": (
        lambda store: store.newest_tasks(TaskStatus.FAILED, 1000, 50),
        ["SEARCH tasks USING INDEX ix_tasks_status_id (status=? AND id<?)"],
    ),
}
MAY_SORT = {"error statistics", "errors", "errors of a project"}  # by repo, and errors of the same moment


@pytest.mark.parametrize("question", QUESTIONS)
async def test_questions_are_answered_from_their_indexes(tmp_path, question):
    ask, expected = QUESTIONS[question]
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")
    asked = []

    def note(_, __, statement, parameters, ___, ____):
        if statement.startswith("SELECT"):
            asked.append((statement, parameters))

    sa.event.listen(store._db._reader.sync_engine, "before_cursor_execute", note)
    await ask(store)
    await store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    plans = [
        " ".join(str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + statement, parameters))
        for statement, parameters in asked
    ]
    connection.close()
    assert len(plans) == len(expected)
    for plan, begin in zip(plans, expected, strict=True):
        assert plan.startswith(begin), plan
        assert "SCAN repos" not in plan
        assert "SCAN tasks" not in plan
        assert question in MAY_SORT or "TEMP B-TREE" not in plan


async def test_the_overview_takes_one_walk_through_an_index_and_searches_for_the_rest(tmp_path):
    """The walk is over what is counted of every repo; the oldest of each class is one step."""
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")
    failed = RepoFailed(KEY, Failure(FailureKind.NOT_FOUND, "404"), RepoStatus.GONE, 1, 1.0)
    await store.upsert_repos([RepoRecord(RepoSpec(KEY, f"https://{KEY}", Host("h")))])
    await store.apply([failed])
    asked = []
    sa.event.listen(
        store._db._reader.sync_engine, "before_cursor_execute", lambda *a: asked.append((a[2], a[3]))
    )
    await store.overview_counts(1.0)
    await store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    plans = [
        [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + statement, parameters)]
        for statement, parameters in asked
        if statement.startswith("SELECT")
    ]
    connection.close()
    begin = "USING COVERING INDEX ix_repos_freshness (pulled=? AND priority=? AND status=? AND verified_at"
    walk, never, late, oldest, kinds, samples = [[step for step in plan if "repos" in step] for plan in plans]
    assert walk == ["SCAN repos USING COVERING INDEX ix_repos_freshness"]
    assert [s.startswith(f"SEARCH repos {begin}=?") for s in never] == [True]
    assert [s.startswith(f"SEARCH repos {begin}<?") for s in late] == [True]
    assert oldest
    assert all(f"{begin}>?)" in step for step in oldest)
    assert all("COVERING INDEX ix_repos_failure_kind (failure_kind" in step for step in kinds)
    assert all("INDEX ix_repos_failure_kind (failure_kind=?" in step for step in samples)
    assert not any("TEMP B-TREE" in step for plan in plans for step in plan)
