"""Orders about hooks at forges over the API: bodies, roles, refusals; what they do is tested with forges."""

from __future__ import annotations

import pytest

from evermirror.errors import Conflict, NotFound, UsageError
from evermirror.model.forge import Forge
from evermirror.model.repo import RepoKey
from evermirror.nodes.hook_service import RegisterAction, RegisterItem, RegisterRun, RegisterWish

BASE = "/api/hooks/registrations"
BODY = {"action": "register", "all": True}
ITEMS = (
    RegisterItem(RepoKey("github.com/a/b"), "refused", "HTTP 403 \udc80"),
    RegisterItem(RepoKey("github.com/a/c"), "made"),
)


class FakeOrders:
    def __init__(self):
        self.asked = []
        self.explode = None

    async def register(self, wish, *, actor):
        self.asked.append((wish, actor))
        if self.explode is not None:
            raise self.explode
        return self._run(wish, actor, None)

    async def registering(self, run_id):
        if run_id != 7:
            raise NotFound(f"there is no order {run_id}")
        return self._run(RegisterWish(RegisterAction.CHECK, group="github.com"), "ann", 5.0)

    async def registrations(self):
        mine = RegisterWish(RegisterAction.REGISTER, all_repos=True)
        return (self._run(mine, "ben", None), await self.registering(7))

    async def cancel(self, run_id, *, actor):
        self.asked.append((run_id, actor))
        return await self.registering(run_id)

    def _run(self, wish, actor, ended_at):
        counts = {"refused": 1, "made": 1}
        return RegisterRun(7, wish, actor, 1.0, ended_at, 3, 2, counts, ITEMS, "rate limit", "")


@pytest.fixture
def orders(house):
    house.hooks = FakeOrders()
    return house.hooks


@pytest.fixture
async def asking(house, orders):
    async with house.client() as client:
        yield client


async def test_what_is_given_is_what_is_asked_for(asking, orders):
    body = {
        "action": "remove", "repos": ["github.com/a/b", "x", "x"], "credential": "hub", "forge": "gitee",
        "renew": True,
    }  # fmt: skip
    answer = await asking.post(BASE, json=body)
    assert answer.status_code == 202, answer.text
    ((wish, actor),) = orders.asked
    assert wish == RegisterWish(
        RegisterAction.REMOVE,
        repos=("github.com/a/b", "x"),
        credential="hub",
        forge=Forge.GITEE,
        renew=True,
    )
    assert actor
    await asking.post(BASE, json={"action": "check", "group": "github.com/a"})
    assert orders.asked[1][0] == RegisterWish(RegisterAction.CHECK, group="github.com/a")


async def test_how_far_it_is_is_told_whatever_a_forge_said(asking):
    told = (await asking.post(BASE, json=BODY)).json()
    assert (told["id"], told["action"], told["state"], told["ended_at"]) == (7, "register", "running", None)
    assert (told["total"], told["done"], told["waiting"], told["error"]) == (3, 2, "rate limit", None)
    assert told["counts"] == {"refused": 1, "made": 1}
    assert [item["did"] for item in told["items"]] == ["refused", "made"]
    assert told["items"][0]["problem"] == "HTTP 403 \N{REPLACEMENT CHARACTER}"
    assert told["items"][1]["problem"] is None
    ended = (await asking.get(f"{BASE}/7")).json()
    assert (ended["action"], ended["state"], ended["ended_at"]) == ("check", "ended", "1970-01-01T00:00:05Z")


async def test_orders_are_listed_without_their_repos(asking):
    first, second = (await asking.get(BASE)).json()["items"]
    assert (first["action"], first["all"], first["group"], first["state"]) == (
        "register",
        True,
        None,
        "running",
    )
    assert (second["action"], second["all"], second["group"]) == ("check", False, "github.com")
    assert (second["state"], second["actor"], second["done"], second["total"]) == ("ended", "ann", 2, 3)
    assert "items" not in first


async def test_one_is_stopped_by_its_number(asking, orders):
    assert (await asking.delete(f"{BASE}/7")).json()["state"] == "ended"
    assert orders.asked[0][0] == 7


@pytest.mark.parametrize(
    "body",
    [
        {}, {"action": "make", "all": True}, {"action": "register", "all": 1}, {**BODY, "forge": "svn"},
        {**BODY, "credential": ""}, {**BODY, "unknown": 1}, {**BODY, "group": "a\x00"},
        {"action": "check", "repos": [""]}, {"action": "check", "repos": ["a\n"]},
        {"action": "check", "repos": "github.com/a/b"}, {"action": "check", "repos": ["x"] * 1001},
        {"action": "check", "group": "g" * 2101}, [], "register", None,
    ],
)  # fmt: skip
async def test_bad_bodies_are_refused_and_nothing_is_ordered(asking, orders, body):
    answer = await asking.post(BASE, json=body)
    assert answer.status_code == 422, answer.text
    assert orders.asked == []


@pytest.mark.parametrize("content", [b"{", b"\xff", b""])
async def test_what_is_no_json_is_refused(asking, orders, content):
    answer = await asking.post(BASE, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert orders.asked == []


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "9" * 19, "٧", "a" * 200])
async def test_what_is_no_number_is_refused(asking, number):
    assert (await asking.get(f"{BASE}/{number}")).status_code == 422
    assert (await asking.delete(f"{BASE}/{number}")).status_code == 422


async def test_one_that_is_not_known_is_404(asking):
    assert (await asking.get(f"{BASE}/8")).status_code == 404
    assert (await asking.delete(f"{BASE}/8")).status_code == 404


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Conflict("order 7 is under way", hint="Wait"), 409),
        (UsageError("webhooks.url is not set", hint="Set it"), 422),
        (NotFound("not in the catalog"), 404),
    ],
)
async def test_refusals_have_their_status_and_hint(asking, orders, error, status):
    orders.explode = error
    answer = await asking.post(BASE, json=BODY)
    assert (answer.status_code, answer.json()["detail"]) == (status, error.message)
    assert answer.json().get("hint", "") == error.hint


async def test_operators_order_readers_look_and_the_public_gets_nothing(house, orders):
    house.with_tokens()
    for token, ordering, looking in (
        (None, 401, 401),
        ("em_reader", 403, 200),
        ("em_submitter", 403, 200),
        ("em_operator", 202, 200),
        ("em_admin", 202, 200),
    ):
        async with house.client(token) as client:
            assert (await client.post(BASE, json=BODY)).status_code == ordering
            assert (await client.get(f"{BASE}/7")).status_code == looking
            assert (await client.get(BASE)).status_code == looking
            assert (await client.delete(f"{BASE}/7")).status_code == (200 if ordering == 202 else ordering)


async def test_a_server_that_takes_no_hooks_says_so(house):
    async with house.client() as client:
        assert (await client.post(BASE, json=BODY)).status_code == 404
        assert (await client.get(f"{BASE}/7")).status_code == 404
        assert (await client.get(BASE)).status_code == 404
