"""What is asked of a forge about a repository's hooks: no more than its endpoints for hooks, so that a token
which may do nothing else is enough.

Whatever goes wrong is a ``FailureError`` with the kinds that ``api`` lists. PERMISSION_DENIED and NOT_FOUND
say in their hint which right a token needs at this forge: most answer 404 to whom they show nothing. A
repository that was moved away from its path is CONFLICT.

A write whose answer is missing is looked at again, or done again where that is harmless: there are never two
hooks by that. Secrets are sent, and in no error, log or value.
"""

from __future__ import annotations

from typing import Protocol

from evermirror.model.forge import Forge
from evermirror.model.hook import ForgeHook, WantedHook


class ForgeHooks(Protocol):
    """One instance with one token. Requests are paced, answers and waits bounded."""

    @property
    def forge(self) -> Forge: ...

    @property
    def events(self) -> frozenset[str]:
        """Those that a mirror wants, in the forge's own words: pushes, tags, refs made and deleted, and
        repositories renamed where the forge tells that. For ``WantedHook.events``."""
        ...

    async def hooks(self, path: str) -> tuple[ForgeHook, ...]:
        """All of the repository ``path`` ("owner/name"; with subgroups at GitLab), from all pages. An event
        that is sent for some branches only is not in a hook's ``events``."""
        ...

    async def make_hook(self, path: str, wanted: WantedHook) -> ForgeHook:
        """Where the forge, or a look after an unclear answer, says that one with this URL is there already,
        that one is made as wanted and returned."""
        ...

    async def change_hook(self, path: str, hook_id: str, wanted: WantedHook) -> ForgeHook:
        """Exactly as wanted, its secret too, and switched on. NOT_FOUND: it is gone."""
        ...

    async def remove_hook(self, path: str, hook_id: str) -> None:
        """One that is gone already is no trouble."""
        ...

    async def close(self) -> None:
        """Ends its connections."""
        ...
