"""Hooks registered at stand-ins of all forges by a real all-in-one, which then hears of pushes from them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from evermirror.model.forge import Forge
from tests.edge.forge.forge_world import TOKEN, start
from tests.support.forges.api_server import ApiServer
from tests.support.ports import free_port
from tests.support.stage import Running, Stage

pytestmark = pytest.mark.timeout(120)

ORDERS = "/api/hooks/registrations"
SECRET = "a-secret-for-new-hooks"
OLDER = "the-secret-of-older-hooks"


@dataclass
class Town:
    up: Running
    server: ApiServer
    forge: Forge
    port: int

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def add(self, *names: str) -> None:
        for name in names:
            self.server.add_project(name, commits=1, visibility="public")
            await self.up.add(self.server.url(f"{name}.git"))

    async def order(self, action: str, **more: object) -> dict:
        about = {} if "repos" in more or "group" in more else {"all": True}
        asked = {"action": action, "forge": self.forge.value, **about, **more}
        answer = await self.up.client.post(ORDERS, json=asked)
        assert answer.status_code == 202, answer.text
        return await self.ended(answer.json()["id"])

    async def ended(self, number: int) -> dict:
        async def holds() -> bool:
            return (await self.get(number))["state"] == "ended"

        await self.up.until(holds, 40.0)
        return await self.get(number)

    async def get(self, number: int) -> dict:
        answer = await self.up.client.get(f"{ORDERS}/{number}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ours(self, name: str) -> list:
        return [row for row in self.server.hooks_of(name) if row.url.startswith(self.base)]


@contextlib.asynccontextmanager
async def living(folder, server, forge, port=None, **sections):
    """An all-in-one on ``folder``, which may have been one before."""
    stage, port = Stage(folder, server), port or free_port()
    settings = {
        "server": {"listen": f"127.0.0.1:{port}"},
        "credentials": {"hooks.token": TOKEN, "hooks.hosts": [server.host]},
        "webhooks": {"url": f"http://127.0.0.1:{port}", f"{forge.value}_secret": f"{SECRET}\n{OLDER}"},
        "schedule": {"min_gap": "1h", "max_gap": "2h"},
    }
    for name, values in sections.items():
        settings.setdefault(name, {}).update(values)
    async with stage.up(**settings) as up:
        yield Town(up, server, forge, port)


@pytest.fixture(params=list(Forge), ids=lambda f: f.value)
def forge(request):
    return request.param


@pytest.fixture
def server(forge, tmp_path):
    with start(forge, tmp_path / "forge") as made:
        yield made


@pytest.fixture
async def town(tmp_path, forge, server):
    async with living(tmp_path, server, forge) as town:
        yield town


async def test_a_push_is_told_by_the_hook_that_was_registered_and_the_mirror_follows(town):
    await town.add("team/x")
    await town.up.until_status("team/x", "active")
    town.server.add_hook("team/x", "http://127.0.0.1:9/ci?token=hunter2")
    assert (await town.order("register"))["counts"] == {"made": 1}
    (row,) = town.ours("team/x")
    assert SECRET in (row.secret, row.signing)

    await asyncio.to_thread(town.server.push, "team/x", lambda repo: repo.commit("pushed"))
    sent = [d for d in await asyncio.to_thread(town.server.wait_sent) if d.letter.hook is row]
    assert sent
    assert {delivery.status for delivery in sent} <= {200, 202}

    async def follows() -> bool:
        return town.up.refs("team/x") == town.server.repo("team/x").public_refs()

    await town.up.until(follows)


async def test_orders_are_idempotent_mend_drift_and_leave_others_alone(town):
    await town.add("team/x", "team/y")
    other = town.server.add_hook("team/x", "http://127.0.0.1:9/ci?token=hunter2")
    assert (await town.order("check"))["counts"] == {"missing": 2}
    assert (await town.order("register"))["counts"] == {"made": 2}
    writes = len(town.server.asked("POST"))
    assert (await town.order("register"))["counts"] == {"as it should be": 2}
    assert (await town.order("check"))["counts"] == {"as it should be": 2}
    assert len(town.server.asked("POST")) == writes
    (row,) = town.ours("team/x")
    row.events.clear()
    row.secret = row.signing = ""
    checked = await town.order("check")
    assert checked["counts"] == {"drifted": 1, "as it should be": 1}
    assert "hunter2" not in str(checked)
    assert (await town.order("register"))["counts"] == {"mended": 1, "as it should be": 1}
    assert SECRET in (town.ours("team/x")[0].secret, town.ours("team/x")[0].signing)
    town.server.add_hook("team/y", town.ours("team/y")[0].url)  # a double
    assert (await town.order("register"))["counts"] == {"mended": 1, "as it should be": 1}
    assert len(town.ours("team/y")) == 1
    assert (await town.order("remove", group=f"{town.server.host}/team"))["counts"] == {"removed": 2}
    assert town.server.hooks_of("team/x") == [other]
    assert (await town.order("remove"))["counts"] == {"not there": 2}


@pytest.mark.parametrize("action", ["check", "register"])
async def test_a_renamed_repository_keeps_its_hook_which_gets_its_new_address(town, action):
    await town.add("team/old")
    assert (await town.order("register"))["counts"] == {"made": 1}
    (before,) = town.ours("team/old")
    town.server.rename_project("team/old", "team/new")
    await town.up.add(town.server.url("team/new.git"))
    await town.up.until_status("team/new", "active")
    done = await town.order(action, repos=[town.up.key("team/new")])
    assert done["counts"] == {"mended": 1}
    (row,) = town.ours("team/new")
    assert row.id == before.id
    assert row.url.endswith("team%2Fnew")
    assert SECRET in (row.secret, row.signing)
    assert (await town.order("check", repos=[town.up.key("team/new")]))["counts"] == {"as it should be": 1}
    await asyncio.to_thread(town.server.push, "team/new", lambda repo: repo.commit("pushed"))

    async def follows() -> bool:
        return town.up.refs("team/new") == town.server.repo("team/new").public_refs()

    await town.up.until(follows)


async def test_a_token_without_rights_and_a_repo_that_is_gone_are_told(town):
    await town.add("team/x", "team/y")
    await town.up.add(town.server.url("team/gone.git"))
    gone = await town.order("register")
    assert gone["counts"] == {"made": 2, "refused": 1}
    assert gone["items"][0]["repo"].endswith("team/gone")
    town.server.tokens[TOKEN] = type(town.server.tokens[TOKEN])(TOKEN, scopes=("read_user",))
    weak = await town.order("check", repos=[town.up.key("team/x")])
    assert weak["counts"] == {"refused": 1}
    assert weak["items"][0]["problem"]
    del town.server.tokens[TOKEN]
    wrong = await town.order("check")
    assert wrong["counts"]["refused"] + wrong["counts"].get("not asked", 0) == 3
    assert TOKEN not in str([gone, weak, wrong])
    assert SECRET not in str([gone, weak, wrong])


@pytest.mark.parametrize("forge", [Forge.GITLAB], indirect=True)
async def test_a_rate_limit_is_told_and_waited_for(town):
    await town.add("team/x")
    town.server.fault("/hooks", method="GET", status=429, headers={"Retry-After": "6"})
    answer = await town.up.client.post(
        ORDERS, json={"action": "register", "all": True, "forge": town.forge.value}
    )
    number = answer.json()["id"]

    async def waits() -> bool:
        return "rate limit of" in ((await town.get(number))["waiting"] or "")

    await town.up.until(waits)
    run = await town.ended(number)
    assert run["counts"] == {"made": 1}
    assert run["waiting"] is None


@pytest.mark.parametrize("forge", [Forge.GITEA], indirect=True)
async def test_a_token_and_the_forges_own_address_are_taken_over_without_a_restart(tmp_path, server, forge):
    elsewhere = {"hooks.forge": forge.value, "hooks.forge_url": f"http://127.0.0.1:{free_port()}/git"}
    async with living(
        tmp_path, server, forge, credentials={"hooks.token": "an-older-token", **elsewhere}
    ) as town:
        await town.add("team/x")
        nobody = await town.order("check")
        assert nobody["counts"] == {"refused": 1}
        settings = town.up.node.config
        here = settings.credentials["hooks"].model_copy(update={"forge_url": server.url("").rstrip("/")})
        town.up.node.reload(lambda: settings.model_copy(update={"credentials": {"hooks": here}}))
        assert "token" in (await town.order("check"))["items"][0]["problem"]
        right = here.model_copy(update={"token": SecretStr(TOKEN)})
        town.up.node.reload(lambda: settings.model_copy(update={"credentials": {"hooks": right}}))
        assert (await town.order("register"))["counts"] == {"made": 1}
        assert len(town.ours("team/x")) == 1


@pytest.mark.parametrize("forge", [Forge.GITLAB, Forge.GITEE], indirect=True)
async def test_an_order_is_stopped_by_a_person_and_goes_on_after_a_restart(tmp_path, server, forge):
    async with living(tmp_path, server, forge) as town:
        await town.add(*(f"team/r{n}" for n in range(12)))
        town.server.fault("/hooks", method="GET", delay_s=0.2, times=None)
        ordered = {"action": "register", "all": True, "forge": forge.value}
        number = (await town.up.client.post(ORDERS, json=ordered)).json()["id"]
        busy = await town.up.client.post(ORDERS, json=ordered)
        assert busy.status_code == 409
        stopped = (await town.up.client.delete(f"{ORDERS}/{number}")).json()
        assert (stopped["state"], stopped["done"] < 12) == ("ended", True)
        assert stopped["error"].startswith("stopped by")
        number = (await town.up.client.post(ORDERS, json=ordered)).json()["id"]

        async def begun() -> bool:
            return (await town.get(number))["done"] >= 2

        await town.up.until(begun)
    town.server.heal()
    async with living(tmp_path, server, forge, town.port) as town:
        run = await town.ended(number)
        assert (run["done"], run["error"]) == (12, None)
        assert [len(town.ours(f"team/r{n}")) for n in range(12)] == [1] * 12
