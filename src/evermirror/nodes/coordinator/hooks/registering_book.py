"""What is known of an order that is carried out: counts and items for people, hooks seen for the store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog

from evermirror.core.hooks.secrets import Secrets
from evermirror.edge.forge.hooks_api import ForgeHooks
from evermirror.edge.git.credentials import Credential
from evermirror.edge.store.store import Store
from evermirror.model.failure import FailureError
from evermirror.model.forge import Forge
from evermirror.model.hook import HookRegistration
from evermirror.model.repo import Host, RepoKey
from evermirror.nodes.coordinator.hooks.registering_act import Done
from evermirror.nodes.hook_service import RegisterItem, RegisterRun, RegisterWish

log = structlog.get_logger(__name__)

PROBLEMS_SHOWN = 900
OTHERS_SHOWN = 100
PROBLEM_CHARS_MAX = 1_000
STORED_AT_ONCE = 50
STORED_WITHIN_S = 2.0
SETTLE_S = 5.0  # for what was learned, at the end
DATABASE_WAIT_MIN_S, DATABASE_WAIT_MAX_S = 0.5, 30.0  # one in trouble is tried again,
DATABASE_PATIENCE_S = 3_600.0  # and an order that takes weeks outlasts its restart

T = TypeVar("T")
OpenHooks = Callable[[Forge, str, Credential], ForgeHooks]
Told = Callable[[Sequence[RepoKey]], None]


@dataclass(slots=True)
class Keyring:
    """Credentials as the settings have them at this moment, also for an order under way."""

    by_name: Mapping[str, Credential]


@dataclass(frozen=True, slots=True)
class RegisterParts:
    """``base``: our public address. ``expect`` and ``unexpected`` are told of hooks that are there from now
    on, and of those that are not."""

    store: Store
    open: OpenHooks
    credentials: Keyring
    base: str | None
    secrets: Secrets
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    expect: Told = lambda keys: None
    unexpected: Told = lambda keys: None


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    wish: RegisterWish
    actor: str
    started_at: float
    resumed: bool = False  # a stop cut it short


class Book:
    """``total``: how many repos it is about."""

    def __init__(self, order: Order, parts: RegisterParts, total: int) -> None:
        self.order = order
        self.ended_at: float | None = None
        self.error = ""
        self._parts = parts
        self._total = total
        self._counts: Counter[str] = Counter()
        self._problems: list[RegisterItem] = []
        self._others: list[RegisterItem] = []
        self._waits: dict[Host, float] = {}
        self._trouble = ""  # of the database
        self._saving = asyncio.Lock()
        self._unsaved: list[tuple[HookRegistration, str]] = []
        self._saved_at = time.monotonic()

    @property
    def view(self) -> RegisterRun:
        return RegisterRun(
            id=self.order.id,
            wish=self.order.wish,
            actor=self.order.actor,
            started_at=self.order.started_at,
            ended_at=self.ended_at,
            total=self._total,
            done=self._counts.total(),
            counts=dict(self._counts),
            items=(*self._problems, *self._others),
            waiting=self._waiting(),
            error=self.error,
        )

    def count(self, did: str, repos: int) -> None:
        """So many of which there is no more to tell."""
        if repos > 0:
            self._counts[did] += repos

    def note(self, item: RegisterItem) -> None:
        self._counts[item.did] += 1
        shown, most = (self._problems, PROBLEMS_SHOWN) if _is_problem(item) else (self._others, OTHERS_SHOWN)
        if len(shown) < most:
            shown.append(item)

    async def tell(self, key: RepoKey, forge: Forge, done: Done) -> None:
        problem = done.problem[:PROBLEM_CHARS_MAX]
        self.note(RegisterItem(key, done.did, problem))
        if done.state is not None:
            now = self._parts.clock()
            seen = HookRegistration(key, forge, done.state, done.hook_id, problem, now)
            self._unsaved.append((seen, done.did))
        late = time.monotonic() - self._saved_at > STORED_WITHIN_S
        if len(self._unsaved) >= STORED_AT_ONCE or (late and self._unsaved):
            await self.save()

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What is asked of the database, again and again while it is in trouble. Raises FailureError after an
        hour of it."""
        pause, waited = DATABASE_WAIT_MIN_S, 0.0
        while True:
            try:
                answer = await ask()
            except FailureError as error:
                if waited >= DATABASE_PATIENCE_S:
                    raise
                if not self._trouble:
                    log.warning("an order about hooks waits for the database", reason=error.failure.message)
                self._trouble = error.failure.message
                await self._parts.sleep(pause)
                waited, pause = waited + pause, min(DATABASE_WAIT_MAX_S, pause * 2)
            else:
                self._trouble = ""
                return answer

    async def save(self) -> None:
        """What was learned is stored as soon as the database takes it; meanwhile no more is done."""
        await self.patiently(self._save)

    def wait(self, host: Host, seconds: float) -> None:
        """For a limit; 0: that is over."""
        if seconds > 0:
            self._waits[host] = self._parts.clock() + seconds
        else:
            self._waits.pop(host, None)

    async def close(self) -> None:
        """What was learned is stored also where the order was cut short; what is not is learned again."""
        saving = asyncio.ensure_future(self._save())
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({saving}, timeout=SETTLE_S)
        if not saving.done():
            saving.cancel()
        elif not saving.cancelled() and (error := saving.exception()) is not None:
            log.warning("what an order about hooks learned last is not stored", reason=str(error))
        self._waits.clear()
        self._trouble = ""

    async def _save(self) -> None:
        async with self._saving:  # hosts are asked side by side
            batch = self._unsaved.copy()
            await self._parts.store.put_registrations([seen for seen, _ in batch])
            del self._unsaved[: len(batch)]
            self._saved_at = time.monotonic()
        if made := [seen.key for seen, did in batch if did in ("made", "mended")]:
            self._parts.expect(made)
        if gone := [seen.key for seen, did in batch if did == "removed"]:
            self._parts.unexpected(gone)

    def _waiting(self) -> str:
        now = self._parts.clock()
        waits = sorted((until - now, host) for host, until in self._waits.items())
        limits = [f"rate limit of {host}, {max(0, round(left))} s more" for left, host in waits]
        return "; ".join([f"the database: {self._trouble}"] * bool(self._trouble) + limits)


def _is_problem(item: RegisterItem) -> bool:
    return bool(item.problem) or item.did in ("missing", "drifted", "refused")
