"""Groups that are followed: who runs when, what people ask and order. Implements ``DiscoveryService``.

people ──▶ create, change, run, remove ──▶ store ──┐
the clock ─────────────────────────────────────────┴─▶ run (two at a time) ──▶ outcome ──▶ alerts
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace

import structlog

from evermirror.core.discover.due import is_due
from evermirror.core.discover.tell import alerts_of, over
from evermirror.edge.git.credentials import Credential
from evermirror.errors import Conflict, NotFound, Unavailable
from evermirror.model.alert import Alert
from evermirror.model.discovery import BoundState, Discovery, DiscoveryId, DiscoverySpec, RunOutcome
from evermirror.model.failure import FailureError, FailureKind
from evermirror.nodes.coordinator.discovery.discovering_checks import check_same_source, checked_spec
from evermirror.nodes.coordinator.discovery.discovering_previews import Previews
from evermirror.nodes.coordinator.discovery.discovering_run import Removed, Run, RunParts
from evermirror.nodes.discovery_service import BoundPage, DiscoveryView, PreviewView

log = structlog.get_logger(__name__)

RUNS_AT_ONCE = 2
DISCOVERIES_MAX = 1_000
SLEEP_MAX_S = 30.0  # a clock that was set must not keep the schedule asleep
BRANCHES_S = 5.0  # between two looks whether a new target was pushed to
SLEEP_MIN_S = 0.02
PAGE_MAX = 1_000
ACCEPTED_SHARE = 1.2  # of the removals that a person was shown: some more go every day


class Discovering:
    """All discoveries. ``tell`` takes alerts."""

    def __init__(
        self,
        parts: RunParts,
        credentials: Mapping[str, Credential],
        tell: Callable[[Alert], None] = lambda alert: None,
    ) -> None:
        self._parts = parts
        self._credentials = credentials
        self._tell = tell
        self._known: dict[DiscoveryId, Discovery] = {}
        self._running: dict[DiscoveryId, tuple[Run, asyncio.Task[None]]] = {}
        self._held: set[DiscoveryId] = set()  # being changed: they do not start meanwhile
        self._accepted: dict[DiscoveryId, int] = {}  # how many removals, by a person's word
        self._ends: Counter[DiscoveryId] = Counter()
        self._changing = asyncio.Lock()
        self._poke = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._branches: asyncio.Task[None] | None = None
        self._hooks: asyncio.Task[None] | None = None
        self._previews = Previews(parts, self._start)

    # Life

    async def load(self) -> None:
        """From the store; what a stop cut short goes on at once."""
        now = self._parts.clock()
        for discovery in await self._parts.store.load_discoveries():
            if discovery.run is not None and discovery.enabled:
                discovery = replace(discovery, next_at=now)
            self._known[discovery.id] = discovery
            self._tell_of(discovery)
        for row in await self._parts.store.closed_branches():
            if row.discovery in self._known:
                self._parts.branches.of(self._known[row.discovery].spec)(row)

    async def follow(self) -> None:
        """Until cancelled; what is under way then goes on at the next start, or when this is called again:
        from the step that they came to."""
        self._running.clear()  # one that was cut short before it began could not leave by itself
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                while True:
                    self._start_due()
                    self._look_at_branches()
                    self._look_at_hooks()
                    await self._until_something()
            finally:
                self._group = None

    def specs(self) -> tuple[DiscoverySpec, ...]:
        return tuple(discovery.spec for discovery in self._known.values())

    def refusals(self) -> tuple[tuple[DiscoverySpec, float], ...]:
        """Those whose last run a forge refused to log in, and when that was."""
        lasts = ((d.spec, d.last) for d in self._known.values() if d.last is not None)
        return tuple((spec, last.ended_at) for spec, last in lasts if _is_refused(last))

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        if self._group is None:
            work.close()
            raise Unavailable(
                "discovery has not begun yet, or is being stopped", hint="Try again in a moment"
            )
        return self._group.create_task(work)

    def _start_due(self) -> None:
        now = self._parts.clock()
        due = sorted(
            (d for d in self._known.values() if self._may_start(d) and is_due(d, now)),
            key=lambda d: d.next_at or 0.0,
        )
        for discovery in due:
            if len(self._running) >= RUNS_AT_ONCE:
                return
            if discovery.id not in self._running:
                run = Run(discovery, self._parts, accepted=self._accepted.get(discovery.id))
                self._running[discovery.id] = (run, self._start(self._carried_out(run)))

    def _may_start(self, discovery: Discovery) -> bool:
        idle = discovery.id not in self._running and discovery.id not in self._held
        return idle and discovery.next_at is not None

    async def _carried_out(self, run: Run) -> None:
        id_ = run.discovery.id
        try:
            after = await self._after(run)
        finally:
            if self._is_current(run):
                del self._running[id_]
                if id_ in self._known:
                    self._known[id_] = run.discovery  # as far as it came, should it be cut short
            self._poke.set()
        if after is None or id_ not in self._known or id_ in self._held:
            return
        if run.accepted is None and id_ in self._accepted:  # said while it ran
            after = replace(after, next_at=self._parts.clock())
        elif after.last is not None and after.last.complete:
            self._accepted.pop(id_, None)
        self._known[id_] = after
        self._ends[id_] += 1
        self._tell_of(after)

    async def _after(self, run: Run) -> Discovery | None:
        """The discovery after a run; None: it was removed."""
        id_ = run.discovery.id
        try:
            return await run.carry_out()
        except Removed:
            return None
        except FailureError as error:  # the database: what it has is where the run goes on
            log.warning("a discovery was cut short", discovery=id_, reason=error.failure.message)
        except Exception:  # our mistake; whatever a forge answers, others go on
            log.exception("a discovery was cut short", discovery=id_)
        return replace(run.discovery, next_at=self._parts.clock() + SLEEP_MAX_S)

    def _is_current(self, run: Run) -> bool:
        running = self._running.get(run.discovery.id)
        return running is not None and running[0] is run

    async def _until_something(self) -> None:
        now = self._parts.clock()
        times = [d.next_at or 0.0 for d in self._known.values() if self._may_start(d)]
        free = len(self._running) < RUNS_AT_ONCE
        waiting = self._parts.branches.waiting or self._parts.hooks.waiting
        most_s = BRANCHES_S if waiting else SLEEP_MAX_S
        sleep_s = min([most_s, *(at - now for at in times if free)])
        try:
            async with asyncio.timeout(max(SLEEP_MIN_S, sleep_s)):
                await self._poke.wait()
        except TimeoutError:
            pass
        self._poke.clear()

    def _look_at_branches(self) -> None:
        if self._parts.branches.waiting and (self._branches is None or self._branches.done()):
            self._branches = self._start(self._parts.branches.look())

    def _look_at_hooks(self) -> None:
        if self._parts.hooks.waiting and (self._hooks is None or self._hooks.done()):
            self._hooks = self._start(self._parts.hooks.look())

    def _tell_of(self, discovery: Discovery) -> None:
        for alert in alerts_of(discovery):
            self._tell(alert)

    # What people ask

    async def discoveries(self) -> tuple[DiscoveryView, ...]:
        return tuple([await self._view(discovery) for discovery in self._known.values()])

    async def discovery(self, discovery_id: DiscoveryId) -> DiscoveryView:
        return await self._view(self._find(discovery_id))

    async def found(
        self, discovery_id: DiscoveryId, *, state: BoundState | None = None, page: int = 1, size: int = 50
    ) -> BoundPage:
        self._find(discovery_id)
        size = min(size, PAGE_MAX)
        items, total = await self._parts.store.bound_page(discovery_id, state, page, size)
        return BoundPage(items, total, page, size)

    async def preview(self, spec: DiscoverySpec, *, actor: str) -> PreviewView:
        spec = self._checked(spec)
        known = self._same(spec)
        if known is None:
            return self._previews.begin(Discovery(DiscoveryId(0), spec, actor, 0.0), ())
        bound = await self._parts.store.bound_of(known.id)
        return self._previews.begin(replace(known, spec=spec), bound)

    async def preview_of(self, preview_id: str) -> PreviewView:
        return self._previews.find(preview_id)

    # What people order

    async def create(self, spec: DiscoverySpec, *, actor: str) -> DiscoveryView:
        spec = self._checked(spec)
        async with self._changing:
            known = self._same(spec)
            if known is not None:
                raise Conflict(
                    f"{spec.group} at {spec.source_url} is followed already, as discovery {known.id}",
                    hint=f"Run it with `evermirror pull discover run {known.id}`, or change it with "
                    f"`evermirror pull discover change {known.id}`",
                )
            if len(self._known) >= DISCOVERIES_MAX:
                raise Conflict(f"there are {DISCOVERIES_MAX} discoveries already", hint="Remove some")
            now = self._parts.clock()
            new = Discovery(DiscoveryId(0), spec, actor, now, next_at=now)
            discovery = await self._parts.store.insert_discovery(new)
            self._known[discovery.id] = discovery
        await self._audit(actor, "created", discovery)
        self._poke.set()
        return await self._view(discovery)

    async def run(self, discovery_id: DiscoveryId, *, accept: bool = False, actor: str) -> DiscoveryView:
        """At once; one under way is answered, and with ``accept`` another one follows it. Accepted is what
        was held at the last run, and a little more: not what a worse listing loses since."""
        async with self._changing:
            discovery = self._find(discovery_id)
            if accept:
                held = discovery.last.held if discovery.last is not None else 0
                self._accepted[discovery_id] = int(held * ACCEPTED_SHARE)
            if discovery_id not in self._running:
                discovery = await self._put(replace(discovery, next_at=self._parts.clock()))
        await self._audit(actor, "accepted" if accept else "run", discovery)
        self._poke.set()
        return await self._view(discovery)

    async def change(
        self, discovery_id: DiscoveryId, spec: DiscoverySpec, enabled: bool, *, actor: str
    ) -> DiscoveryView:
        spec = self._checked(spec)
        async with self._changing:
            check_same_source(self._find(discovery_id).spec, spec)
            async with self._stopped(discovery_id) as before:
                now = self._parts.clock()
                next_at = now if enabled else None
                after = replace(before, spec=spec, enabled=enabled, next_at=next_at, run=None)
                await self._put(after, forget_found=True)
            if not enabled:
                self._tell_over(after)
        await self._audit(actor, "changed" if enabled else "stopped", after)
        return await self._view(after)

    async def remove(self, discovery_id: DiscoveryId, *, actor: str) -> None:
        async with self._changing:
            async with self._stopped(self._find(discovery_id).id) as discovery:
                await self._parts.store.remove_discovery(discovery_id)
                self._known.pop(discovery_id, None)
            self._ends.pop(discovery_id, None)
            self._accepted.pop(discovery_id, None)
            self._parts.branches.forget(discovery_id)
            self._parts.hooks.forget(discovery_id)
            self._tell_over(discovery)
        await self._audit(actor, "removed", discovery)

    # Inside

    @contextlib.asynccontextmanager
    async def _stopped(self, discovery_id: DiscoveryId) -> AsyncIterator[Discovery]:
        """The discovery as its run left it; no run of it begins before this is over."""
        self._held.add(discovery_id)
        try:
            running = self._running.get(discovery_id)
            if running is not None:
                run, task = running
                task.cancel()
                await asyncio.wait({task})
                self._running.pop(discovery_id, None)  # cancelled before it began
                self._known[discovery_id] = run.discovery
            yield self._known[discovery_id]
        finally:
            self._held.discard(discovery_id)
            self._poke.set()

    async def _put(self, discovery: Discovery, *, forget_found: bool = False) -> Discovery:
        await self._parts.store.save_discovery(discovery, forget_found=forget_found)
        self._known[discovery.id] = discovery
        return discovery

    def _tell_over(self, discovery: Discovery) -> None:
        for alert in over(discovery):
            self._tell(alert)

    def _checked(self, spec: DiscoverySpec) -> DiscoverySpec:
        spec = checked_spec(spec, self._parts.rules, self._credentials)
        self._parts.hooks.check(spec)
        return spec

    def _same(self, spec: DiscoverySpec) -> Discovery | None:
        wanted = (spec.source_url, spec.group.casefold())
        return next(
            (d for d in self._known.values() if (d.spec.source_url, d.spec.group.casefold()) == wanted), None
        )

    def _find(self, discovery_id: DiscoveryId) -> Discovery:
        discovery = self._known.get(discovery_id)
        if discovery is None:
            raise NotFound(f"there is no discovery {discovery_id}", hint="`evermirror pull discover list`")
        return discovery

    async def _view(self, discovery: Discovery) -> DiscoveryView:
        counts = await self._parts.store.bound_counts(discovery.id)
        running, ends = self._running.get(discovery.id), self._ends[discovery.id]
        if running is None:
            return DiscoveryView(self._known.get(discovery.id, discovery), None, counts, ends)
        return DiscoveryView(running[0].discovery, running[0].view, counts, ends)

    async def _audit(self, actor: str, what: str, discovery: Discovery) -> None:
        spec = discovery.spec
        detail = {"group": spec.group, "source": spec.source_url, "target": spec.target_url}
        await self._parts.store.audit(actor, f"pull.discovery.{what}", str(discovery.id), detail)


def _is_refused(last: RunOutcome) -> bool:
    return last.failure is not None and last.failure.kind is FailureKind.AUTH_FAILED
