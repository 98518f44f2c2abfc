"""How far pull mirroring is, at fleet scale: the overview, errors and pages, with a month of history."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench.measure import Bench, Context, Line, Sense, Stopwatch
from evermirror.core.watch.progress import progress_of
from evermirror.edge.store.store import Store
from evermirror.edge.store.tables import repos
from evermirror.model.figures import ErrorFilter
from evermirror.model.repo import Priority, RepoKey

NOW = 1_700_000_000.0
DAY_S = 86_400.0
DAYS = 30
BOUND_S = DAY_S
RUNNING = 50
RUNS = 4  # of looks without a change, in a project's month: as many as there are pushes
ERRORS = 2  # of a project, in a month
KINDS = ("NETWORK_TIMEOUT", "AUTH_FAILED", "NOT_FOUND", "CONFLICT", "UNKNOWN")
# Seed 003's shares: 5, 15, 50 and 30 of a hundred.
CLASSES = ("critical",) + ("high",) * 3 + ("normal",) * 10 + ("low",) * 6


def _key(i: int) -> RepoKey:
    return RepoKey(f"forge-{i % 7}.example/team-{i * 7919 % 50_021}/some-repository-{i}")


def _fill(path: Path, projects: int, adaptive: int) -> None:
    """Projects, as many repos without a pull configuration as asked, and a month of history."""
    chance = random.Random(3)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA cache_size=-200000")
    with connection:
        connection.executemany(_REPO, (_repo(i, i < projects, chance) for i in range(projects + adaptive)))
        connection.executemany(_PROJECT, (_project(i, chance) for i in range(projects)))
        connection.executemany(_TASK, (row for i in range(projects) for row in _month(i, chance)))
    connection.close()


_REPO = """
    INSERT INTO repos (id, key, url, host, source, info, priority, mode, private, enabled, status,
        verified_at, refs_count, size_bytes, consecutive_failures, activity_fast, activity_middle,
        activity_slow, activity_as_of, last_push_at, created_at, updated_at, pulled)
    VALUES (?1, ?2, 'https://' || ?2, ?3, 'catalog', '{}', ?4, 'exact', 0, 1, ?5, ?6,
        9, 100000, 0, 0.1, 0.2, 0.3, 0, 0, 0, 0, ?7)
"""
_PROJECT = """
    INSERT INTO pull_projects (repo, priority, interval_s, enabled, last_status, last_sync_at, next_sync_at,
        failures, paused, max_retries, retry_delay_s, overrides, catalog, created_at, updated_at,
        last_failure, last_failure_kind, standing, overdue_at)
    VALUES (?1, ?2, 7200, 1, ?3, ?4, ?4 + 7200, ?5, '', 3, 300, '[]', '[]', 0, 0, ?6, ?7, ?8, ?4 + 14400)
"""
_TASK = """
    INSERT INTO tasks (repo, priority, status, "trigger", "user", scheduled_at, started_at, completed_at,
        has_changes, changes_count, progress_phase, result, failure, failure_kind, retry_count, folded,
        created_at, updated_at)
    VALUES (?1, ?2, ?3, 'schedule', '', ?4, ?4, ?4, ?5, ?5, '', ?6, ?7, ?8, 0, ?9, ?10, ?4)
"""
_FAILURE = '{"kind":"%s","message":"no answer","stderr":"' + "fatal: unable to access " * 8 + '"}'
_RESULT = '{"digest":"' + "ab" * 32 + '","changes":[' + ",".join(['{"ref":"refs/heads/main"}'] * 20) + "]}"


def _repo(i: int, pulled: bool, chance: random.Random) -> tuple[Any, ...]:
    status = "active" if chance.random() < 0.97 else "failing"
    at = NOW - chance.random() * 1.1 * DAY_S
    return i + 1, _key(i), _key(i).partition("/")[0], chance.choice(CLASSES), status, at, pulled


def _project(i: int, chance: random.Random) -> tuple[Any, ...]:
    at = NOW - chance.random() * 1.1 * 14400
    if chance.random() < 0.97:
        return i + 1, chance.choice(CLASSES), "skipped", at, 0, None, None, "synced"
    kind = chance.choice(KINDS)
    return i + 1, chance.choice(CLASSES), "failed", at, chance.randint(1, 4), _FAILURE % kind, kind, "failed"


def _month(i: int, chance: random.Random) -> list[tuple[Any, ...]]:
    """Pushes with runs of looks between them, and an error now and then."""
    key, priority = _key(i), CLASSES[i % len(CLASSES)]
    times = sorted(NOW - chance.random() * DAYS * DAY_S for _ in range(RUNS))
    rows: list[tuple[Any, ...]] = []
    for at, then in zip(times, [*times[1:], NOW - chance.random() * 7200], strict=True):
        rows.append((key, priority, "success", at, 1, _RESULT, None, None, 0, at))
        rows.append((key, priority, "skipped", then, 0, None, None, None, int((then - at) / 7200), at))
    for _ in range(ERRORS):
        kind, at = chance.choice(KINDS), NOW - chance.random() * DAYS * DAY_S
        rows.append((key, priority, "failed", at, 0, None, _FAILURE % kind, kind, 0, at))
    return rows


async def _walked(store: Store) -> object:
    """The obvious way: every project and repo as a value, counted in Python."""
    projects = await store.load_projects()
    async with store._db.read() as c:
        keys = list(await c.scalars(repos.select().with_only_columns(repos.c.key).where(~repos.c.pulled)))
    plain = await store.find_repos(keys)
    return progress_of(projects, NOW, repos=plain.values(), fresh_bound_s=BOUND_S)


def _run(context: Context) -> list[Line]:
    n = context.size(100_000, 500)
    path = context.folder / "pull.sqlite"
    rounds = context.repeats(5)
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

        def line(what: str, ask: Callable[[], Coroutine[Any, Any, object]], goal: float | None) -> Line:
            return Line(what, "ms CPU", ms(ask), sense=Sense.AT_MOST, goal=goal)

        counted = runner.run(store.pull_progress(NOW, BOUND_S, syncing))
        if sum(c.total for c in counted.values()) != 2 * n or set(counted) != set(Priority):
            raise RuntimeError(f"{counted} is not what was written")
        many = f"{n:,} projects and {n:,} other repos"
        lines = [
            Line(
                f"progress of {many}, by class",
                "ms CPU",
                ms(lambda: store.pull_progress(NOW, BOUND_S, syncing)),
                ms(lambda: _walked(store), 2),
            ),
            line("the same, alone", lambda: store.pull_progress(NOW, BOUND_S, syncing), 100),
            line("error statistics of 24 h", lambda: store.error_statistics(NOW - DAY_S, NOW), 50),
            line("a page of a project's tasks", lambda: store.task_page(_key(5), 1, 10), 50),
            line("a page of its errors", lambda: store.error_page(_key(5), ErrorFilter()), 50),
            line("a page of all errors", lambda: store.error_page(None, ErrorFilter(begin=NOW - DAY_S)), 50),
            line("what happened in 24 h, by class", lambda: store.periods(NOW - DAY_S, NOW), None),
            line("a page of projects, by name", lambda: store.page_projects(page=3), None),
            line("a search for projects", lambda: store.page_projects(search="repository-77"), None),
            line("projects that fail, a page", lambda: store.failed_projects(3), None),
            line("all projects loaded", store.load_projects, None),
        ]
        runner.run(store.close())
    return lines


BENCH = Bench(
    name="pull-progress",
    measures="figures of pull mirroring, with a month of history, counted from indexes",
    alternative="every project and repo loaded and counted",
    run=_run,
    order=36,
)
