"""A database of the version before alerts and discovery keeps all it has, on SQLite and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from evermirror.core.watch.events import AlertSaved, RestoredAlerts
from evermirror.edge.store.database import Database, parse_place
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import RepoVerified, writes_of
from evermirror.model.activity import Activity
from evermirror.model.alert import Alert, AlertRecord
from evermirror.model.figures import ClassProgress, ProgressNote
from evermirror.model.messages import Synced
from evermirror.model.task import TaskStatus
from tests.support.pull_store import A, project, repo, target

OLD_POINT = """
    INSERT INTO pull_course (at, total, synced, syncing, pending, failed, disabled, average_delay_s, measured)
    VALUES (:at, 9, 1, 2, 3, 2, 1, :delay, 8)
"""
OLD_REPO = """
    INSERT INTO repos (key, url, host, source, info, priority, mode, private, enabled, status, refs_count,
        size_bytes, consecutive_failures, activity_fast, activity_middle, activity_slow, activity_as_of,
        last_push_at, created_at, updated_at)
    VALUES (:key, :url, :host, 'api', '{}', 'normal', 'exact', false, true, 'pending', 0,
        0, 0, 0, 0, 0, 0,
        0, 5, 5)
"""
OLD_PROJECT = """
    INSERT INTO pull_projects (repo, priority, interval_s, enabled, last_status, last_sync_at, next_sync_at,
        failures, paused, max_retries, retry_delay_s, overrides, catalog, created_at, updated_at, standing,
        overdue_at)
    SELECT id, 'normal', 7200, true, 'success', 4, 0, 0, '', 3, 300, '[]', '[]', 5, 5, 'synced', 7200
    FROM repos
"""
OLD_TARGET = """
    INSERT INTO pull_targets (repo, place, url, failures, not_before, paused, adopt)
    SELECT id, 0, 'https://t.example/a', 0, 0, '', false FROM repos
"""
OLD_DIGEST = "ab" * 32
NEWER = ("alerts", "alert_notices", "alert_silences", "discoveries", "discovered", "discovery_finds")


def at_the_step_before(connection):
    from alembic import command
    from alembic.config import Config

    from evermirror.edge.store import migrate

    config = Config()
    config.set_main_option("script_location", str(migrate._HERE))
    config.attributes["connection"] = connection
    command.upgrade(config, "0005")


async def test_the_course_and_projects_of_an_older_database_are_kept(url):
    database = await Database.open(parse_place(url))
    async with database.write() as c:
        await c.run_sync(at_the_step_before)
        assert not set(NEWER) & set(await c.run_sync(lambda s: sa.inspect(s).get_table_names()))
        for at, delay in ((1.0, 7.5), (2.0, None)):
            await c.execute(sa.text(OLD_POINT), {"at": at, "delay": delay})
        spec = repo(A).spec
        await c.execute(sa.text(OLD_REPO), {"key": spec.key, "url": spec.url, "host": spec.host})
        await c.execute(sa.text("UPDATE repos SET digest = :digest"), {"digest": OLD_DIGEST})
        await c.execute(sa.text(OLD_PROJECT))
        await c.execute(sa.text(OLD_TARGET))
        await c.execute(sa.text("UPDATE repos SET pulled = true"))
    await database.close()

    store = await Store.open(url)
    try:
        points = [ClassProgress(9, 1, 2, 3, 2, 1, delay, 8) for delay in (7.5, None)]
        kept = [ProgressNote(at, point) for at, point in zip((1.0, 2.0), points, strict=True)]
        assert await store.progress_course(0.0, 9.0) == tuple(kept)
        assert kept[0].overall.equal_share is None
        done = project(A, last_status=TaskStatus.SUCCESS, last_sync_at=4.0, targets=(target(id_=1),))
        assert await store.load_projects() == (replace(done, created_at=5.0, updated_at=5.0),)
        assert (found := await store.find_repo(A)) is not None
        assert (found.spec.pulled, found.spec.hooked) == (True, False)
        assert (await store.events_after(0, 9)).events == ()
        known = Synced(A, (), OLD_DIGEST, None, 1, (), 0, 0, 0, 0, False, 6.0, 6.0, 6.0, Activity())
        await store.apply([*writes_of(known, teller="w"), RepoVerified(A, 1e6)])
        assert (await store.events_after(0, 9)).events == ()  # nobody followed then, and it is no news
        assert await store.load_alerts() == RestoredAlerts()
        assert await store.load_discoveries() == ()
        record = AlertRecord(1, Alert("project-failing", "p", "p failed"), 1.0, 1.0)
        await store.save_alerts([AlertSaved(record)])
        assert (await store.load_alerts()).standing == (record,)
    finally:
        await store.close()
