"""Hooks that are taken, with what stands around them in memory: what goes wrong for one hurts no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from types import SimpleNamespace

import pytest

from evermirror.core.hooks.secrets import Secrets
from evermirror.core.hooks.signatures import github_signature
from evermirror.core.hooks.spacing import Verdict
from evermirror.errors import Unavailable
from evermirror.model.forge import Forge
from evermirror.model.hook import HookAnswer, HookEnd
from evermirror.model.repo import RepoKey
from evermirror.model.url import UrlRules
from evermirror.nodes.coordinator.hooks.hook_checking import HookChecking
from evermirror.nodes.coordinator.hooks.hooking import FAULTS_MAX, Hooking

SECRET = "the forge and we know this"


class World:
    """The catalog, looks and renames at once."""

    def __init__(self) -> None:
        self.repos: set[str] = set()
        self.off = ""
        self.paused: set[str] = set()
        self.renames: list[tuple[str, str]] = []
        self.looks: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def known(self, keys: Sequence[RepoKey]) -> Mapping[RepoKey, object]:
        return {key: SimpleNamespace(key=key) for key in keys if key in self.repos}

    async def left(self, keys: Sequence[RepoKey]) -> frozenset[RepoKey]:
        return frozenset()

    def is_off(self, record: SimpleNamespace) -> str:
        return "it is paused" if record.key in self.paused else self.off

    async def renamed(self, key: RepoKey, url: str) -> None:
        self.renames.append((key, url))

    async def has_host(self, host: str) -> bool:
        return False

    async def add(self, url: str, *, actor: str) -> RepoKey:
        await self.gate.wait()
        return RepoKey(url.removeprefix("https://"))

    async def ask(self, wishes: Mapping[RepoKey, str]) -> tuple[Mapping[RepoKey, Verdict], list[object]]:
        self.looks += wishes
        return dict.fromkeys(wishes, Verdict.NOW), []

    async def start(self, tasks: Sequence[object]) -> None:
        pass

    async def run(self) -> None:
        await asyncio.Event().wait()

    def settle(self) -> None:
        pass


class House:
    def __init__(self, *, adds_unknown: bool = False) -> None:
        self.world = World()
        at = lambda: 1_794_830_400.0  # noqa: E731
        checking = HookChecking(UrlRules(), at)
        self.hooking = Hooking(checking, self.world, self.world, self.world, at)  # type: ignore[arg-type]
        self.hooking.configure(Secrets({}, {Forge.GITHUB: (SECRET,)}), adds_unknown=adds_unknown)

    async def push(self, name: str, delivery: str = "", repo: str | None = None) -> HookAnswer:
        url = f"https://github.com/team/{name}"
        return await self.send("push", {"repository": {"clone_url": url}}, delivery or name, repo)

    async def rename(self, old: str, new: str, repo: str | None = None) -> HookAnswer:
        bare = f"https://github.com/team/{new}"
        payload = {
            "action": "renamed",
            "changes": {"repository": {"name": {"from": old}}},
            "repository": {"full_name": f"team/{new}", "clone_url": f"{bare}.git", "html_url": bare},
        }
        return await self.send("repository", payload, f"{old} to {new}", repo)

    async def send(self, event: str, payload: object, delivery: str, repo: str | None) -> HookAnswer:
        body = json.dumps(payload).encode()
        headers = {"x-github-event": event, "x-hub-signature-256": github_signature(SECRET, body)}
        return await self.hooking.received(
            Forge.GITHUB, headers | {"x-github-delivery": delivery}, body, repo
        )


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(adds_unknown=True)
    house.world.repos = {"github.com/team/one", "github.com/team/two"}
    running = asyncio.create_task(house.hooking.run())
    yield house
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_was_ignored_counts_once_the_reason_is_gone(house: House) -> None:
    house.world.off = "it is disabled"
    first, same = await asyncio.gather(house.push("one"), house.push("one"))
    assert (first.end, first.reason) == (same.end, same.reason) == (HookEnd.IGNORED, "it is disabled")
    house.world.off = ""
    assert (await house.push("one")).end is HookEnd.ACCEPTED
    assert (await house.push("one")).reason == "it was here before"
    assert house.world.looks == ["github.com/team/one"]


async def test_the_repo_in_its_own_address_is_told_where_the_one_in_the_body_is_paused(house: House) -> None:
    house.world.paused = {"github.com/team/one"}
    answer = await house.push("one", repo="github.com/team/two")
    assert (answer.end, answer.repo) == (HookEnd.ACCEPTED, "github.com/team/two")
    house.world.paused.add("github.com/team/two")
    answer = await house.push("one", "again", repo="github.com/team/two")
    assert (answer.end, answer.repo, answer.reason) == (
        HookEnd.IGNORED,
        "github.com/team/one",
        "it is paused",
    )
    assert house.world.looks == ["github.com/team/two"]


async def test_the_same_repo_under_another_host_is_told_and_not_called_renamed(house: House) -> None:
    inside = "inside.example/team/two"
    house.world.repos = {"github.com/team/two", inside}
    assert (await house.rename("two", "three", repo=inside)).end is HookEnd.ACCEPTED
    assert house.world.looks == ["github.com/team/two", inside]
    renamed = ("github.com/team/two", "https://github.com/team/three.git")
    assert house.world.renames == [renamed]
    house.world.paused = {"github.com/team/two"}
    answer = await house.rename("zero", "two", repo=inside)
    assert (answer.end, answer.repo) == (HookEnd.ACCEPTED, inside)
    assert house.world.renames == [renamed], "it has this path already"


async def test_adding_that_takes_long_holds_up_no_hook_of_a_known_repo(house: House) -> None:
    house.world.gate.clear()
    new = asyncio.create_task(house.push("new"))
    async with asyncio.timeout(1.5):
        assert (await house.push("one")).end is HookEnd.ACCEPTED
        assert not new.done()
        again = asyncio.create_task(house.push("new"))
        await asyncio.sleep(0)
        house.world.gate.set()
        assert (await new).end is HookEnd.ADDED
        assert (await again).end is HookEnd.MERGED


async def test_a_bug_that_one_hook_meets_stops_nothing(house: House) -> None:
    def on_hook(key: RepoKey, at: float) -> None:
        raise KeyError(key)

    well, house.hooking.on_hook = house.hooking.on_hook, on_hook
    await house.push("one")
    house.hooking.on_hook = well
    assert (await house.push("two")).end is HookEnd.ACCEPTED


async def test_bugs_without_end_are_not_hidden() -> None:
    house = House()

    async def known(keys: Sequence[RepoKey]) -> Mapping[RepoKey, object]:
        raise KeyError("a bug")

    house.world.known = known  # type: ignore[method-assign]
    running = asyncio.create_task(house.hooking.run())
    for n in range(FAULTS_MAX):
        assert not running.done()
        with pytest.raises(Unavailable):
            await house.push(f"r{n}")
    with pytest.raises(ExceptionGroup):
        await running
    with pytest.raises(Unavailable, match="being stopped"):
        await house.push("one")
