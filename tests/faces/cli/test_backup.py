"""Backups by hand: made, put back, refused."""

from __future__ import annotations

import json

from evermirror.nodes.lifecycle import claimed


def names(run):
    return [t["name"] for t in json.loads(run("token", "list", "--json").stdout)]


def test_a_backup_is_made_and_put_back_with_force(run, tmp_path):
    data = tmp_path / "here" / "data"
    run("token", "create", "--role", "admin", "--name", "kept")
    with claimed(data):  # as a running server has it
        made = run("backup", "one.db")
    assert (made.returncode, made.stderr) == (0, "")
    assert (tmp_path / "here" / "one.db").stat().st_mode & 0o777 == 0o600
    assert run("backup", "one.db").returncode == 2
    run("token", "create", "--role", "admin", "--name", "later")
    refused = run("restore-backup", "one.db")
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)
    with claimed(data):
        in_use = run("restore-backup", "one.db", "--force")
    assert (in_use.returncode, "in use" in in_use.stderr) == (2, True)
    assert names(run) == ["kept", "later"]
    done = run("restore-backup", "one.db", "--force")
    assert (done.returncode, "evermirror.db.before-" in done.stdout) == (0, True)
    assert names(run) == ["kept"]


def test_there_is_nothing_to_back_up_or_put_back(run):
    nothing = run("backup", "one.db")
    assert (nothing.returncode, "no database" in nothing.stderr) == (2, True)
    nothing = run("restore-backup", "one.db")
    assert (nothing.returncode, "no backup" in nothing.stderr) == (2, True)


def test_postgresql_has_tools_of_its_own_and_the_password_is_not_told(run):
    env = {"EVERMIRROR_DATABASE__URL": "postgresql://em:s3cret@db.invalid/em"}
    for command, tool in (("backup", "pg_dump"), ("restore-backup", "pg_restore")):
        told = run(command, "one.db", env=env)
        assert (told.returncode, tool in told.stderr, "s3cret" in told.stderr) == (2, True, False)


def test_migrations_are_rehearsed_then_run_once(run, tmp_path):
    database = tmp_path / "here" / "data" / "evermirror.db"
    rehearsed = run("migrate", "--dry-run")
    assert (rehearsed.returncode, "would run" in rehearsed.stdout) == (0, True)
    assert not database.exists()
    with claimed(database.parent):
        in_use = run("migrate")
    assert (in_use.returncode, "in use" in in_use.stderr) == (2, True)
    ran = run("migrate")
    assert (ran.returncode, "1 migration ran" in ran.stdout) == (0, True)
    for again in (run("migrate"), run("migrate", "--dry-run")):
        assert (again.returncode, "up to date" in again.stdout) == (0, True)
