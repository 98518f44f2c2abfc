"""What takes hooks, in memory: reads and checks them with the real thing, and does nothing else."""

from __future__ import annotations

import asyncio

from evermirror.core.hooks.secrets import Secrets
from evermirror.model.hook import HookAnswer, HookEnd, HookKind
from evermirror.model.url import UrlRules
from evermirror.nodes.coordinator.hooks.hook_checking import HookChecking

NOW = 1_794_830_400.0


class FakeWebhooks:
    """``repos`` are ours. ``explode`` is raised in place of an answer; ``gate`` holds answers back."""

    def __init__(self, secrets=None, repos=()):
        self._checking = HookChecking(UrlRules(), lambda: NOW)
        self.configure(secrets or Secrets())
        self.repos = set(repos)
        self.taken = []
        self.explode = None
        self.gate = asyncio.Event()
        self.gate.set()

    def configure(self, secrets):
        self._checking.configure(secrets)

    async def received(self, forge, headers, body, repo):
        await self.gate.wait()
        if self.explode:
            raise self.explode
        vouched = await self._checking.opened(forge, headers, body, repo)
        self.taken.append((forge, headers, body, repo))
        if vouched.hook.kind is HookKind.PING:
            return HookAnswer(HookEnd.PONG)
        known = next((key for key in vouched.keys if key in self.repos), None)
        if known is None:
            return HookAnswer(HookEnd.IGNORED, reason="this repository is not mirrored here")
        return HookAnswer(HookEnd.ACCEPTED, known)
