"""Orders about hooks over a real store, against forges in memory that can be made to refuse."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from evermirror.core.hooks.plan import hook_url
from evermirror.core.hooks.secrets import Secrets
from evermirror.edge.git.credentials import Credential
from evermirror.edge.store.store import Store
from evermirror.errors import NotFound
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.model.hook import ForgeHook, HookRegistration, WantedHook
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec
from evermirror.nodes.coordinator.hooks.registering import Registering
from evermirror.nodes.coordinator.hooks.registering_book import Keyring, RegisterParts
from evermirror.nodes.hook_service import RegisterAction, RegisterRun, RegisterWish

BASE = "https://mirror.example.org"
EVENTS = frozenset({"push", "create", "delete"})
HOST = Host("git.example.org")
TOKEN = "a-token-for-hooks"


@dataclass
class MemoryForge:
    """All instances. ``fault`` is asked before each answer, with the host, the path and what is asked."""

    hooks_of: dict[str, dict[str, ForgeHook]] = field(default_factory=dict)  # by "host/path"
    secrets: dict[str, str] = field(default_factory=dict)  # by hook id
    asked: list[tuple[str, str]] = field(default_factory=list)
    opened: list[tuple[Forge, str, str]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)  # of those that were opened
    open_now: int = 0
    at_once: dict[str, int] = field(default_factory=dict)
    most_at_once: int = 0
    fault: Callable[[str, str, str], FailureError | None] = lambda host, path, what: None
    gate: asyncio.Event | None = None
    keeps_off: str = ""  # GitLab's words about a hook that it does not switch on again
    numbers: int = 0

    def open(self, forge: Forge, base_url: str, credential: Credential) -> MemoryClient:
        self.opened.append((forge, base_url, credential.name))
        self.tokens.append(credential.token)
        self.open_now += 1
        return MemoryClient(self, forge, base_url.partition("://")[2])

    def of(self, key: str) -> list[ForgeHook]:
        return list(self.hooks_of.get(key, {}).values())

    def put(self, key: str, hook: ForgeHook) -> None:
        self.hooks_of.setdefault(key, {})[hook.id] = hook


class MemoryClient:
    events = EVENTS

    def __init__(self, world: MemoryForge, forge: Forge, host: str) -> None:
        self.forge = forge
        self._world = world
        self._host = host

    async def hooks(self, path: str) -> tuple[ForgeHook, ...]:
        await self._turn("look", path)
        return tuple(self._world.of(f"{self._host}/{path}"))

    async def make_hook(self, path: str, wanted: WantedHook) -> ForgeHook:
        await self._turn("make", path)
        self._world.numbers += 1
        return self._put(path, str(self._world.numbers), wanted)

    async def change_hook(self, path: str, hook_id: str, wanted: WantedHook) -> ForgeHook:
        await self._turn("change", path)
        if hook_id not in self._world.hooks_of.get(f"{self._host}/{path}", {}):
            raise refusal(FailureKind.NOT_FOUND, "no such hook")
        return self._put(path, hook_id, wanted)

    async def remove_hook(self, path: str, hook_id: str) -> None:
        await self._turn("remove", path)
        self._world.hooks_of.get(f"{self._host}/{path}", {}).pop(hook_id, None)

    async def close(self) -> None:
        self._world.open_now -= 1

    def _put(self, path: str, hook_id: str, wanted: WantedHook) -> ForgeHook:
        off = self._world.keeps_off
        hook = ForgeHook(hook_id, wanted.url, not off, wanted.events, trouble=off)
        self._world.put(f"{self._host}/{path}", hook)
        self._world.secrets[hook_id] = wanted.secret
        return hook

    async def _turn(self, what: str, path: str) -> None:
        world = self._world
        world.asked.append((what, f"{self._host}/{path}"))
        world.at_once[self._host] = world.at_once.get(self._host, 0) + 1
        world.most_at_once = max(world.most_at_once, sum(world.at_once.values()))
        assert world.at_once[self._host] == 1, "one repo at a time of an instance"
        try:
            await (world.gate.wait() if world.gate is not None else asyncio.sleep(0))
        finally:
            world.at_once[self._host] -= 1
        if (fault := world.fault(self._host, path, what)) is not None:
            raise fault


def refusal(kind: FailureKind, said: str = "no", wait_s: float | None = None) -> FailureError:
    return FailureError(Failure(kind, said, hint="What to do", retry_after_s=wait_s))


@dataclass
class House:
    store: Store
    forge: MemoryForge
    registering: Registering
    now: list[float]
    slept: list[float]
    expected: list[RepoKey]
    forgotten: list[RepoKey]

    async def add(self, *keys: str, credential: str | None = None, enabled: bool = True) -> None:
        await self.store.upsert_repos([record(key, credential=credential, enabled=enabled) for key in keys])

    async def order(self, action: RegisterAction, *repos: str, **more: object) -> RegisterRun:
        begun = await self.registering.register(wish(action, *repos, **more), actor="ann")
        return await self.ended(begun.id)

    async def ended(self, run_id: int, within_s: float = 20.0) -> RegisterRun:
        async with asyncio.timeout(within_s):
            while (run := await self.registering.registering(run_id)).ended_at is None:
                await asyncio.sleep(0.005)
        return run

    async def known(self, key: str) -> HookRegistration | None:
        return (await self.store.registrations_of([RepoKey(key)])).get(RepoKey(key))

    def ours(self, key: str) -> list[ForgeHook]:
        return [hook for hook in self.forge.of(key) if hook.url.startswith(BASE)]


def wish(action: RegisterAction, *repos: str, **more: object) -> RegisterWish:
    return replace(RegisterWish(action, repos=repos), **more)


def record(key: str, *, credential: str | None = None, enabled: bool = True, url: str = "") -> RepoRecord:
    host = Host(key.partition("/")[0])
    spec = RepoSpec(RepoKey(key), url or f"https://{key}.git", host, credential=credential)
    return RepoRecord(spec, enabled=enabled)


def good(key: str, hook_id: str = "1", forge: Forge = Forge.GITEA) -> ForgeHook:
    return ForgeHook(hook_id, hook_url(BASE, forge, RepoKey(key)), True, EVENTS)


CREDENTIALS = (
    Credential("example", token=TOKEN, hosts=frozenset({HOST}), forge="gitea"),
    Credential("hub", token=TOKEN, hosts=frozenset({"github.com"}), forge="github"),
    Credential("lab", token=TOKEN, forge="gitlab"),
    Credential("keyed", ssh_key_file=Path("/key")),
)
BY_NAME = {c.name: c for c in CREDENTIALS}


@contextlib.asynccontextmanager
async def house(
    folder: Path,
    forge: MemoryForge | None = None,
    *,
    base: str | None = BASE,
    secrets: Secrets | None = None,
    now: float = 1_000_000.0,
) -> AsyncIterator[House]:
    """On ``folder``, which may have been one before. Waits take no time, and the clock goes on by them."""
    store = await Store.open(f"sqlite:///{folder / 'hooks.db'}")
    world, clock, slept = forge or MemoryForge(), [now], []
    expected: list[RepoKey] = []
    forgotten: list[RepoKey] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds
        await asyncio.sleep(0)

    async def find(name: str) -> RepoRecord:
        found = await store.find_repo(name)
        if found is None:
            raise NotFound(f"{name!r} is not in the catalog")
        return found

    every = dict.fromkeys(Forge, ("a secret of the forge", "an older one"))
    parts = RegisterParts(
        store=store,
        open=world.open,
        credentials=Keyring(BY_NAME),
        base=base,
        secrets=secrets if secrets is not None else Secrets(by_forge=every),
        clock=lambda: clock[0],
        sleep=sleep,
        expect=expected.extend,
        unexpected=forgotten.extend,
    )
    registering = Registering(parts, find)
    await registering.load()
    running = asyncio.create_task(registering.run())
    await asyncio.sleep(0.01)
    try:
        yield House(store, world, registering, clock, slept, expected, forgotten)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()
