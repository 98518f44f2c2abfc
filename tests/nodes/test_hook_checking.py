"""Who is believed: before anything large is read, and also about nothing in particular."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from evermirror.core.hooks.reading import LARGE
from evermirror.core.hooks.secrets import Secrets
from evermirror.core.hooks.signatures import github_signature
from evermirror.errors import HookRefused, Unavailable, UsageError
from evermirror.model.forge import Forge
from evermirror.model.hook import HookKind
from evermirror.model.repo import RepoKey
from evermirror.model.url import UrlRules
from evermirror.nodes.coordinator.hooks import hook_checking
from evermirror.nodes.coordinator.hooks.hook_checking import OWN_SECRETS_MAX, UNSIGNED_BYTES_MAX, HookChecking

FORGES, HOSTS, OWN = "the secret of the forge", "the secret of the host", "the secret of one repo"
HOST, KEY = "github.com", RepoKey("github.com/team/one")
SECRETS = Secrets(
    {HOST: (HOSTS,), KEY: (OWN,)}, {Forge.GITHUB: (FORGES,), Forge.GITLAB: ("another forge's secret",)}
)


def checking(secrets: Secrets = SECRETS) -> HookChecking:
    made = HookChecking(UrlRules(), lambda: 1_794_830_400.0)
    made.configure(secrets)
    return made


def signed(body: bytes, secret: str, event: str = "push") -> dict[str, str]:
    headers = {"content-type": "application/json", "x-github-event": event, "x-github-delivery": "1"}
    return headers | {"x-hub-signature-256": github_signature(secret, body)}


def push(key: str, size: int = 0) -> bytes:
    commits = [{"message": "x" * 100}] * (size // 100)
    return json.dumps({"repository": {"clone_url": f"https://{key}.git"}, "commits": commits}).encode()


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(forge: Forge, headers: Mapping[str, str], body: bytes) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr(hook_checking, "read", read)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("size", [UNSIGNED_BYTES_MAX + 1, LARGE + 1])
@pytest.mark.parametrize("repo", [None, KEY, "github.com/not/ours"])
async def test_a_large_body_that_nobody_signed_is_not_read(size: int, repo: str | None) -> None:
    one = push(KEY, size)
    for body, headers in ((one, signed(one, "wrong")), (b"[" * size, {}), (b" " * size, signed(b"", OWN))):
        with pytest.raises(HookRefused, match="is not signed with a secret"):
            await checking().opened(Forge.GITHUB, headers, body, repo)


@pytest.mark.usefixtures("unread")
async def test_a_large_body_that_names_its_repo_is_signed_for_it_or_not_read() -> None:
    body = push(KEY, UNSIGNED_BYTES_MAX)
    for secret in (HOSTS, FORGES):
        with pytest.raises(HookRefused):
            await checking().opened(Forge.GITHUB, signed(body, secret), body, KEY)


@pytest.mark.parametrize("size", [UNSIGNED_BYTES_MAX + 1, LARGE + 1])
@pytest.mark.parametrize(
    ("secret", "key"), [(OWN, KEY), (HOSTS, "github.com/team/two"), (FORGES, "ghe.example/team/two")]
)
async def test_a_large_body_that_is_signed_is_taken(size: int, secret: str, key: str) -> None:
    body = push(key, size)
    for repo in (None, key):
        vouched = await checking().opened(Forge.GITHUB, signed(body, secret), body, repo)
        assert vouched.keys == (key,)


async def test_a_large_body_signed_for_another_repo_is_refused_once_it_is_read() -> None:
    body = push(KEY, LARGE)
    for secret in (HOSTS, FORGES):
        with pytest.raises(HookRefused):
            await checking().opened(Forge.GITHUB, signed(body, secret), body, None)


async def test_with_secrets_for_very_many_repos_a_large_body_is_read_where_that_is_quick() -> None:
    many = {
        RepoKey(f"github.com/team/r{n}"): (f"the secret of repo {n}",) for n in range(OWN_SECRETS_MAX + 1)
    }
    busy = checking(Secrets(many, {}))
    key = next(iter(many))
    body = push(key, LARGE)
    assert (await busy.opened(Forge.GITHUB, signed(body, many[key][0]), body, None)).keys == (key,)
    body = body[:-2] + b"," + b"{}," * 60_000 + b"{}]}"
    with pytest.raises(HookRefused):
        await busy.opened(Forge.GITHUB, signed(body, many[key][0]), body, None)
    assert (await busy.opened(Forge.GITHUB, signed(body, many[key][0]), body, key)).keys == (key,)


@pytest.mark.parametrize("secret", [FORGES, HOSTS])
async def test_a_hook_without_a_repo_may_be_signed_by_forge_or_host(secret: str) -> None:
    body = json.dumps({"zen": "Keep it logically awesome.", "organization": {"login": "team"}}).encode()
    vouched = await checking().opened(Forge.GITHUB, signed(body, secret, "ping"), body, None)
    assert (vouched.hook.kind, vouched.keys) == (HookKind.PING, ())
    with pytest.raises(UsageError, match="not a JSON object"):
        await checking().opened(Forge.GITHUB, signed(b"[]", secret), b"[]", None)


async def test_a_system_hook_of_an_own_gitlab_is_taken_by_the_hosts_secret() -> None:
    secrets = Secrets({"gitlab.example.org": (HOSTS,)}, {})
    body = json.dumps({"event_name": "user_create", "name": "A", "username": "a"}).encode()
    headers = {"content-type": "application/json", "x-gitlab-event": "System Hook"}
    vouched = await checking(secrets).opened(Forge.GITLAB, headers | {"x-gitlab-token": HOSTS}, body, None)
    assert (vouched.hook.kind, vouched.keys) == (HookKind.OTHER, ())
    with pytest.raises(HookRefused):
        await checking(secrets).opened(Forge.GITLAB, headers | {"x-gitlab-token": OWN}, body, None)


@pytest.mark.parametrize("secret", [OWN, "another forge's secret", "wrong"])
async def test_a_hook_without_a_repo_is_not_for_everybody(secret: str) -> None:
    body = json.dumps({"zen": "x"}).encode()
    with pytest.raises(HookRefused):
        await checking().opened(Forge.GITHUB, signed(body, secret, "ping"), body, None)


async def test_where_no_thread_can_be_had_a_large_hook_is_to_be_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    body = push(KEY, LARGE)
    monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", none_left)
    with pytest.raises(Unavailable):
        await checking().opened(Forge.GITHUB, signed(body, OWN), body, None)


async def test_the_bodys_name_comes_before_that_of_the_address_and_both_must_be_signed_for() -> None:
    body = push("github.com/team/new")
    vouched = await checking().opened(Forge.GITHUB, signed(body, HOSTS), body, "github.com/team/old")
    assert vouched.keys == ("github.com/team/new", "github.com/team/old")
    assert (vouched.about, vouched.twin) == ("github.com/team/old", None)
    with pytest.raises(HookRefused):  # the address names one with a secret of its own
        await checking().opened(Forge.GITHUB, signed(body, HOSTS), body, KEY)
    own = push(KEY)
    vouched = await checking().opened(Forge.GITHUB, signed(own, HOSTS), own, "github.com/team/old")
    assert vouched.keys == ("github.com/team/old",), "the body names what this secret may not speak for"


async def test_the_same_repository_under_another_host_is_its_twin() -> None:
    body = push("inside.example/Team/two")
    vouched = await checking().opened(Forge.GITHUB, signed(body, FORGES), body, "outside.example/team/two")
    assert vouched.keys[0] == "inside.example/Team/two"
    assert vouched.twin == "outside.example/team/two"
