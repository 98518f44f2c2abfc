"""The catalog through HTTP: add, show by any spelling, list in pages, remove."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from evermirror.faces.api.inputs import cursor_of
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Priority, RepoStatus
from evermirror.model.repo_order import RepoSort

URL = "https://github.com/username/repo.git"
SPELLINGS = [
    "github.com/username/repo",
    "github.com/username/repo.git",
    "github.com%2Fusername%2Frepo",
    "https://github.com/username/repo.git",
    "https%3A%2F%2Fgithub.com%2Fusername%2Frepo",
]


async def test_adding_says_added_then_exists_then_updated(client):
    async def add(info):
        return (await client.post("/api/git_urls", json={"git_url": URL, "additional_info": info})).json()

    assert await add({}) == {"git_url": URL, "status": "added"}
    assert await add(None) == {"git_url": URL, "status": "exists"}
    assert await add({"team": "kernel"}) == {"git_url": URL, "status": "updated"}


async def test_a_removal_is_rehearsed(client, api_service):
    await client.post("/api/git_urls", json={"git_url": URL})
    answer = await client.delete("/api/git_urls/github.com/username/repo?dry_run=true")
    assert answer.json() == {"git_url": URL, "status": "removable"}
    assert (await client.get("/api/git_urls/github.com/username/repo")).status_code == 200
    assert [action for _, action, _ in api_service.audit] == ["add"]
    assert (await client.delete("/api/git_urls/github.com/no/such?dry_run=true")).status_code == 404


async def test_a_repo_is_paused_and_resumed(client):
    await client.post("/api/git_urls", json={"git_url": URL})
    path = "/api/repos/github.com/username/repo"
    for action, word, enabled in (("pause", "paused", False), ("resume", "resumed", True)):
        answer = (await client.post(f"{path}/-/{action}")).json()
        assert answer == {"key": "github.com/username/repo", "git_url": URL, "status": word}
        assert (await client.get(path)).json()["enabled"] is enabled
        assert (await client.get(f"{path}/-/{action}")).status_code == 405
    assert (await client.post("/api/repos/github.com/no/such/-/pause")).status_code == 404


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_url_is_shown_by_key_and_by_url_in_any_encoding(client, spelling):
    await client.post("/api/git_urls", json={"git_url": URL, "additional_info": {"team": "内核"}})
    for path in (f"/api/git_urls/{spelling}", f"/api/repos/{spelling}"):
        answer = await client.get(path)
        assert answer.status_code == 200
        shown = answer.json()
        assert shown["git_url"] == URL
        assert shown["key"] == "github.com/username/repo"
        assert shown["additional_info"] == {"team": "内核"}
        assert shown["status"] == "pending"
        assert shown["last_updated"].endswith("Z")


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_url_is_removed_by_any_spelling(client, api_service, spelling):
    await client.post("/api/git_urls", json={"git_url": URL})
    answer = await client.delete(f"/api/git_urls/{spelling}")
    assert answer.json() == {"git_url": URL, "status": "removed"}
    assert not api_service.repos
    assert ("local", "remove", "github.com/username/repo") in api_service.audit
    assert (await client.delete(f"/api/git_urls/{spelling}")).status_code == 404


@pytest.mark.parametrize("key", ["github.com/no/such", "x", "..", "%00", "%ff%fe", "a" * 5000, "", "/"])
async def test_unknown_and_impossible_keys_are_4xx(client, key):
    for path in (f"/api/git_urls/{key}", f"/api/repos/{key}", f"/api/repos/{key}/-/refs"):
        answer = await client.get(path)
        assert answer.status_code in (404, 422)
        assert answer.headers["content-type"] == "application/problem+json"


async def test_the_list_pages_through_everything_once(client, api_service):
    for i in range(25):
        await api_service.add_url(f"https://github.com/o/r{i:02}", None, actor="test")
    seen, cursor = [], None
    while True:
        query = {"limit": 10} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/api/git_urls", params=query)).json()
        seen += [item["key"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [f"github.com/o/r{i:02}" for i in range(25)]


async def test_the_longest_page_knows_of_more_and_asks_few_questions(house, api_service, monkeypatch):
    """The store gives at most a thousand at a time; hidden repos cost a question a thousand, not one each."""
    for i in range(1_005):
        await api_service.add_url(f"https://github.com/a/r{i:04}", {"private": True}, actor="test")
    for i in range(1_005):
        await api_service.add_url(f"https://github.com/b/r{i:04}", None, actor="test")
    asked = []
    whole = api_service.list_repos

    async def at_most_a_thousand(which):
        asked.append(which)
        return (await whole(which))[:1_000]

    monkeypatch.setattr(api_service, "list_repos", at_most_a_thousand)
    house.with_tokens()
    async with house.client() as client:
        page = (await client.get("/api/git_urls?limit=1000")).json()
        assert len(page["items"]) == 1_000
        assert page["next_cursor"] is not None
        query = {"limit": 1000, "cursor": page["next_cursor"]}
        rest = (await client.get("/api/git_urls", params=query)).json()
        assert [len(rest["items"]), rest["next_cursor"]] == [5, None]
        asked.clear()
        assert len((await client.get("/api/git_urls?limit=1")).json()["items"]) == 1
        assert len(asked) <= 3


async def test_the_last_full_page_has_no_cursor(client, api_service):
    for i in range(10):
        await api_service.add_url(f"https://github.com/o/r{i}", None, actor="test")
    assert (await client.get("/api/git_urls?limit=10")).json()["next_cursor"] is None


async def test_search_status_and_host_narrow_the_list(client, api_service):
    await api_service.add_url("https://github.com/o/linux", None, actor="test")
    await api_service.add_url("https://gitee.com/o/linux", None, actor="test")
    api_service.set("gitee.com/o/linux", status=RepoStatus.FAILING)

    async def keys(query):
        return [i["key"] for i in (await client.get(f"/api/git_urls?{query}")).json()["items"]]

    assert await keys("search=linux") == ["gitee.com/o/linux", "github.com/o/linux"]
    assert await keys("search=hub") == ["github.com/o/linux"]
    assert await keys("status=failing") == ["gitee.com/o/linux"]
    assert await keys("host=github.com") == ["github.com/o/linux"]


async def test_every_order_pages_through_everything_once_and_total_counts_it(client, api_service):
    """Nine repos, alike in threes; the twin is a sorted list."""
    values = [None, 1.5, 2.5]
    for i in range(9):
        await api_service.add_url(f"https://github.com/o/r{i}", None, actor="test")
        api_service.set(
            f"github.com/o/r{i}", verified_at=values[i % 3], changed_at=values[i // 3], size_bytes=i % 3,
            consecutive_failures=i // 3,
        )  # fmt: skip
    sorts = ("key", "verified", "changed", "size", "failures")
    for sort in (*sorts, *(f"-{name}" for name in sorts)):
        order = RepoSort(sort)
        expected = sorted(
            api_service.repos.values(),
            key=lambda r: (order.value_of(r) is not None, order.value_of(r) or 0, r.key),
            reverse=order.descending,
        )
        seen, cursor, query = [], None, {"limit": 2, "sort": sort, "total": "true"}
        while cursor or not seen:
            page = (await client.get("/api/git_urls", params=query)).json()
            seen += [item["key"] for item in page["items"]]
            assert page["total"] == 9
            cursor = query["cursor"] = page["next_cursor"]
        assert seen == [r.key for r in expected], sort
    item = (await client.get("/api/git_urls?limit=1&sort=-failures")).json()
    assert "total" not in item
    wanted = {
        "alias": None, "host": "github.com", "enabled": True, "private": False, "size_bytes": 2,
        "changed_at": "1970-01-01T00:00:02Z", "consecutive_failures": 2,
    }  # fmt: skip
    assert {name: item["items"][0][name] for name in wanted} == wanted


async def test_a_cursor_of_another_order_or_by_another_hand_is_refused(client, api_service):
    for i in range(3):
        await api_service.add_url(f"https://github.com/o/r{i}", None, actor="test")

    async def cursor(sort):
        return (await client.get(f"/api/git_urls?limit=1&sort={sort}")).json()["next_cursor"]

    def made(*parts):
        return cursor_of("\t".join(parts))

    of_verified, of_key, of_key_down = [await cursor(sort) for sort in ("verified", "key", "-key")]
    for sort, given in (
        *(("key", of_key_down), ("-key", of_key), ("verified", of_key_down), ("-key", of_verified)),
        *(("-key", made("", "-key", text, "k")) for text in ("1.5", "1", "")),
        *(("-verified", of_verified), ("changed", of_verified), ("key", of_verified), ("verified", of_key)),
        *(
            ("verified", made("", "verified", text, "k"))
            for text in ("1", "NaN", "1e999", "true", '"a"', "[")
        ),
        *(("size", made("", "size", text, "k")) for text in ("null", "1.5", str(2**63), "")),
        *(("size", made("", "size", "1", key)) for key in ("", "a\0", "a\tb")),
        *(("size", text) for text in ("!!!", "a", "%00", made("x", "size", "1", "k"))),
    ):
        answer = await client.get("/api/git_urls", params={"sort": sort, "cursor": given})
        assert answer.status_code == 422, (sort, given)
        assert "cursor" in answer.json()["detail"]
    good = await client.get("/api/git_urls", params={"sort": "size", "cursor": made("", "size", "1", "k")})
    assert good.status_code == 200


async def test_priority_worker_and_failure_narrow_the_list_and_what_they_count(client, api_service):
    for name in ("a", "b"):
        await api_service.add_url(f"https://github.com/o/{name}", None, actor="test")
    spec = replace(api_service.repos["github.com/o/b"].spec, priority=Priority.HIGH)
    failure = Failure(FailureKind.AUTH_FAILED, "no")
    api_service.set("github.com/o/b", spec=spec, last_failure=failure, consecutive_failures=1)

    async def found(query):
        page = (await client.get(f"/api/git_urls?total=true&{query}")).json()
        assert page["total"] == len(page["items"])
        return [item["key"][-1] for item in page["items"]]

    assert await found("priority=high") == ["b"]
    assert await found("failure=AUTH_FAILED") == ["b"]
    assert await found("failure=NOT_FOUND") == []
    assert await found("worker=here") == ["a", "b"]
    assert await found("worker=nobody") == []


async def test_the_public_is_not_told_how_many_private_repos_there_are(house, api_service):
    await api_service.add_url("https://github.com/o/open", None, actor="test")
    await api_service.add_url("https://github.com/o/secret", {"private": True}, actor="test")
    house.with_tokens()
    for token, seen in ((None, 1), ("em_reader", 2)):
        async with house.client(token=token) as client:
            page = (await client.get("/api/git_urls?total=true&sort=-verified")).json()
            assert [len(page["items"]), page["total"]] == [seen, seen]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "limit=" + "9" * 50, "status=fine", "cursor=%00", "cursor=!!!",
     "cursor=a", "search=%00", "search=" + "x" * 201, "host=%1b", "sort=name", "priority=top", "failure=x",
     "worker=%00", "total=perhaps"],
)  # fmt: skip
async def test_wrong_queries_are_422(client, query):
    answer = await client.get(f"/api/git_urls?{query}")
    assert answer.status_code == 422
    assert answer.json()["status"] == 422


async def test_a_failing_repo_says_why_until_it_succeeds(client, api_service):
    await api_service.add_url(URL, None, actor="test")
    key = "github.com/username/repo"
    failure = Failure(FailureKind.NOT_FOUND, "gone or private", hint="Look upstream")
    now = time.time()
    api_service.set(
        key, status=RepoStatus.GONE, last_failure=failure, last_failure_at=now, consecutive_failures=1
    )
    error = (await client.get(f"/api/git_urls/{key}")).json()["last_error"]
    assert (error["error_type"], error["error_message"]) == ("NOT_FOUND", "gone or private")
    api_service.set(key, status=RepoStatus.ACTIVE, verified_at=now + 1, consecutive_failures=0)
    assert (await client.get(f"/api/git_urls/{key}")).json()["last_error"] is None


async def test_a_thousand_repos_come_in_one_quick_page(client, api_service):
    for i in range(1000):
        await api_service.add_url(f"https://github.com/o/r{i:04}", {"n": i}, actor="test")
    await client.get("/api/git_urls?limit=1000")
    began = time.process_time()
    page = (await client.get("/api/git_urls?limit=1000")).json()
    assert len(page["items"]) == 1000
    assert time.process_time() - began < 0.25


async def test_info_that_cannot_be_kept_is_refused(client, api_service):
    deep = {}
    for _ in range(20):
        deep = {"in": deep}
    for info in (deep, {"a": 2**70}, {"a": "x" * 20_000}, {"a": "\0"}, {"\0": 1}, [], "text", 3):
        answer = await client.post("/api/git_urls", json={"git_url": URL, "additional_info": info})
        assert answer.status_code == 422, info
    assert not api_service.repos


@pytest.mark.parametrize("name", ["credential", "private", "enabled", "mode", "alias"])
async def test_a_submitter_cannot_set_what_is_an_operators(house, name):
    house.with_tokens()
    body = {"git_url": URL, "additional_info": {name: "x"}}
    async with house.client(token="em_submitter") as client:
        assert (await client.post("/api/git_urls", json=body)).status_code == 403
    async with house.client(token="em_operator") as client:
        assert (await client.post("/api/git_urls", json=body)).status_code == 200
