"""Hooks that come in: believed or not, gathered for some milliseconds, stored together, answered, looked at.

    received ─▶ HookChecking: signed?  ─▶ here before? ─▶ inbox ─▶ which repos are these: one question for all
                                                                     │
              answered ◀── tasks in the store, one transaction ◀── HookLooks ◀── known, enabled
                  │                                                  unknown ──▶ HookAdditions, or ignored
                  └──▶ given out

Everything that may take long is bounded: who waits for an answer is told within ``ANSWER_S`` that it must
send again, and so is everybody while too many wait. A forge that gets no answer sends again, or a poll finds
the change.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

from evermirror.core.hooks.deliveries import Deliveries, Delivery, delivery_of
from evermirror.core.hooks.secrets import Secrets
from evermirror.core.hooks.spacing import Verdict
from evermirror.errors import HookRefused, Unavailable, UsageError
from evermirror.model.failure import FailureError
from evermirror.model.forge import Forge
from evermirror.model.hook import Hook, HookAnswer, HookEnd, HookKind
from evermirror.model.messages import Report
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.nodes.clock import uptime
from evermirror.nodes.coordinator.hooks.hook_additions import Growing, HookAdditions
from evermirror.nodes.coordinator.hooks.hook_checking import HookChecking, Vouched
from evermirror.nodes.coordinator.hooks.hook_looks import HookLooks
from evermirror.nodes.coordinator.hooks.hook_renames import HookRenames

log = structlog.get_logger(__name__)

GATHER_S = 0.003  # hooks that come within share a transaction; nobody notices the wait
GATHER_MAX_S = 0.05  # the same while many come, so much for each: a transaction costs as much as ten hooks
BATCH = 500  # hooks decided together: some 10 ms, and others have their turn
WAITING_MAX = 5000  # ten seconds of the most that is promised
ANSWER_S = 1.8  # a database in trouble: forges wait for ten, callers are promised two
FAULTS_MAX = 10  # unexpected errors in a row, before this process is taken to be broken

_TAKEN = (HookEnd.ACCEPTED, HookEnd.MERGED, HookEnd.ADDED)
_NOT_NOW = "hooks cannot be stored at this moment"
_LATER_HINT = "It is sent again by the forge, or found by the next poll"


class Catalog(Growing, Protocol):
    """What is asked of it."""

    async def known(self, keys: Sequence[RepoKey]) -> Mapping[RepoKey, RepoRecord]:
        """Those in the catalog."""
        ...

    async def left(self, keys: Sequence[RepoKey]) -> frozenset[RepoKey]:
        """Those that were in it."""
        ...

    def is_off(self, record: RepoRecord) -> str:
        """Why a repo is not to be looked at, or nothing."""
        ...


@dataclass(slots=True)
class _Waiting:
    vouched: Vouched
    delivery: Delivery
    answer: asyncio.Future[HookAnswer]
    adding: bool = False  # answered once it is in the catalog, or not

    @property
    def hook(self) -> Hook:
        return self.vouched.hook

    @property
    def user(self) -> str:
        return self.vouched.hook.forge.value


class Hooking:
    """``received`` by the API, ``heard`` what workers report, ``run`` beside."""

    def __init__(
        self,
        checking: HookChecking,
        looks: HookLooks,
        renames: HookRenames,
        catalog: Catalog,
        clock: Callable[[], float],
    ) -> None:
        self._checking = checking
        self._looks = looks
        self._renames = renames
        self._catalog = catalog
        self._clock = clock
        self._additions = HookAdditions(catalog, checking.key_of, uptime)
        self._deliveries = Deliveries()
        self._arriving: dict[bytes, asyncio.Future[HookAnswer]] = {}
        self._inbox: deque[_Waiting] = deque()
        self._poke = asyncio.Event()
        self._closed = False
        self._faults = 0  # in a row
        self._ends: Counter[tuple[Forge, str]] = Counter()
        self.on_hook: Callable[[RepoKey, float], None] = lambda key, at: None

    def configure(self, secrets: Secrets, *, adds_unknown: bool) -> None:
        self._checking.configure(secrets)
        self._additions.configure(secrets, is_on=adds_unknown)

    @property
    def ends(self) -> Mapping[tuple[Forge, str], int]:
        """Since the start, by forge and end."""
        return self._ends

    @property
    def waiting(self) -> int:
        return len(self._inbox)

    # In

    async def received(
        self, forge: Forge, headers: Mapping[str, str], body: bytes, repo: str | None
    ) -> HookAnswer:
        try:
            answer = await self._received(forge, headers, body, repo)
        except (HookRefused, UsageError):
            self._ends[forge, "refused"] += 1
            raise
        except Unavailable:
            self._ends[forge, "unavailable"] += 1
            raise
        self._ends[forge, answer.end.value] += 1
        return answer

    async def _received(
        self, forge: Forge, headers: Mapping[str, str], body: bytes, repo: str | None
    ) -> HookAnswer:
        vouched = await self._checking.opened(forge, headers, body, repo)
        hook, about = vouched.hook, vouched.about
        if hook.kind is HookKind.PING:
            return HookAnswer(HookEnd.PONG, about)
        if hook.kind is HookKind.OTHER:
            return HookAnswer(HookEnd.IGNORED, about, f"no ref moves by {hook.event}")
        if about is None:
            return HookAnswer(HookEnd.IGNORED, None, "it names no repository")
        delivery = delivery_of(forge, hook.delivery, body)
        if self._deliveries.seen(delivery, self._clock()):
            return HookAnswer(HookEnd.MERGED, about, "it was here before")
        if (same := self._arriving.get(delivery.digest)) is not None:
            if (first := await self._answered(same)).end not in _TAKEN:
                return first
            return HookAnswer(HookEnd.MERGED, about, "it was here before")
        return await self._answered(self._put(vouched, delivery))

    def _put(self, vouched: Vouched, delivery: Delivery) -> asyncio.Future[HookAnswer]:
        if self._closed:
            raise Unavailable("this process is being stopped", hint=_LATER_HINT)
        if len(self._inbox) >= WAITING_MAX:
            raise Unavailable(f"{WAITING_MAX} hooks wait", hint=_LATER_HINT)
        answer = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_looked_at)
        answer.add_done_callback(lambda _: self._arriving.pop(delivery.digest, None))
        self._inbox.append(_Waiting(vouched, delivery, answer))
        self._arriving[delivery.digest] = answer
        self._poke.set()
        return answer

    async def _answered(self, answer: asyncio.Future[HookAnswer]) -> HookAnswer:
        """What is under way goes on also when nobody waits for it any more."""
        done, _ = await asyncio.wait({answer}, timeout=ANSWER_S)
        if not done:
            raise Unavailable(_NOT_NOW, hint=_LATER_HINT)
        return answer.result()

    # Life

    def heard(self, report: Report) -> None:
        self._looks.heard(report)

    async def run(self) -> None:
        """Until cancelled; then nobody waits for an answer. Called again, it takes hooks again: senders try
        those once more that were refused meanwhile, and tasks in the store are given out with all others."""
        self._closed = False
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._looks.run())
                group.create_task(self._take_all())
                group.create_task(self._additions.run())
        finally:
            self._closed = True
            self._refuse(self._inbox)
            self._inbox.clear()

    async def _take_all(self) -> None:
        batch: list[_Waiting] = []
        while True:
            await self._poke.wait()
            await asyncio.sleep(min(GATHER_S * max(1, len(batch)), GATHER_MAX_S))
            batch = [self._inbox.popleft() for _ in range(min(BATCH, len(self._inbox)))]
            if not self._inbox:
                self._poke.clear()
            try:
                await self._take(batch)
                self._faults = 0
            except FailureError:
                pass
            except Exception:
                log.exception("hooks were not taken", hooks=len(batch))  # one must not stop all others
                self._faults += 1
                if self._faults >= FAULTS_MAX:
                    raise
            finally:
                self._refuse(item for item in batch if not item.adding)

    def _refuse(self, items: Iterable[_Waiting]) -> None:
        for item in items:
            if not item.answer.done():
                item.answer.set_exception(Unavailable(_NOT_NOW, hint=_LATER_HINT))

    # Which repo, and what follows

    async def _take(self, batch: Sequence[_Waiting]) -> None:
        keys = list(dict.fromkeys(key for item in batch for key in item.vouched.keys))
        known = await self._catalog.known(keys)
        left = await self._catalog.left([key for key in keys if key not in known])
        about: list[tuple[_Waiting, RepoKey]] = []
        for item in batch:
            here = [known[key] for key in item.vouched.keys if key in known]
            awake = [record.key for record in here if not self._catalog.is_off(record)]
            if not here:
                self._unknown(item, left)
            elif not awake:
                why = self._catalog.is_off(here[0])
                self._end(item, HookAnswer(HookEnd.IGNORED, here[0].key, why))
            else:
                key, twin = awake[0], item.vouched.twin
                about.append((item, key))
                if (url := self._checking.moved_to(item.hook, key)) is not None:
                    await self._renames.renamed(key, url)
                if twin is not None and twin != key and twin in awake:
                    about.append((item, twin))
        self._renames.settle()
        verdicts, begin = await self._looks.ask({key: item.user for item, key in about})
        first = set[RepoKey]()
        for item, key in about:
            merged = verdicts[key] is Verdict.MERGED or key in first
            first.add(key)
            self._end(item, HookAnswer(HookEnd.MERGED if merged else HookEnd.ACCEPTED, key))
            self.on_hook(key, self._clock())
        await self._looks.start(begin)

    def _unknown(self, item: _Waiting, left: frozenset[RepoKey]) -> None:
        key = item.vouched.about
        if any(k in left for k in item.vouched.keys):
            self._end(item, HookAnswer(HookEnd.IGNORED, key, "it was removed from the catalog"))
        elif not self._additions.is_on or item.vouched.asked is not None:
            self._end(item, HookAnswer(HookEnd.IGNORED, key, "it is not in the catalog"))
        else:
            item.adding = True
            self._additions.offer(item.vouched, partial(self._end, item))

    def _end(self, item: _Waiting, answer: HookAnswer | None) -> None:
        """Whoever waits is told; none: to send it again. What was taken counts no more; what was ignored
        does: somebody may have mended the reason."""
        if answer is None:
            self._refuse([item])
            return
        if answer.end in _TAKEN:
            self._deliveries.note(item.delivery, self._clock())
        if not item.answer.done():
            item.answer.set_result(answer)


def _looked_at(answer: asyncio.Future[HookAnswer]) -> None:
    """Nobody may wait for it any more."""
    if not answer.cancelled():
        answer.exception()
