"""Names of a batch, and who needs trust: what the coordinator asks the store about many projects at once."""

from __future__ import annotations

from evermirror.core.fleet.table import TRUSTED_ONLY
from tests.support.pull_store import A, B, C, project, repo, target


async def test_many_names_are_keys_or_aliases_and_what_is_nobodys_is_left_out(store):
    await store.upsert_repos([repo(A, alias="p/a"), repo(B, alias="p/b"), repo(C)])
    await store.remove_repos([B], 5.0)
    names = [f"no/{n}" for n in range(1200)] + [A, "p/a", "p/b", B, C, "\0", "\ud800", ""]
    found = await store.find_named(names)
    assert {name: record.key for name, record in found.items()} == {A: A, "p/a": A, C: C}


async def test_a_repo_that_is_pushed_with_a_password_needs_trusted_workers_also_after_a_restart(store):
    await store.upsert_repos([repo(A), repo(B), repo(C, credential="corp")])
    await store.put_projects(
        [
            project(A, targets=(target(credential="push"),), last_sync_at=5.0),
            project(B, targets=(target(),), last_sync_at=5.0),
        ]
    )
    table = (await store.load_fleet()).tables.table
    assert [bool(table.flags[table.row_of(key)] & TRUSTED_ONLY) for key in (A, B, C)] == [True, False, True]
