"""What the faces may ask about hooks of forges: those that come in, and those that are registered there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from evermirror.model.forge import Forge
from evermirror.model.hook import HookAnswer, HookMemory, HookRegistration, HookTrust, RegistrationState
from evermirror.model.repo import RepoKey


@dataclass(frozen=True, slots=True)
class HookSelection:
    """Which repos' hooks a list shows, in the order of keys."""

    trust: HookTrust | None = None
    state: RegistrationState | None = None
    search: str = ""
    after: RepoKey | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class HookView:
    """A repo's hooks: what is known of those that came, and of ours at the forge."""

    key: RepoKey
    memory: HookMemory | None
    registration: HookRegistration | None


class RegisterAction(Enum):
    REGISTER = "register"  # made, or mended where it is not as it should be
    CHECK = "check"  # looked at only
    REMOVE = "remove"  # ours, and no other


@dataclass(frozen=True, slots=True)
class RegisterWish:
    """Exactly one of ``repos`` (keys, aliases, URLs), ``group`` (the beginning of keys: "github.com/owner")
    and ``all_repos``. ``credential``: by name; None: each repo's own, else the one for its host. ``renew``: a
    hook that looks right is written again too, after its secret was changed."""

    action: RegisterAction
    repos: tuple[str, ...] = ()
    group: str = ""
    all_repos: bool = False
    credential: str | None = None
    forge: Forge | None = None  # None: by the host, or the credential's
    renew: bool = False


@dataclass(frozen=True, slots=True)
class RegisterItem:
    """What became of one repo. ``did``: "made", "mended", "as it should be", "missing", "drifted", "removed",
    "not there", "refused", "no forge", "not asked" (after its forge had refused enough of the others)."""

    key: RepoKey
    did: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RegisterRun:
    """One order, under way or ended. ``items`` are bounded: first those with a problem."""

    id: int
    wish: RegisterWish
    actor: str
    started_at: float
    ended_at: float | None
    total: int | None  # None: still counted
    done: int
    counts: Mapping[str, int]  # by ``did``
    items: tuple[RegisterItem, ...]
    waiting: str = ""  # for what, such as a forge's rate limit
    error: str = ""  # why it ended early


@dataclass(frozen=True, slots=True)
class HookFigures:
    """For Prometheus, since the start."""

    ends: Mapping[tuple[Forge, str], int]  # by forge and end (a HookEnd's value, or "refused")
    trust: Mapping[HookTrust, int]
    waiting: int


class HookService(Protocol):
    def figures(self) -> HookFigures: ...

    async def received(
        self, forge: Forge, headers: Mapping[str, str], body: bytes, repo: str | None
    ) -> HookAnswer:
        """``headers`` with names in lower case; ``repo`` as the hook's own address names it. On the disk when
        this returns; the look follows. ``HookRefused`` (403): not signed as it should be, or no secret is
        set; ``UsageError``: a body that is none; ``Unavailable``: too many wait."""
        ...

    async def hooks(self, which: HookSelection) -> tuple[HookView, ...]: ...

    async def hooks_of(self, key: RepoKey) -> HookView: ...

    async def register(self, wish: RegisterWish, *, actor: str) -> RegisterRun:
        """Begins; one order at a time (``Conflict``). ``UsageError`` where ``webhooks.url`` or a secret is
        not set, or the wish names nothing."""
        ...

    async def registering(self, run_id: int) -> RegisterRun:
        """``NotFound`` for one that is too long ago."""
        ...

    async def registrations(self) -> tuple[RegisterRun, ...]:
        """The last ones since the start, the newest first."""
        ...

    async def cancel(self, run_id: int, *, actor: str) -> RegisterRun: ...
