"""Who we are at a forge: a token that became nobody's, or another one's, makes no project gone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from evermirror.core.discover.expiry import REFUSED
from evermirror.edge.forge import make
from evermirror.edge.forge.gitea import Gitea
from evermirror.model.forge import Forge
from evermirror.nodes.coordinator.discovery import credential_watch
from tests.nodes.discovery_house import SOURCE_TOKEN, Following, following
from tests.support.forges.gitea import GiteaServer
from tests.support.forges.github import GitHubServer
from tests.support.forges.gitlab import GitLabServer

pytestmark = pytest.mark.timeout(120)

PUBLIC, PRIVATE = ("a", "b", "c", "d"), ("x", "y")
ALL = {f"acme/{name}": "active" for name in PUBLIC + PRIVATE}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run was refused is asked about at once."""
    monkeypatch.setattr(credential_watch, "FIRST_S", 0.1)
    monkeypatch.setattr(credential_watch, "LOOK_S", 0.2)


def acme(source: GiteaServer | GitHubServer | GitLabServer) -> None:
    source.add_group("acme", "public")
    for name in PUBLIC:
        source.add_project(f"acme/{name}", commits=1, visibility="public")
    for name in PRIVATE:
        source.add_project(f"acme/{name}", commits=1)


async def created(it: Following, kind: str = "gitea") -> None:
    done = await it.create("acme", forge=kind, target_url=None, target_credential=None)
    assert (done["last_run"]["created"], done["last_run"]["error"]) == (6, None)

    async def synced() -> bool:  # a sync that is refused later pauses its project by itself
        items = (await it.client.get("/api/pull/projects?size=1000")).json()["items"]
        return all(item["last_sync_at"] is not None for item in items)

    await it.up.until(synced)


async def assert_refused_and_nothing_gone(it: Following, last: dict) -> None:
    assert (last["complete"], last["gone"], last["held"]) == (False, 0, 0)
    assert last["error"]["error_type"] == "AUTH_FAILED"
    assert await it.states() == ALL
    assert (await it.project("acme/x"))["enabled"]

    async def told() -> bool:
        return REFUSED in await it.alerts()

    await it.up.until(told)


async def test_a_revoked_token_at_a_forge_that_answers_as_to_anybody(tmp_path: Path):
    with (
        GiteaServer(tmp_path / "source", lenient=True) as source,
        GitLabServer(tmp_path / "target") as target,
    ):
        acme(source)
        async with following(tmp_path, source, target) as it:
            await created(it)
            del source.tokens[SOURCE_TOKEN]
            await assert_refused_and_nothing_gone(it, (await it.run())["last_run"])
            dry = await it.preview(group="acme", forge="gitea", target_url=None, target_credential=None)
            assert (dry["state"], dry["error"]["error_type"]) == ("failed", "AUTH_FAILED")
            source.add_token(SOURCE_TOKEN)
            again = (await it.run())["last_run"]
            assert (again["complete"], again["unchanged"], again["gone"]) == (True, 6, 0)


async def test_a_token_that_is_revoked_while_the_group_is_listed(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(make._CLIENTS, Forge.GITEA, partial(Gitea, page_size=2))
    with (
        GiteaServer(tmp_path / "source", lenient=True) as source,
        GitLabServer(tmp_path / "target") as target,
    ):
        acme(source)
        async with following(tmp_path, source, target) as it:
            await created(it)
            search = source.search

            def revoked_after_a_page(ask):
                told = search(ask)
                if ask.query.get("sort") == "id":
                    source.tokens.pop(SOURCE_TOKEN, None)
                return told

            source.search = revoked_after_a_page
            await assert_refused_and_nothing_gone(it, (await it.run())["last_run"])
            source.search = search
            source.add_token(SOURCE_TOKEN)
            again = (await it.run())["last_run"]
            assert (again["complete"], again["unchanged"]) == (True, 6), "all is read again"


@pytest.mark.parametrize(
    ("kind", "server"), [("gitea", GiteaServer), ("github", GitHubServer), ("gitlab", GitLabServer)]
)
async def test_what_another_user_does_not_see_waits_for_a_person(tmp_path: Path, kind: str, server: type):
    with server(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        acme(source)
        async with following(tmp_path, source, target) as it:
            await created(it, kind)
            source.add_token(SOURCE_TOKEN, name="guest", user_id=7, sees=())
            for _ in range(2):  # also at the run after
                last = (await it.run())["last_run"]
                assert (last["complete"], last["gone"], last["held"]) == (True, 0, 2)
                assert "user 7" in last["held_why"]
                assert await it.states() == ALL

            async def told() -> bool:
                return "user 7" in (await it.alerts()).get("discovery-held", "")

            await it.up.until(told)
            last = (await it.run(accept=True))["last_run"]
            assert (last["gone"], last["held"], last["held_why"]) == (2, 0, None)
            source.remove_project("acme/a")
            last = (await it.run())["last_run"]
            assert (last["gone"], last["held"]) == (1, 0), "this user is the one who sees from now on"


async def test_a_new_token_of_the_same_user_changes_nothing_and_one_with_fewer_scopes_holds(tmp_path: Path):
    with GitLabServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        acme(source)
        source.add_token(SOURCE_TOKEN, scopes=("api", "read_repository"))
        async with following(tmp_path, source, target) as it:
            await created(it, "gitlab")
            source.add_token(SOURCE_TOKEN, name="renewed", scopes=("api", "read_repository"))
            source.remove_project("acme/a")
            last = (await it.run())["last_run"]
            assert (last["gone"], last["held"]) == (1, 0)
            source.add_token(SOURCE_TOKEN, name="renewed", scopes=("read_api", "read_repository"), sees=())
            last = (await it.run())["last_run"]
            assert (last["gone"], last["held"], last["held_why"]) == (0, 2, "the token lost scopes: api")
            source.add_token(SOURCE_TOKEN, scopes=("read_api", "read_repository"))
            last = (await it.run())["last_run"]
            assert (last["unchanged"], last["held"]) == (5, 0), "nothing is missing: it will do"


async def test_a_forge_that_does_not_say_once_who_we_are_does_not_make_us_forget_it(tmp_path: Path):
    with GitLabServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        acme(source)
        async with following(tmp_path, source, target) as it:
            await created(it, "gitlab")
            for path in ("/personal_access_tokens/self", "/user"):
                source.fault(path, status=403, times=None)
            last = (await it.run())["last_run"]
            assert (last["unchanged"], last["held"], last["error"]) == (6, 0, None)
            source.heal()
            source.add_token(SOURCE_TOKEN, name="guest", user_id=7, sees=())
            last = (await it.run())["last_run"]
            assert (last["gone"], last["held"]) == (0, 2)
            assert "user 7" in last["held_why"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_in_the_middle_of_a_listing_makes_nothing_gone(
    tmp_path: Path, monkeypatch, status: int
):
    monkeypatch.setitem(make._CLIENTS, Forge.GITEA, partial(Gitea, page_size=2))
    with GiteaServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        acme(source)
        async with following(tmp_path, source, target) as it:
            await created(it)
            source.fault("page=2", status=status, body='{"message":"no"}', times=None)
            last = (await it.run())["last_run"]
            assert (last["complete"], last["gone"]) == (False, 0)
            assert last["error"]["error_type"] in ("AUTH_FAILED", "PERMISSION_DENIED")
            assert await it.states() == ALL
            source.heal()
            # Somebody else goes on: what the first one read is read again
            source.add_token(SOURCE_TOKEN, name="guest", user_id=7, sees=())
            last = (await it.run())["last_run"]
            assert (last["found"], last["gone"], last["held"]) == (4, 0, 2)
