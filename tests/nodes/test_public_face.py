"""The public face of an aggregator before a real coordinator: passed on, told from memory, told by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from evermirror.config import load_config
from evermirror.model.access import Role
from evermirror.nodes.aggregator.public_face import CoordinatorUrl, reachable_url
from tests.support.aggregation import Aggregation, run_client
from tests.support.upstream import UpstreamServer


@pytest.fixture
def fleet(tmp_path: Path, upstream: UpstreamServer) -> Aggregation:
    return Aggregation(tmp_path, upstream)


def client_of(node, token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.AsyncClient(base_url=node.url, headers=headers, trust_env=False, timeout=20)


async def token_of(lead, role):
    made = await lead.lead.store.create_token(role.value, role)
    return made[0]


async def until_passed_on(fleet, client):
    async def answers():
        return (await client.get("/api/version")).status_code == 200

    await fleet.until(answers)


async def until_connected(fleet, client, wanted):
    async def holds():
        told = (await client.get("/api/aggregator")).json()
        return told["coordinator"]["connected"] is wanted

    await fleet.until(holds)


async def test_users_work_through_the_aggregator(fleet):
    async with fleet.coordinator() as lead, fleet.worker("w1"), fleet.aggregator() as node:
        token = await token_of(lead, Role.OPERATOR)
        repo = await asyncio.to_thread(fleet.upstream.create, "one", 3)
        key = f"{fleet.upstream.host}/one"
        async with client_of(node, token) as client, client_of(node) as public:
            await until_passed_on(fleet, client)
            refused = await public.post("/api/git_urls", json={"git_url": repo.url})
            assert refused.status_code == 401, "also from this machine"
            added = await client.post("/api/git_urls", json={"git_url": repo.url})
            assert added.json()["status"] == "added"
            task = await client.post(
                "/api/tasks", json={"git_url": repo.url, "additional_params": {"wait": 15}}
            )
            assert task.json()["status"] in ("success", "skipped"), task.text
            await fleet.until_here(node, key)
            shown = (await public.get(f"/api/repos/{key}")).json()
            assert shown["holders"][0]["worker"] == "w1"
            assert (await public.get("/")).headers["content-type"].startswith("text/html")
            assert "evermirror_aggregator_repos" in (await public.get("/metrics")).text


async def test_it_tells_what_it_knows_while_the_coordinator_is_away(fleet):
    async with fleet.worker("w1"), fleet.aggregator() as node, client_of(node) as public:
        async with fleet.coordinator() as lead:
            plain = await token_of(lead, Role.READER)
            _, key = await add_with(fleet, lead)
            await fleet.until_here(node, key)
            async with client_of(node, plain) as reader:
                known = (await reader.get("/api/aggregator")).json()
                assert known["coordinator"]["connected"] is True
                assert known["coordinator"]["reason"] is None
                before = await public.get("/api/overview")
                assert before.json()["total_repos"] == 1

        await until_connected(fleet, public, False)
        await asyncio.sleep(1.1)
        old = await public.get("/api/overview")
        assert (old.status_code, old.content) == (200, before.content)
        assert old.headers["x-evermirror-stale"]
        async with client_of(node, plain) as reader, client_of(node, "em_" + "x" * 43) as stranger:

            async def counted():
                return (await reader.get("/api/aggregator")).json()["repos"]["here"] == 1

            await fleet.until(counted)
            told = (await reader.get("/api/aggregator")).json()
            assert told["coordinator"]["connected"] is False
            assert told["coordinator"]["answers"] is False
            assert told["coordinator"]["reason"]
            assert told["repos"]["wanted"] == 1
            assert told["relay"]["workers"] == 1
            assert (await stranger.get("/api/aggregator")).status_code == 503, "nobody can tell whose it is"
        hidden = (await public.get("/api/aggregator")).json()
        assert (hidden["coordinator"]["reason"], hidden["warnings"]) == (None, [])
        assert (await public.get("/api/fleet")).status_code == 503
        assert (await public.get("/readyz")).status_code == 200
        async with fleet.coordinator():
            await until_passed_on(fleet, public)
            assert (await public.get("/api/fleet")).status_code == 200


async def add_with(fleet, lead):
    token = await token_of(lead, Role.OPERATOR)
    repo = await asyncio.to_thread(fleet.upstream.create, "one", 3)
    async with client_of(lead, token) as client:
        answer = await client.post("/api/git_urls", json={"git_url": repo.url})
        assert answer.status_code == 200, answer.text
    return repo, f"{fleet.upstream.host}/one"


async def test_its_state_is_for_token_holders_where_reads_are_not_public(fleet):
    async with (
        fleet.coordinator(),
        fleet.aggregator(auth={"public_reads": False}) as node,
        client_of(node) as public,
    ):
        assert (await public.get("/api/aggregator")).status_code == 401


async def test_an_aggregator_asks_for_a_token_as_soon_as_there_is_something_to_hide(fleet, tmp_path):
    def refs(key):
        return f"/git/{key}/info/refs?service=git-upload-pack"

    unknown = "example.org/none"
    async with fleet.worker("w1"), fleet.aggregator() as node, client_of(node) as public:
        async with fleet.coordinator() as lead:
            _, key = await fleet.add("open")
            await fleet.until_here(node, key)
            assert (await public.get(refs(unknown))).status_code == 404
            _, secret = await fleet.add("secret", private=True)
            await fleet.until_here(node, secret)
            for name in (secret, unknown):
                told = await public.get(refs(name))
                assert (told.status_code, told.text) == (404, "This repository is not mirrored here.\n")

            token = await token_of(lead, Role.READER)

            async def asks():
                return (await public.get(refs(unknown))).status_code == 401

            await fleet.until(asks)
            hidden, none = [await public.get(refs(name)) for name in (secret, unknown)]
            assert hidden.status_code == 401
            assert hidden.text == none.text
            seen = [{**answer.headers, "date": ""} for answer in (hidden, none)]
            assert seen[0] == seen[1]
            assert hidden.headers["www-authenticate"].startswith("Basic ")
            assert (await public.get(refs(key))).status_code == 200
            me = node.url.replace("http://", f"http://me:{token}@")
            code, said = await run_client("clone", "-q", f"{me}/git/{secret}", str(tmp_path / "c"))
            assert code == 0, said
            code, said = await run_client("ls-remote", f"{me}/git/{unknown}")
            assert "remote: This repository is not mirrored here." in said
        await until_connected(fleet, public, False)
        assert [(await public.get(refs(name))).status_code for name in (secret, unknown)] == [401, 401]
        code, said = await run_client("ls-remote", f"{me}/git/{secret}")
        assert code == 0, "the coordinator accepted the token a moment ago"
    async with fleet.aggregator() as node, client_of(node) as public:
        statuses = [(await public.get(refs(name))).status_code for name in (secret, unknown, key)]
        assert statuses == [401, 401, 200], "also after a restart without its coordinator"


async def test_at_the_coordinator_git_clients_are_sent_to_an_aggregator(fleet):
    async with fleet.coordinator() as lead, client_of(lead) as client:
        _, key = await fleet.add("one")
        await fleet.add("secret", private=True)
        path = f"/git/{key}.git/info/refs?service=git-upload-pack"
        alone = await client.get(path)
        assert (alone.status_code, "once there is one" in alone.text) == (404, True)
        async with fleet.aggregator(aggregator={"name": "front"}) as node, client_of(node) as there:
            await until_connected(fleet, there, True)
            await asyncio.sleep(0.6)  # the fleet's view is half a second old at most
            named = await client.get(path)
            assert (named.status_code, named.text) == (
                404, "This coordinator holds no mirrors. Clone from an aggregator: front.\n",
            )  # fmt: skip
            unknown = await client.get("/git/example.org/none/info/refs?service=git-upload-pack")
            assert (unknown.status_code, unknown.text) == (404, "This repository is not mirrored here.\n")
            token = await token_of(lead, Role.READER)
            await asyncio.sleep(1.1)  # from now on this machine's user is the public
            secret = f"/git/{fleet.upstream.host}/secret"
            asked = [await client.get(path) for path in (secret, "/git/example.org/none")]
            assert [answer.status_code for answer in asked] == [401, 401]
            assert asked[0].text == asked[1].text
            signed_in = await client.get("/git/example.org/none", auth=("me", token))
            assert (signed_in.status_code, signed_in.text) == (404, unknown.text)
            told = await client.get(secret, headers={"Authorization": f"Bearer {token}"})
            assert "front" in told.text


@pytest.mark.parametrize(
    ("told", "grpc", "url"),
    [
        ("http://10.0.0.5:8420", "10.0.0.5", "http://10.0.0.5:8420"),
        ("http://0.0.0.0:8420", "lead.example.org", "http://lead.example.org:8420"),
        ("https://[::]:8420", "2001:db8::1", "https://[2001:db8::1]:8420"),
        ("http://127.0.0.1:8420", "127.0.0.1", "http://127.0.0.1:8420"),
        ("http://127.0.0.1:8420", "localhost", "http://127.0.0.1:8420"),
        ("http://[::1]:8420", "127.0.0.1", "http://[::1]:8420"),
        ("http://127.0.0.1:8420", "lead.example.org", ""),
        ("http://localhost:8420", "10.0.0.5", ""),
        ("http://[::1:8420", "10.0.0.5", ""),
    ],
)
def test_where_the_coordinators_api_is(told, grpc, url):
    assert reachable_url(told, grpc) == url


def test_the_setting_comes_first():
    config = load_config(None, {}, {"aggregator.coordinator_url": "https://lead.example.org/"})
    url = CoordinatorUrl(config, "10.0.0.5:8421", lambda: "http://127.0.0.1:8420")
    assert url() == "https://lead.example.org"
