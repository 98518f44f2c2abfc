"""Lists of repos: every filter, every order, page by page, as the obvious way sees them; on both engines."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evermirror.edge.store import repo_list
from evermirror.edge.store.store import Store
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.repo_order import RepoSort
from evermirror.nodes.service import RepoFilter

WORKERS = {3: "one", 4: "two", 5: "4"}  # the last is called as another is numbered
TIMES = st.sampled_from([None, 0.0, 1.5, 1_700_000_000.25])  # few, so that many are alike
KINDS = st.sampled_from([FailureKind.AUTH_FAILED, FailureKind.UNKNOWN])


@st.composite
def records(draw):
    """A repo, and the workers that hold it."""
    name = draw(st.text(alphabet="abAB%_\\é", min_size=1, max_size=4))
    kind = draw(st.none() | KINDS)
    record = RepoRecord(
        RepoSpec(
            RepoKey(name),
            f"https://{name}.git",
            Host(draw(st.sampled_from("xy"))),
            priority=draw(st.sampled_from([Priority.HIGH, Priority.LOW])),
            private=draw(st.booleans()),
        ),
        alias=f"alias-{draw(st.sampled_from('aé'))}/{name}" if draw(st.booleans()) else None,
        status=draw(st.sampled_from([RepoStatus.ACTIVE, RepoStatus.FAILING])),
        size_bytes=draw(st.sampled_from([0, 7, 2**40])),
        verified_at=draw(TIMES),
        changed_at=draw(TIMES),
        consecutive_failures=draw(st.sampled_from([0, 1, 2])),
        last_failure=None if kind is None else Failure(kind, "no"),
        last_failure_at=None if kind is None else 9e9,
    )
    return record, frozenset(draw(st.sets(st.sampled_from(list(WORKERS)), max_size=2)))


filters = st.builds(
    RepoFilter,
    search=st.sampled_from(["", "", "a", "A", "ab", "%", "_", "\\", "é", "alias-", "none"]),
    status=st.sampled_from([None, None, RepoStatus.ACTIVE]),
    host=st.sampled_from(["", "", "x"]),
    priority=st.sampled_from([None, None, Priority.HIGH]),
    worker=st.sampled_from(["", "", "one", "4", "3", "nobody", "99999999999"]),
    failure=st.none() | KINDS,
    public=st.booleans(),
    limit=st.integers(1, 4),
)


def dumb_list(held, which):
    """The obvious way: all of them, filtered, sorted."""

    def lower(text):  # ASCII only, as the store promises
        return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)

    def matches(record, workers):
        return (
            any(lower(which.search) in lower(text) for text in (record.key, record.alias or ""))
            and which.status in (None, record.status)
            and which.host in ("", record.spec.host)
            and which.priority in (None, record.spec.priority)
            and (not which.worker or {"one": 3, "4": 5, "3": 3}.get(which.worker) in workers)
            and (which.failure is None or stands(record) is which.failure)
            and not (which.public and record.spec.private)
        )

    def stands(record):  # one that is over is remembered, and counts no more
        return record.last_failure.kind if record.last_failure and record.consecutive_failures else None

    def place(record):
        value = which.sort.value_of(record)
        return (value is not None, value or 0, record.key)

    found = [record for record, workers in held if matches(record, workers)]
    return [r.key for r in sorted(found, key=place, reverse=which.sort.descending)]


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    held=st.lists(records(), max_size=14, unique_by=lambda one: one[0].key),
    gone=st.sets(st.integers(0, 13), max_size=2),
    asked=st.lists(filters, min_size=3, max_size=3),
    few=st.sampled_from([0, 100]),
)
def test_lists_are_as_the_dumb_twin_sees_them_in_every_order(listing, held, gone, asked, few):
    left = [one[0].key for n, one in enumerate(held) if n in gone]
    here = [one for one in held if one[0].key not in left]
    listing.hold(held, left)
    for n, sort in enumerate(RepoSort):
        which = replace(asked[n % len(asked)], sort=sort)
        expected = dumb_list(here, which)
        pages = listing.pages(which, few)
        assert [key for page in pages for key in page] == expected
        assert all(len(page) == which.limit for page in pages[:-1])
        assert listing.count(which, few) == len(expected)
        assert listing.keys(which, few) == sorted(expected)


class Listing:
    """A store that holds exactly what it is told, for synchronous hypothesis."""

    def __init__(self, url, monkeypatch):
        self._patch = monkeypatch
        self._loop = asyncio.new_event_loop()
        self._store = self._run(Store.open(url))

    def _run(self, work):
        return self._loop.run_until_complete(work)

    def hold(self, held, left):
        self._run(self._hold(held, left))

    async def _hold(self, held, left):
        async with self._store._db.write() as c:
            for table in ("repos", "copies", "workers"):
                await c.execute(sa.text(f"DELETE FROM {table}"))  # noqa: S608 - ours
            for number, name in WORKERS.items():
                await c.execute(_WORKER, {"id": number, "name": name})
        await self._store.upsert_repos([record for record, _ in held])
        async with self._store._db.write() as c:
            for record, workers in held:
                for worker in workers:
                    await c.execute(_COPY, {"key": record.key, "worker": worker})
        await self._store.remove_repos(left, 5.0)

    def pages(self, which, few):
        return self._run(self._pages(which, few))

    async def _pages(self, which, few):
        self._thought_few(few)
        found = []
        while page := await self._store.list_repos(which):
            found.append([r.key for r in page])
            which = which.following(page[-1])
        return found

    def keys(self, which, few):
        return self._run(self._keys(which, few))

    async def _keys(self, which, few):
        self._thought_few(few)
        found = []
        while keys := await self._store.keys_of(which):
            found += keys
            which = replace(which, after=keys[-1])
        return found

    def count(self, which, few):
        self._thought_few(few)
        return self._run(self._store.count_repos(which))

    def _thought_few(self, few):
        """A worker's copies are looked for in another way where they are many."""
        self._patch.setattr(repo_list, "FEW", few)
        self._patch.setattr(repo_list, "MANY", few)

    def close(self):
        self._run(self._store.close())
        self._loop.close()


_WORKER = sa.text(
    "INSERT INTO workers (id, name, trusted, weight, liveness, duty, joined_at, last_alive_at, flap_score,"
    " flap_at, history) VALUES (:id, :name, true, 1, 'alive', 'active', 0, 0, 0, 0, '[]')"
)
_COPY = sa.text(
    "INSERT INTO copies (repo, worker, rank, state, reason, since)"
    " SELECT id, :worker, 0, 2, 0, 0 FROM repos WHERE key = :key"
)


@pytest.fixture
def listing(url, monkeypatch):
    it = Listing(url, monkeypatch)
    yield it
    it.close()


def repo(key, **changes):
    return RepoRecord(RepoSpec(RepoKey(key), f"https://{key}.git", Host(key.partition("/")[0])), **changes)


async def test_what_moves_while_one_pages_is_not_in_the_way_of_what_stays(store):
    await store.upsert_repos([repo(f"h/{n}", size_bytes=n) for n in range(6)])
    which = RepoFilter(sort=RepoSort.SIZE_DOWN, limit=2)
    first = await store.list_repos(which)
    assert [r.key for r in first] == ["h/5", "h/4"]
    await store.remove_repos([RepoKey("h/4")], 5.0)  # the one that the next page begins behind
    await store.upsert_repos([repo("h/new", size_bytes=99)])
    rest = await store.list_repos(replace(which.following(first[-1]), limit=9))
    assert [r.key for r in rest] == ["h/3", "h/2", "h/1", "h/0"]


async def test_a_repo_is_found_by_what_people_type_or_paste(store):
    await store.upsert_repos([repo("github.com/a/bc", alias="nick/bc"), repo("xn.org/q/p")])
    for typed in (
        *("https://github.com/a/bc.git", "http://github.com/a/b", "git@github.com:a/bc.git", "GitHub.com/A/"),
        *("ssh://git@github.com/a/bc", "bc.git", "bc.g", "//github.com/", "/bc", "nick/bc", "b"),
        *("/a/bc.git", "/bc.git", "/a/bc/", "https://github.com/a/bc/", "https://github.com/a/bc.git/"),
        *("https://github.com:443/a/bc", "ssh://git@github.com:22/a/bc.git", "http://github.com:80/a/"),
        *("github.com/a/bc/", "joe@github.com:a/bc", "https://joe@github.com/a"),
    ):
        which = RepoFilter(search=typed)
        assert [r.key for r in await store.list_repos(which)] == ["github.com/a/bc"], typed
        assert await store.count_repos(which) == 1, typed
    for typed in (
        "https://",
        "https:",
        "git@",
        "@",
        "https://git@",
        "//",
        "/",
    ):  # what every URL has narrows nothing
        assert await store.count_repos(RepoFilter(search=typed)) == 2, typed
    for typed in (
        *("https://a/bc", "ithub.com/a/bc.git/x", "bc.gitx", "nick/bcd", "git@a/b", "/c.git", "bc/", "/c/"),
        *("joe@", "https://joe@", "https://github.com:80/a/bc", "https://github.com:4/a/bc"),
    ):
        which = RepoFilter(search=typed)
        assert await store.list_repos(which) == (), typed
        assert await store.count_repos(which) == 0, typed


async def test_postgresql_plans_a_question_asked_often_for_what_it_asks_still(postgres_tables):
    """From the sixth time on it takes one plan for all values, if it may; that one is ten times as slow at a
    million repos."""
    store = await Store.open(postgres_tables)
    await store.upsert_repos([repo(f"h.org/{n}") for n in range(20)])
    for which in (RepoFilter(search="h.org/1"), RepoFilter(failure=FailureKind.UNKNOWN)):
        for _ in range(7):
            await store.list_repos(which)
            await store.count_repos(which)
            await store.keys_of(which)
    query = "SELECT custom_plans, generic_plans FROM pg_prepared_statements"
    lists = "WHERE statement LIKE 'SELECT%%FROM repos%%$1%%' AND custom_plans + generic_plans > 1"
    async with store._db.read() as c:
        plans = [tuple(row) for row in await c.exec_driver_sql(f"{query} {lists}")]
    await store.close()
    assert plans
    assert set(plans) == {(7, 0)}
