"""What is asked often, or over all projects, is answered by SQLite from indexes alone."""

from __future__ import annotations

import sqlite3

import pytest
import sqlalchemy as sa

from evermirror.edge.store.store import Store
from evermirror.model.failure import FailureKind
from evermirror.model.figures import ErrorFilter

KEY = "example.org/a"
DAY = (1000.0, 2000.0)

# Each question, and how each of its statements is to begin.
QUESTIONS = {
    "progress": (
        lambda store: store.pull_progress(1.0, 1.0, [KEY]),
        [
            "SCAN pull_projects USING COVERING INDEX ix_pull_projects_progress",
            "SEARCH repos USING COVERING INDEX ix_repos_freshness (pulled=?)",
            "SEARCH repos USING INDEX sqlite_autoindex_repos_1 (key=?)",
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
        ["CO-ROUTINE anon_1 SEARCH tasks USING COVERING INDEX ix_tasks_errors (completed_at>? AND"],
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
    "freshness": (
        lambda store: store.count_fresh(1.0, 1.0),
        [
            "SEARCH repos USING COVERING INDEX ix_repos_freshness "
            "(pulled=? AND priority=? AND status=? AND verified_at>?)",
        ],
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


async def test_the_oldest_verification_is_found_by_one_step_in_each_part_of_the_index(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")
    asked = []
    sa.event.listen(
        store._db._reader.sync_engine, "before_cursor_execute", lambda *a: asked.append((a[2], a[3]))
    )
    await store.worst_verified()
    await store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    statement, parameters = next(one for one in asked if "LIMIT" in one[0])
    plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + statement, parameters)]
    connection.close()
    steps = [step for step in plan if "repos" in step]
    assert steps
    assert all(
        "ix_repos_freshness (pulled=? AND priority=? AND status=? AND verified_at>?)" in s for s in steps
    )
    assert not any("TEMP B-TREE" in step for step in plan)
