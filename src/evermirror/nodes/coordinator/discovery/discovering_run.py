"""One run of a discovery: the group is listed page by page, a plan is made of it, and carried out.

    begun ──▶ listing ──────────────▶ planning ──▶ making ──▶ ended
                │ each page is stored with the cursor of the next one; a crash, a stop or an error
                └ leaves the run as it is, and the next one goes on from there

Nothing is gone before a listing is complete, and the group was there at its end. A group that was renamed
meanwhile is listed anew: its first pages told of addresses that are no more.

The forge is asked who we are before the first page and after the last one. Nobody (a revoked token: some
forges answer as to anybody then) ends the run, and what was read in it counts for nothing. Where it is
somebody else than in the run before, or a token with fewer scopes, what is missing is held until a person
accepts it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from evermirror.core.discover.due import is_listed, is_stale, next_run
from evermirror.core.discover.naming import path_inside, target_place
from evermirror.core.discover.plan import Listing, Plan, candidates, plan
from evermirror.core.discover.rows import sees_less, still_known
from evermirror.edge.forge.api import ForgeApi
from evermirror.edge.store.store import Store
from evermirror.errors import EvermirrorError
from evermirror.model.discovery import Bound, Discovery, RunOutcome, RunState, StepKind
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import FoundProject, Group, Identity, Page
from evermirror.model.url import UrlRules
from evermirror.nodes.coordinator.discovery.discovering_branches import Branches
from evermirror.nodes.coordinator.discovery.discovering_forges import Forges, Patience, our_mistake
from evermirror.nodes.coordinator.discovery.discovering_hooks import FoundHooks
from evermirror.nodes.coordinator.discovery.discovering_listing import (
    check_bounds,
    list_page,
    usable,
    who_are_we,
)
from evermirror.nodes.coordinator.discovery.discovering_projects import FollowedProjects
from evermirror.nodes.coordinator.discovery.discovering_steps import Steps, without_intents
from evermirror.nodes.coordinator.discovery.discovering_targets import Targets, group_visibilities
from evermirror.nodes.discovery_service import RunView

log = structlog.get_logger(__name__)

LISTINGS_MAX = 3  # in one run, of a group that is renamed meanwhile, or is read as somebody else

_EVERY_LISTING = RunView("listing", 0, 0, None)


class Removed(Exception):
    """The discovery was removed while it ran."""


@dataclass(frozen=True, slots=True)
class RunParts:
    """What every run needs."""

    store: Store
    forges: Forges
    projects: FollowedProjects
    branches: Branches
    hooks: FoundHooks
    rules: UrlRules
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class Run:
    """``discovery`` is as it is stored; ``view`` for people."""

    discovery: Discovery
    parts: RunParts
    accepted: int | None = None  # so many removals at once, by a person's word
    view: RunView = field(default=_EVERY_LISTING)
    _patience: Patience = field(init=False)
    _pages_before: int = 0

    def __post_init__(self) -> None:
        self._patience = Patience(self._waits, self.parts.sleep)

    async def carry_out(self) -> Discovery:
        """To its end, or to where it is cut short; the discovery after it."""
        try:
            await self._begin()
            async with self._source() as api:
                group = await self._listed(api)
            outcome = await self._followed(group)
        except FailureError as error:
            outcome = self._cut_short(error.failure)
            if error.failure.kind is FailureKind.AUTH_FAILED:  # its last pages may be what anybody sees
                self.discovery = replace(self.discovery, run=None)
        except EvermirrorError as error:
            outcome = self._cut_short(Failure(FailureKind.UNKNOWN, error.message, hint=error.hint))
        except Removed:
            raise
        except Exception:  # a forge's answer must never be more than a failed run
            log.exception("a discovery failed", discovery=self.discovery.id)
            outcome = self._cut_short(our_mistake())
            self.discovery = replace(self.discovery, run=None)  # what it was made of may be the cause
        await self._end(outcome)
        return self.discovery

    @contextlib.asynccontextmanager
    async def _source(self) -> AsyncIterator[ForgeApi]:
        spec = self.discovery.spec
        async with self.parts.forges.opened(spec.forge, spec.source_url, spec.credential) as api:
            yield api

    # Begin and end

    async def _begin(self) -> None:
        known, now = self.discovery.run, self.parts.clock()
        if known is None or is_stale(known, now):
            await self._anew()
        else:
            self._pages_before = known.pages
            self._show("listing")

    async def _anew(self) -> None:
        run = RunState(self.discovery.runs + 1, self.parts.clock())
        await self._save(run=run, forget_found=True)
        self._show("listing")

    async def _end(self, outcome: RunOutcome) -> None:
        now = self.parts.clock()
        failures = self._failures_after(outcome)
        next_at = next_run(self.discovery, outcome, failures, now) if self.discovery.enabled else None
        ended = outcome.complete or self.discovery.run is None
        after = replace(self.discovery, last=outcome, failures=failures, next_at=next_at)
        if ended:
            after = replace(after, run=None, runs=self._number)
        self.discovery = after
        await self._save(run=after.run, forget_found=ended)
        log.info(
            "discovery ran",
            discovery=after.id,
            group=after.spec.group,
            complete=outcome.complete,
            found=outcome.found,
            created=outcome.created,
            reason=outcome.failure.message if outcome.failure is not None else "",
        )

    def _failures_after(self, outcome: RunOutcome) -> int:
        """In a row. One that got further before a limit stopped it begins the row anew."""
        if outcome.failure is None:
            return 0
        run = self.discovery.run
        further = outcome.created or (run is not None and run.pages > self._pages_before)
        limited = outcome.failure.kind is FailureKind.RATE_LIMITED
        return 1 if further and limited else self.discovery.failures + 1

    def _cut_short(self, failure: Failure) -> RunOutcome:
        run = self.discovery.run
        found = run.found if run is not None else 0
        return RunOutcome(self._began_at, self.parts.clock(), complete=False, found=found, failure=failure)

    @property
    def _number(self) -> int:
        return self.discovery.run.number if self.discovery.run is not None else self.discovery.runs + 1

    @property
    def _began_at(self) -> float:
        return self.discovery.run.began_at if self.discovery.run is not None else self.parts.clock()

    async def _save(
        self,
        *,
        run: RunState | None,
        bound: Sequence[Bound] = (),
        found: Sequence[FoundProject] = (),
        forget_found: bool = False,
    ) -> None:
        after = replace(self.discovery, run=run)
        if not await self.parts.store.save_discovery(
            after, bound=bound, found=found, forget_found=forget_found
        ):
            raise Removed
        self.discovery = after

    # Listing

    async def _listed(self, api: ForgeApi) -> Group:
        for _ in range(LISTINGS_MAX):
            await self._begin_as(await self._patience.ask(lambda: who_are_we(api)))
            group = await self._group(api)
            await self._pages(api, group)
            group = await self._group(api)  # also: it is still there
            if await self._patience.ask(lambda: who_are_we(api)) != self._run().seen_as:
                await self._anew()
                continue
            found = await self.parts.store.found_of(self.discovery.id)
            if all(path_inside(group.path, project.path) for project in found):
                return group
            await self._anew()
        words = f"the path of {self.discovery.spec.group}, or the token's user, changes while it is listed"
        raise FailureError(Failure(FailureKind.UNKNOWN, words))

    async def _begin_as(self, identity: Identity | None) -> None:
        """Pages that somebody else read are read again."""
        run = self._run()
        if run.pages and run.seen_as != identity:
            log.info("a listing begins anew: the token is another one's now", discovery=self.discovery.id)
            await self._anew()
        self.discovery = replace(self.discovery, run=replace(self._run(), seen_as=identity))

    async def _group(self, api: ForgeApi) -> Group:
        known, spec = self.discovery.group_id, self.discovery.spec
        group = await self._patience.ask(lambda: api.find_group(known or spec.group))
        if group is None:
            raise no_group(self.discovery)
        if not known:
            self.discovery = replace(self.discovery, group_id=group.id)
        return group

    async def _pages(self, api: ForgeApi, group: Group) -> None:
        resumed = self._run().cursor  # from before: a forge may have forgotten it
        while (run := self._run()) and not is_listed(run):
            try:
                page = await self._page(api, group, run)
            except FailureError as error:
                if resumed is None or run.cursor != resumed or error.failure.kind not in _CURSOR_REFUSED:
                    raise
                log.info("a listing begins anew: its cursor is refused", discovery=self.discovery.id)
                await self._anew()
                self.discovery = replace(self.discovery, run=replace(self._run(), seen_as=run.seen_as))
                continue
            items = usable(page.items)
            after = replace(run, cursor=page.next, pages=run.pages + 1, found=run.found + len(items))
            check_bounds(after)
            await self._save(run=after, found=items)
            self._show("listing", total=page.total)

    async def _page(self, api: ForgeApi, group: Group, run: RunState) -> Page:
        return await self._patience.ask(lambda: list_page(api, group, self.discovery.spec, run))

    def _run(self) -> RunState:
        run = self.discovery.run
        if run is None:
            raise RuntimeError("a run is listed while it is under way")
        return run

    # Planning and making

    async def _followed(self, group: Group) -> RunOutcome:
        self._show("planning")
        discovery, parts, run = self.discovery, self.parts, self._run()
        distrust = sees_less(discovery.seen_as, run.seen_as)
        found = await parts.store.found_of(discovery.id)
        listing = Listing(group.path, found, run.number, distrust=distrust)
        here = await parts.projects.here(candidates(discovery, listing, parts.rules))
        bound, intents = without_intents(await parts.store.bound_of(discovery.id))
        made = plan(discovery, listing, bound, here, parts.rules)
        by_a_person = 0 < made.count(StepKind.HOLD) <= (self.accepted or 0)
        if by_a_person:
            made = plan(discovery, listing, bound, here, parts.rules, accept=True)
        self._show("making", steps=len(made.steps))
        async with self._targets(made) as targets:
            opens = parts.branches.of(discovery.spec)

            def stands(row: Bound) -> None:
                opens(row)
                parts.hooks.stands(discovery.spec, row)

            steps = Steps(
                discovery,
                parts.projects,
                targets,
                self._noted,
                parts.clock,
                self._ticked,
                stands,
                intents,
                frozenset((row.forge_id, row.path) for row in bound if row.run < discovery.runs),
            )
            await steps.carry_out(made)
        outcome = self._outcome(made, steps)
        if outcome.held:
            return replace(outcome, held_why=distrust)
        if outcome.complete:
            seen_as = run.seen_as if by_a_person else still_known(discovery.seen_as, run.seen_as)
            self.discovery = replace(self.discovery, seen_as=seen_as)
        return outcome

    @contextlib.asynccontextmanager
    async def _targets(self, made: Plan) -> AsyncIterator[Targets | None]:
        spec = self.discovery.spec
        if spec.target_url is None or not made.count(StepKind.CREATE, StepKind.RENAME):
            yield None
            return
        base = target_place(spec).base_url
        async with self.parts.forges.opened(spec.target_forge, base, spec.target_credential) as api:
            targets = Targets(api, spec, self._patience, group_visibilities(spec, made.steps))
            try:
                yield targets
            finally:
                await targets.close()

    async def _noted(self, rows: Sequence[Bound]) -> None:
        try:
            await self._save(run=self.discovery.run, bound=rows)
        except Removed:
            raise FailureError(Failure(FailureKind.UNKNOWN, "the discovery was removed")) from None

    def _outcome(self, made: Plan, steps: Steps) -> RunOutcome:
        done = steps.done
        return RunOutcome(
            self._began_at,
            self.parts.clock(),
            complete=not steps.cut,
            found=made.found,
            chosen=made.chosen,
            created=done[StepKind.CREATE],
            unchanged=done[StepKind.KEEP],
            renamed=done[StepKind.RENAME],
            gone=done[StepKind.PAUSE],
            returned=done[StepKind.RESUME],
            refused=done[StepKind.REFUSE] + done[StepKind.CLASH],
            held=done[StepKind.HOLD],
            failure=steps.failure,
        )

    # For people

    def _waits(self, seconds: float) -> None:
        self.view = replace(self.view, waits_s=seconds)

    def _ticked(self) -> None:
        self.view = replace(self.view, done=self.view.done + 1)

    def _show(self, phase: str, *, total: int | None = None, steps: int = 0) -> None:
        run = self.discovery.run
        pages, found = (run.pages, run.found) if run is not None else (0, 0)
        self.view = RunView(phase, pages, found, total or self.view.total, 0, steps)


def no_group(discovery: Discovery) -> FailureError:
    """The failure of a group that is not there, or not for us."""
    spec = discovery.spec
    if discovery.group_id:
        hint = "Projects stay as they are; remove the discovery if the group is gone for good"
    elif discovery.id:
        hint = f"Is its name right? `evermirror pull discover remove {discovery.id}` forgets this discovery"
    else:
        hint = "Is its name right, and may the credential's user see it?"
    words = f"there is no group {spec.group} at {spec.source_url}, or its token may not see it"
    return FailureError(Failure(FailureKind.NOT_FOUND, words, hint=hint))


_CURSOR_REFUSED = frozenset({FailureKind.CONFLICT, FailureKind.NOT_FOUND})
