"""Who may ask about repos' hooks, and what they are told."""

from __future__ import annotations

import pytest

from evermirror.faces.api.auth import AuthSettings
from evermirror.model.forge import Forge
from evermirror.model.hook import HookMemory, HookRegistration, HookTrust, RegistrationState
from evermirror.model.repo import RepoKey
from evermirror.nodes.hook_service import HookSelection, HookView

URL, KEY = "https://github.com/o/r", RepoKey("github.com/o/r")
MEMORY = HookMemory(KEY, HookTrust.SILENT, 1000.0, 7, 2000.0, 0, 3, 10, 5, 3)
REGISTRATION = HookRegistration(
    KEY, Forge.GITHUB, RegistrationState.DRIFTED, "9", "switched off \udcff", 500.0
)
TOLD = {
    "trust": "silent", "since": "1970-01-01T00:16:40Z", "received": 7, "last_at": "1970-01-01T00:33:20Z",
    "told": 0, "missed": 3, "needed": 10, "told_total": 5, "missed_total": 3,
}  # fmt: skip


class FakeHooks:
    """Lists what it was given; remembers what it was asked."""

    def __init__(self, views) -> None:
        self.views = {view.key: view for view in views}
        self.asked: list[HookSelection] = []

    async def hooks(self, which):
        self.asked.append(which)
        keys = sorted(k for k in self.views if which.after is None or k > which.after)
        return tuple(self.views[key] for key in keys[: which.limit])

    async def hooks_of(self, key):
        return self.views.get(key, HookView(key, None, None))


@pytest.fixture
async def hooks(house, api_service):
    await api_service.add_url(URL, None, actor="test")
    house.hooks = FakeHooks([HookView(KEY, MEMORY, REGISTRATION)])
    return house.hooks


async def test_a_repo_tells_what_its_hooks_taught(hooks, client):
    one = (await client.get(f"/api/repos/{KEY}/-/hooks")).json()
    assert one["hooks"] == TOLD
    assert (one["repo"], one["registration"]["state"], one["registration"]["forge"]) == (
        KEY,
        "drifted",
        "github",
    )
    assert one["registration"]["problem"] == "switched off \ufffd"
    assert (await client.get(f"/api/repos/{KEY}")).json()["hooks"] == TOLD


async def test_one_without_hooks_says_so(hooks, client, api_service):
    await api_service.add_url("https://github.com/o/other", None, actor="test")
    answer = (await client.get("/api/repos/github.com/o/other/-/hooks")).json()
    assert answer == {"repo": "github.com/o/other", "hooks": None, "registration": None}
    assert (await client.get("/api/repos/github.com/o/other")).json()["hooks"] is None
    assert (await client.get("/api/repos/github.com/o/never/-/hooks")).status_code == 404


async def test_one_that_was_registered_and_never_heard_of_has_no_last_hook(house, hooks, client):
    hooks.views[KEY] = HookView(KEY, HookMemory(KEY, since=1.0), None)
    told = (await client.get(f"/api/repos/{KEY}/-/hooks")).json()["hooks"]
    assert (told["last_at"], told["needed"], told["trust"]) == (None, 5, "unproven")


async def test_the_list_passes_on_what_is_asked(hooks, client):
    query = {"trust": "silent", "state": "drifted", "search": "o/", "limit": 7}
    page = (await client.get("/api/hooks", params=query)).json()
    assert hooks.asked == [HookSelection(HookTrust.SILENT, RegistrationState.DRIFTED, "o/", None, 7)]
    assert page["items"][0]["hooks"] == TOLD
    assert page["next_cursor"] is None


async def test_pages_are_followed_to_the_end(hooks, client):
    keys = [RepoKey(f"h.org/{n}") for n in range(5)]
    hooks.views = {key: HookView(key, HookMemory(key), None) for key in keys}
    seen, cursor = [], None
    while True:
        page = (
            await client.get("/api/hooks", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        ).json()
        seen += [item["repo"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == keys


@pytest.mark.parametrize(
    "query", ["trust=sure", "state=fine", "limit=0", "limit=1001", "search=%00", "cursor=%21", "limit=x"]
)
async def test_what_cannot_be_asked_is_refused(hooks, client, query):
    assert (await client.get(f"/api/hooks?{query}")).status_code == 422
    assert hooks.asked == []


async def test_nobody_without_the_role_reader_is_told(house, hooks):
    house.auth = AuthSettings(tokens_required=True, public_reads=True)
    house.with_tokens()
    async with house.client(address="203.0.113.9") as stranger:
        for path in ("/api/hooks", f"/api/repos/{KEY}/-/hooks"):
            assert (await stranger.get(path)).status_code in (401, 403), path
        public = await stranger.get(f"/api/repos/{KEY}")
        assert (public.status_code, public.json()["hooks"]) == (200, None)
    async with house.client("em_reader", address="203.0.113.9") as reader:
        assert (await reader.get("/api/hooks")).status_code == 200
        assert (await reader.get(f"/api/repos/{KEY}")).json()["hooks"] == TOLD


async def test_a_server_that_takes_no_hooks_says_so(client, api_service):
    await api_service.add_url(URL, None, actor="test")
    assert (await client.get("/api/hooks")).status_code == 404
    assert (await client.get(f"/api/repos/{KEY}/-/hooks")).status_code == 404
    assert (await client.get(f"/api/repos/{KEY}")).json()["hooks"] is None
