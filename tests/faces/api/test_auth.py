"""Who may do what, with and without a token."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from evermirror.faces.api.auth import AuthSettings
from evermirror.model.access import Role

URL = "https://github.com/o/r"
BODY = {"git_url": URL}
REMOTE = {"address": "203.0.113.9", "base": "http://mirror.example.org"}


async def status(client, method="POST", path="/api/git_urls", **kw):
    if method == "POST":
        kw.setdefault("json", BODY)
    return (await client.request(method, path, **kw)).status_code


async def test_this_machine_may_write_while_there_is_no_token(house, api_service):
    async with house.client() as client:
        assert await status(client) == 200
        assert api_service.audit == [("local", "add", "github.com/o/r")]


@pytest.mark.parametrize("required", ["auto", False])
@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Proto", "X-Forwarded-Host", "Via"]
)
async def test_what_a_proxy_on_this_machine_passes_on_is_not_this_machines_own(house, header, required):
    house.auth = AuthSettings(tokens_required=required)
    async with house.client() as client:
        assert await status(client, headers={header: "127.0.0.1"}) == 401
        assert await status(client) == 200


async def test_a_nodes_token_does_not_lock_this_machine_out(house):
    house.tokens.add("em_worker", Role.WORKER)
    async with house.client() as client:
        assert await status(client) == 200


async def test_a_revoked_token_counts_no_more(house):
    house.tokens.add("em_reader", Role.READER)
    house.tokens.known["em_reader"] = replace(house.tokens.known["em_reader"], revoked_at=1.0)
    async with house.client() as client:
        assert await status(client) == 200


async def test_another_machine_may_not_write_without_a_token(house):
    async with house.client(**REMOTE) as client:
        assert await status(client) in (401, 403)


async def test_once_a_token_exists_writes_need_one(house):
    house.with_tokens()
    async with house.client() as client:
        answer = await client.post("/api/git_urls", json=BODY)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["type"] == "/problems/token-needed"
        assert await status(client, "GET") == 200


async def test_the_first_token_counts_within_seconds(house):
    async with house.client() as client:
        assert await status(client) == 200
        house.with_tokens()
        house.clock.now += 2
        assert await status(client) == 401


async def test_a_write_without_a_token_is_401_before_its_body_is_read(house):
    house.with_tokens()
    async with house.client() as client:
        answer = await client.post("/api/git_urls", content=b"{not json")
        assert answer.status_code == 401


@pytest.mark.parametrize(
    ("role", "add", "remove"),
    [("reader", 403, 403), ("submitter", 200, 403), ("operator", 200, 200), ("admin", 200, 200),
     ("worker", 403, 403), ("aggregator", 403, 403)],
)  # fmt: skip
async def test_roles_bound_what_a_token_may_do(house, api_service, role, add, remove):
    house.with_tokens()
    async with house.client(token=f"em_{role}", **REMOTE) as client:
        assert await status(client) == add
        await api_service.add_url(URL, None, actor="test")
        assert await status(client, "DELETE", "/api/git_urls/github.com/o/r") == remove


async def test_a_nodes_token_does_not_even_read(house):
    house.with_tokens()
    async with house.client(token="em_worker") as client:
        assert await status(client, "GET", "/api/overview") == 403


async def test_reading_needs_a_token_where_it_is_not_public(house):
    house.with_tokens()
    house.auth = AuthSettings(public_reads=False)
    async with house.client() as client:
        for path in ("/api/git_urls", "/api/overview", "/metrics", "/git/github.com/o/r/info/refs"):
            assert await status(client, "GET", path) == 401
        for path in ("/healthz", "/readyz", "/", "/docs", "/static/style.css"):
            assert await status(client, "GET", path) == 200
    async with house.client(token="em_reader") as client:
        assert await status(client, "GET", "/api/overview") == 200


@pytest.mark.parametrize("required", [True, False])
async def test_the_setting_overrules_what_exists(house, required):
    house.auth = AuthSettings(tokens_required=required)
    if not required:
        house.with_tokens()
    async with house.client() as client:
        assert await status(client) == (401 if required else 200)


async def test_listening_on_a_public_address_needs_tokens_from_everyone(house):
    house.auth = AuthSettings(listen_host="0.0.0.0")
    async with house.client() as client:
        assert await status(client) == 401


async def test_a_revoked_token_is_refused_within_five_seconds(house):
    house.with_tokens()
    async with house.client(token="em_operator") as client:
        assert await status(client) == 200
        lookups = house.tokens.lookups
        assert await status(client) == 200
        assert house.tokens.lookups == lookups
        del house.tokens.known["em_operator"]
        house.clock.now += 5
        assert await status(client) == 401


async def test_many_wrong_tokens_from_one_address_are_held_off(house):
    house.with_tokens()
    app = house.app()
    async with house.client(token="wrong", app=app) as client:
        answers = [await client.get("/api/overview") for _ in range(12)]
        assert [a.status_code for a in answers] == [401] * 10 + [429] * 2
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert answers[-1].json()["type"] == "/problems/too-many-requests"
    async with house.client(token="em_reader", app=app, address="203.0.113.9") as other:
        assert await status(other, "GET", "/api/overview") == 200
    house.clock.now += 60
    async with house.client(token="wrong", app=app) as client:
        assert await status(client, "GET", "/api/overview") == 401


async def test_a_good_token_is_served_whatever_others_at_its_address_guess(house):
    """One stranger with a wrong token every 3 s keeps the address at its limit for ever."""
    house.with_tokens()
    app = house.app()
    async with (
        house.client(token="wrong", app=app, **REMOTE) as stranger,
        house.client(token="em_reader", app=app, **REMOTE) as holder,
    ):
        for _ in range(20):
            await stranger.get("/api/overview")
        for _ in range(10):
            house.clock.now += 3
            assert await status(stranger, "GET", "/api/overview") == 429
            assert await status(holder, "GET", "/api/overview") == 200
        path = "/git/github.com/o/r/info/refs?service=git-upload-pack"
        assert (await holder.get(path, auth=("git", "em_operator"))).status_code == 404, "the token is good"
        assert (await holder.get(path, auth=("git", "wrong"))).status_code == 429


async def test_guesses_of_an_address_are_looked_up_a_few_at_a_time(house):
    house.with_tokens()
    inside, most, go = 0, 0, asyncio.Event()
    find = house.tokens.find_token

    async def slow(plain):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await go.wait()
        inside -= 1
        return await find(plain)

    app = house.app()
    async with house.client(token="wrong", app=app, **REMOTE) as stranger:
        for _ in range(10):
            await stranger.get("/api/overview")
        house.tokens.find_token = slow
        guesses = [asyncio.create_task(stranger.get("/api/overview")) for _ in range(40)]
        async with house.client(token="em_reader", app=app, **REMOTE) as holder:
            waiting = asyncio.create_task(holder.get("/api/overview"))
            async with asyncio.timeout(20):
                while not inside:
                    await asyncio.sleep(0.001)
            go.set()
            assert (await waiting).status_code == 200
        assert {(await guess).status_code for guess in guesses} == {429}
    assert most == 8


@pytest.mark.parametrize(
    "value", ["Bearer", "Bearer ", "Basic YTpi", "Digest x", "em_admin", "Bearer " + "x" * 600, "Bearer é"]
)
async def test_headers_that_hold_no_token_are_401(house, value):
    house.with_tokens()
    async with house.client() as client:
        assert await status(client, "GET", "/api/overview", headers={"Authorization": value.encode()}) == 401


async def test_git_may_send_its_token_as_a_password(house):
    house.with_tokens()
    house.auth = AuthSettings(public_reads=False)
    async with house.client() as client:
        answer = await client.get("/git/github.com/o/r/info/refs?service=git-upload-pack")
        assert (answer.status_code, answer.headers["www-authenticate"][:5]) == (401, "Basic")
        ok = await client.get(
            "/git/github.com/o/r/info/refs?service=git-upload-pack", auth=("git", "em_reader")
        )
        assert ok.status_code == 404


@pytest.mark.parametrize(
    "host", ["localhost:8420", "127.0.0.1:8420", "[::1]:8420", "127.8.9.1", "LOCALHOST.", "::1"]
)
async def test_names_of_this_machine_are_good_hosts(house, host):
    async with house.client() as client:
        assert await status(client, headers={"Host": host}) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8420",
        "",
        "10.0.0.1",
        "0x7f.1",
        "[evil]",
    ],
)
async def test_a_rebound_name_reaches_nothing(house, host):
    async with house.client() as client:
        for method, path in (
            ("POST", "/api/git_urls"),
            ("GET", "/api/overview"),
            ("GET", "/"),
            ("GET", "/git/a/b"),
        ):
            answer = await client.request(method, path, json=BODY, headers={"Host": host})
            assert answer.status_code == 403
            assert "The Host header names another server" in answer.text
        assert await status(client, "GET", "/healthz", headers={"Host": host}) == 200


async def test_the_host_is_checked_also_where_tokens_exist(house):
    house.with_tokens()
    async with house.client() as client:
        assert await status(client, "GET", "/api/overview", headers={"Host": "evil.example"}) == 403
    async with house.client(token="em_reader") as client:
        assert await status(client, "GET", "/api/overview", headers={"Host": "proxied.example"}) == 200


async def test_the_public_reads_by_any_name_of_a_public_server(house):
    house.with_tokens()
    house.auth = AuthSettings(listen_host="0.0.0.0")
    async with house.client(**REMOTE) as client:
        assert await status(client, "GET", "/api/overview") == 200
    house.auth = replace(house.auth, hosts=("mirror.example.org",))
    async with house.client(**REMOTE) as client:
        assert await status(client, "GET", "/api/overview") == 200
        assert await status(client, "GET", "/api/overview", headers={"Host": "other.example"}) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "file://127.0.0.1:8420"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_page_of_another_site_cannot_write(house, api_service, headers):
    async with house.client() as client:
        answer = await client.post("/api/git_urls", json=BODY, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/cross-site")
    assert not api_service.repos


async def test_our_own_page_can_write(house):
    headers = {"Origin": "http://127.0.0.1:8420", "Sec-Fetch-Site": "same-origin"}
    async with house.client() as client:
        assert await status(client, headers=headers) == 200
