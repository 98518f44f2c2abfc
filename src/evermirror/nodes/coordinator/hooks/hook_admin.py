"""All that the faces may ask about hooks, by whose part it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from evermirror.model.forge import Forge
from evermirror.model.hook import HookAnswer, HookTrust
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.hooks.hooking import Hooking
from evermirror.nodes.hook_service import HookFigures, HookSelection, HookView, RegisterRun, RegisterWish


class Trusting(Protocol):
    """What is known of repos' hooks."""

    def counts(self) -> Mapping[HookTrust, int]: ...

    async def hooks(self, which: HookSelection) -> tuple[HookView, ...]: ...

    async def hooks_of(self, key: RepoKey) -> HookView: ...


class Registering(Protocol):
    """Hooks made and checked at forges."""

    async def register(self, wish: RegisterWish, *, actor: str) -> RegisterRun: ...

    async def registering(self, run_id: int) -> RegisterRun: ...

    async def registrations(self) -> tuple[RegisterRun, ...]: ...

    async def cancel(self, run_id: int, *, actor: str) -> RegisterRun: ...


class HookAdmin:
    """Implements ``HookService``."""

    def __init__(self, hooking: Hooking, trusting: Trusting, registering: Registering) -> None:
        self._hooking = hooking
        self._trusting = trusting
        self._registering = registering

    def figures(self) -> HookFigures:
        return HookFigures(dict(self._hooking.ends), self._trusting.counts(), self._hooking.waiting)

    async def received(
        self, forge: Forge, headers: Mapping[str, str], body: bytes, repo: str | None
    ) -> HookAnswer:
        return await self._hooking.received(forge, headers, body, repo)

    async def hooks(self, which: HookSelection) -> tuple[HookView, ...]:
        return await self._trusting.hooks(which)

    async def hooks_of(self, key: RepoKey) -> HookView:
        return await self._trusting.hooks_of(key)

    async def register(self, wish: RegisterWish, *, actor: str) -> RegisterRun:
        return await self._registering.register(wish, actor=actor)

    async def registering(self, run_id: int) -> RegisterRun:
        return await self._registering.registering(run_id)

    async def registrations(self) -> tuple[RegisterRun, ...]:
        return await self._registering.registrations()

    async def cancel(self, run_id: int, *, actor: str) -> RegisterRun:
        return await self._registering.cancel(run_id, actor=actor)
