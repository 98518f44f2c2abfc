"""Discovery over the API: bodies, roles, refusals; what it does is tested with real forges elsewhere."""

from __future__ import annotations

import pytest

from evermirror.model.discovery import Protected
from evermirror.model.forge import Forge, Visibility
from evermirror.model.repo import Priority

BASE = "/api/pull/discoveries"
BODY = {"source_url": "https://gitlab.example.com", "group": "devops"}


@pytest.fixture
def discoveries(house):
    return house.discoveries


async def test_what_is_given_is_what_is_asked_for(client, discoveries):
    body = BODY | {
        "credential": "a", "subgroups": False, "include": ["devops/*"], "exclude": ["*/x"], "archived": True,
        "prefix": "m/", "over_ssh": True, "target_url": "https://t.example.com/m", "target_forge": "gitea",
        "target_credential": "b", "visibility": "internal", "protected_branches": "leave", "priority": "high",
        "sync_interval": 30, "every": None, "forge": "gitlab",
    }  # fmt: skip
    answer = await client.post(BASE, json=body)
    assert answer.status_code == 201, answer.text
    ((_, spec, _),) = discoveries.asked
    assert (spec.interval_s, spec.every_s, spec.target_forge) == (1800.0, None, Forge.GITEA)
    assert (spec.visibility, spec.protected, spec.priority) == (
        Visibility.INTERNAL,
        Protected.LEAVE,
        Priority.HIGH,
    )
    assert (spec.include, spec.exclude, spec.archived) == (("devops/*",), ("*/x",), True)
    told = answer.json()
    assert {name: told[name] for name in body} == body


async def test_a_dry_run_is_202_and_found_by_its_id(client):
    answer = await client.post(BASE, json=BODY | {"dry_run": True})
    assert (answer.status_code, answer.json()["state"]) == (202, "running")
    done = (await client.get(f"{BASE}/previews/p1")).json()
    assert (done["state"], done["steps"][0]["makes_target"], done["counts"]["create"]) == ("done", True, 1)
    failed = (await client.get(f"{BASE}/previews/failed")).json()
    assert (failed["state"], failed["error"]["hint"]) == ("failed", "Renew it")
    assert (await client.get(f"{BASE}/previews/else")).status_code == 404


async def test_a_change_leaves_what_is_not_given(client, discoveries):
    await client.post(BASE, json=BODY | {"prefix": "m/", "every": 5})
    answer = await client.put(f"{BASE}/1", json={"enabled": False})
    assert answer.status_code == 200
    told = answer.json()
    assert (told["enabled"], told["prefix"], told["every"]) == (False, "m/", 5)
    again = (await client.put(f"{BASE}/1", json={"every": None})).json()
    assert (again["enabled"], again["every"]) == (False, None)
    moved = await client.put(f"{BASE}/1", json={"group": "other"})
    assert moved.status_code == 422


async def test_what_was_found_is_listed_by_its_state(client):
    await client.post(BASE, json=BODY)
    found = (await client.get(f"{BASE}/1/projects")).json()
    assert [row["state"] for row in found["items"]] == ["active", "refused"]
    found = (await client.get(f"{BASE}/1/projects?state=refused")).json()
    assert (found["total"], found["items"][0]["why"]) == (1, "a name that is not taken")
    assert (await client.get(f"{BASE}/1/projects?state=odd")).status_code == 422


@pytest.mark.parametrize(
    "change",
    [
        {"group": ""}, {"group": "a\x00"}, {"forge": "svn"}, {"every": 0}, {"every": 1e9}, {"priority": "x"},
        {"include": [""]}, {"include": ["a"] * 101}, {"unknown": 1}, {"source_url": ""},
        {"visibility": "all"},
    ],
)  # fmt: skip
async def test_bad_bodies_are_refused_by_name(client, discoveries, change):
    answer = await client.post(BASE, json=BODY | change)
    assert answer.status_code == 422
    assert next(iter(change)) in answer.text
    assert discoveries.asked == []


@pytest.mark.parametrize("number", ["0", "x", "-1", "9" * 30, "1.5"])
async def test_numbers_that_are_nobodys(client, number):
    for path in (number, f"{number}/projects"):
        assert (await client.get(f"{BASE}/{path}")).status_code in (404, 422)
    assert (await client.post(f"{BASE}/{number}/run")).status_code in (404, 422)


async def test_the_public_sees_nothing_and_readers_change_nothing(house):
    house.with_tokens()
    async with house.client("em_operator") as operator:
        assert (await operator.post(BASE, json=BODY)).status_code == 201
        assert (await operator.post(f"{BASE}/1/run", json={"accept": True})).status_code == 200
    for token, read, write in (
        (None, (401, 403), (401, 403)),
        ("em_reader", (200,), (403,)),
        ("em_submitter", (200,), (403,)),
    ):
        async with house.client(token, address="192.0.2.1") as client:
            for path in (BASE, f"{BASE}/1", f"{BASE}/1/projects", f"{BASE}/previews/p1"):
                assert (await client.get(path)).status_code in read, (token, path)
            assert (await client.post(BASE, json=BODY)).status_code in write
            assert (await client.post(f"{BASE}/1/run")).status_code in write
            assert (await client.put(f"{BASE}/1", json={})).status_code in write
            assert (await client.delete(f"{BASE}/1")).status_code in write
