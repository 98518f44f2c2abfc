"""How far pull mirroring is, at fleet scale: the overview, errors and pages, with a month of history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench.measure import Bench, Context, Line, Sense, Stopwatch
from bench.worlds.many_repos import filling
from evermirror.edge.store.rows import failure_in
from evermirror.edge.store.store import Store
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import ErrorFilter
from evermirror.model.repo import Priority, RepoKey
from tests.support.plain_counts import progress_of

NOW = 1_700_000_000.0
DAY_S = 86_400.0
DAYS = 30
RUNNING = 50
RUNS = 4  # of looks without a change, in a project's month: as many as there are pushes
ERRORS = 2  # of a project, in a month
KINDS = ("NETWORK_TIMEOUT", "AUTH_FAILED", "NOT_FOUND", "CONFLICT", "UNKNOWN")
# Seed 003's shares: 5, 15, 50 and 30 of a hundred.
CLASSES = ("critical",) + ("high",) * 3 + ("normal",) * 10 + ("low",) * 6


def _key(i: int) -> RepoKey:
    return RepoKey(f"forge-{i % 7}.example/team-{i * 7919 % 50_021}/some-repository-{i}")


def _fill(path: Path, projects: int, adaptive: int) -> None:
    """Projects, as many repos without a pull configuration as asked, and a month of history: rows that the
    database makes by itself."""
    given = {
        "all": projects + adaptive,
        "projects": projects,
        "now": NOW,
        "month": DAYS * DAY_S,
        "day": DAY_S,
        "runs": RUNS,
        "errors": ERRORS,
        "result": _RESULT,
    }
    with filling(path, "repos", "pull_projects", "tasks") as connection:
        connection.create_function("chance", 2, _chance, deterministic=True)
        connection.create_function("class_of", 1, lambda i: CLASSES[i * 7 % len(CLASSES)], deterministic=True)
        connection.create_function("kind_of", 1, lambda i: KINDS[i % len(KINDS)], deterministic=True)
        connection.create_function("failure_of", 1, _failure_of, deterministic=True)
        for statement in (_REPOS, _PROJECTS, _RUNS, _ERRORS):
            connection.execute(statement, given)


def _chance(i: int, salt: int) -> float:
    """From 0 to 1, another for each number, and again for each salt."""
    return (i * 7919 + salt * 15_485_863 + 104_729) * 48_271 % 1_000_003 / 1_000_003


_REPOS = """
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :all),
    named AS (SELECT i, 'forge-' || (i % 7) || '.example' AS host,
        '/team-' || (i * 7919 % 50021) || '/some-repository-' || i AS path FROM n)
    INSERT INTO repos (id, key, url, host, source, info, priority, mode, private, enabled, status,
        verified_at, refs_count, size_bytes, consecutive_failures, activity_fast, activity_middle,
        activity_slow, activity_as_of, last_push_at, created_at, updated_at, pulled)
    SELECT i + 1, host || path, 'https://' || host || path, host, 'catalog', '{}', class_of(i), 'exact', 0, 1,
        CASE WHEN chance(i, 1) < 0.97 THEN 'active' ELSE 'failing' END, :now - chance(i, 2) * 1.1 * :day,
        9, 100000, 0, 0.1, 0.2, 0.3, 0, 0, 0, 0, i < :projects
    FROM named
"""
_PROJECTS = """
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :projects),
    found AS (SELECT i, chance(i, 3) < 0.97 AS well, :now - chance(i, 4) * 1.1 * 14400 AS at FROM n)
    INSERT INTO pull_projects (repo, priority, interval_s, enabled, last_status, last_sync_at, next_sync_at,
        failures, paused, max_retries, retry_delay_s, overrides, catalog, created_at, updated_at,
        last_failure, last_failure_kind, standing, overdue_at)
    SELECT i + 1, class_of(i + 3), 7200, 1, CASE WHEN well THEN 'skipped' ELSE 'failed' END, at, at + 7200,
        CASE WHEN well THEN 0 ELSE 1 + i % 4 END, '', 3, 300, '[]', '[]', 0, 0,
        CASE WHEN NOT well THEN failure_of(kind_of(i)) END, CASE WHEN NOT well THEN kind_of(i) END,
        CASE WHEN well THEN 'synced' ELSE 'failed' END, at + 14400
    FROM found
"""
# Pushes, each with the looks after it that found nothing; all projects' first ones, then their second ones.
_RUNS = """
    WITH RECURSIVE r(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM r WHERE k + 1 < :runs),
    pushed AS (SELECT key, priority, :now - :month + :month * (k + chance(id, 5 + k)) / :runs AS at,
        CASE WHEN k + 1 < :runs THEN :now - :month + :month * (k + 1 + chance(id, 6 + k)) / :runs
            ELSE :now - chance(id, 19) * 7200 END AS until
        FROM r CROSS JOIN repos WHERE pulled),
    told AS (SELECT *, CASE WHEN push THEN at ELSE until END AS came
        FROM pushed CROSS JOIN (SELECT 1 AS push UNION ALL SELECT 0))
    INSERT INTO tasks (repo, priority, status, "trigger", "user", scheduled_at, started_at, completed_at,
        has_changes, changes_count, progress_phase, result, retry_count, folded, created_at, updated_at)
    SELECT key, priority, CASE WHEN push THEN 'success' ELSE 'skipped' END, 'schedule', '', came, came, came,
        push, push, '', CASE WHEN push THEN :result END, 0,
        CASE WHEN push THEN 0 ELSE CAST((until - at) / 7200 AS INTEGER) END, at, came
    FROM told
"""
_ERRORS = """
    WITH RECURSIVE r(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM r WHERE k + 1 < :errors),
    failed AS (SELECT key, priority, :now - chance(id, 20 + k) * :month AS at, kind_of(id + k) AS kind
        FROM r CROSS JOIN repos WHERE pulled)
    INSERT INTO tasks (repo, priority, status, "trigger", "user", scheduled_at, started_at, completed_at,
        has_changes, changes_count, progress_phase, failure, failure_kind, retry_count, folded,
        created_at, updated_at)
    SELECT key, priority, 'failed', 'schedule', '', at, at, at, 0, 0, '', failure_of(kind), kind, 0, 0, at, at
    FROM failed
"""


def _failure_of(kind: str) -> str:
    failure = Failure(FailureKind(kind), "no answer", stderr="fatal: unable to access " * 8)
    return failure_in(failure, None)


_RESULT = '{"digest":"' + "ab" * 32 + '","changes":[' + ",".join(['{"ref":"refs/heads/main"}'] * 20) + "]}"


async def _walked(store: Store) -> object:
    """The obvious way: every project as a value, counted in Python."""
    return progress_of(await store.load_projects(), NOW)


def _run(context: Context) -> list[Line]:
    n = context.size(100_000, 500)
    path = context.folder / "pull.sqlite"
    rounds = context.repeats(3)
    syncing = [_key(i * 7) for i in range(RUNNING)]
    with asyncio.Runner() as runner:
        runner.run(runner.run(Store.open(f"sqlite:///{path}")).close())
        _fill(path, n, n)
        store = runner.run(Store.open(f"sqlite:///{path}"))

        def ms(ask: Callable[[], Coroutine[Any, Any, object]], times: int = rounds) -> tuple[float, ...]:
            taken = []
            for _ in range(times):
                with Stopwatch() as watch:
                    runner.run(ask())
                taken.append(watch.cost.cpu_s * 1000)
            return tuple(taken)

        def line(
            what: str, ask: Callable[[], Coroutine[Any, Any, object]], goal: float | None, promise: str = ""
        ) -> Line:
            return Line(what, "ms CPU", ms(ask), sense=Sense.AT_MOST, goal=goal, promise=promise)

        counted = runner.run(store.pull_progress(NOW, syncing))
        if sum(c.total for c in counted.values()) != n or set(counted) != set(Priority):
            raise RuntimeError(f"{counted} is not what was written")
        many = f"progress of {n:,} projects among {2 * n:,} repos, by class"
        progress = ms(lambda: store.pull_progress(NOW, syncing))
        lines = [
            Line(many, "ms CPU", progress, ms(lambda: _walked(store), 1)),
            Line(
                "the same, alone",
                "ms CPU",
                progress,
                sense=Sense.AT_MOST,
                goal=100,
                promise="pull-progress",
            ),
            line("error statistics of 24 h", lambda: store.error_statistics(NOW - DAY_S, NOW), 50),
            line("a page of a project's tasks", lambda: store.task_page(_key(5), 1, 10), 50),
            line("a page of its errors", lambda: store.error_page(_key(5), ErrorFilter()), 50),
            line("a page of all errors", lambda: store.error_page(None, ErrorFilter(begin=NOW - DAY_S)), 50),
            line("what happened in 24 h, by class", lambda: store.periods(NOW - DAY_S, NOW), None),
            line("a page of projects, by name", lambda: store.page_projects(page=3), None),
            line("a search for projects", lambda: store.page_projects(search="repository-77"), None),
            line("projects that fail, a page", lambda: store.failed_projects(3), None),
            Line("all projects loaded", "ms CPU", ms(store.load_projects, 1), sense=Sense.AT_MOST),
        ]
        runner.run(store.close())
    return lines


BENCH = Bench(
    name="pull-progress",
    measures="figures of pull mirroring, with a month of history, counted from indexes",
    alternative="every project and repo loaded and counted",
    run=_run,
    order=36,
    takes_s=25,
)
