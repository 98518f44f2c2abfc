"""Dry runs: a group is listed and a plan is made, in memory; nothing is changed anywhere."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from evermirror.core.discover.due import is_listed
from evermirror.core.discover.naming import target_place
from evermirror.core.discover.plan import Listing, Plan, Planned, candidates, plan
from evermirror.core.discover.rows import sees_less
from evermirror.edge.forge.api import ForgeApi
from evermirror.errors import Conflict, EvermirrorError, NotFound
from evermirror.model.discovery import Bound, Discovery, Preview, RunOutcome, RunState, Step, StepKind
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import FoundProject, Group
from evermirror.nodes.coordinator.discovery.discovering_forges import Patience, our_mistake
from evermirror.nodes.coordinator.discovery.discovering_listing import (
    check_bounds,
    list_page,
    usable,
    who_are_we,
)
from evermirror.nodes.coordinator.discovery.discovering_run import RunParts, no_group
from evermirror.nodes.coordinator.discovery.discovering_targets import Targets
from evermirror.nodes.discovery_service import PreviewView, RunView

log = structlog.get_logger(__name__)

RUNNING_MAX = 4
KEPT_MAX = 32
KEPT_S = 3600.0
STEPS_SHOWN = 1_000

_ORDER = {kind: place for place, kind in enumerate(StepKind)}


@dataclass(slots=True)
class DryRun:
    """One of them. ``discovery``: what is followed already, or what would be."""

    id: str
    discovery: Discovery
    bound: tuple[Bound, ...]
    parts: RunParts
    view: RunView = field(default_factory=lambda: RunView("listing", 0, 0, None))
    preview: Preview | None = None
    outcome: RunOutcome | None = None
    failure: Failure | None = None
    ended_at: float | None = None

    def shown(self) -> PreviewView:
        view = self.view if self.ended_at is None else None
        return PreviewView(self.id, view, self.preview, self.outcome, self.failure)

    async def carry_out(self) -> None:
        began_at = self.parts.clock()
        try:
            made, steps = await self._planned()
            self.preview = _preview(made, steps)
            self.outcome = _outcome(made, began_at, self.parts.clock())
        except FailureError as error:
            self.failure = error.failure
        except EvermirrorError as error:
            self.failure = Failure(FailureKind.UNKNOWN, error.message, hint=error.hint)
        except Exception:  # a forge's answer must never be more than a failed dry run
            log.exception("a dry run failed", group=self.discovery.spec.group)
            self.failure = our_mistake()
        finally:
            self.ended_at = self.parts.clock()

    async def _planned(self) -> tuple[Plan, list[Step]]:
        spec = self.discovery.spec
        async with self.parts.forges.opened(spec.forge, spec.source_url, spec.credential) as api:
            patience = self._patience()
            identity = await patience.ask(lambda: who_are_we(api))
            group = await patience.ask(lambda: api.find_group(self.discovery.group_id or spec.group))
            if group is None:
                raise no_group(self.discovery)
            found = await self._pages(api, group, patience)
            if await patience.ask(lambda: who_are_we(api)) != identity:
                words = "the token's user changed while the group was listed"
                raise FailureError(Failure(FailureKind.UNKNOWN, words))
            distrust = sees_less(self.discovery.seen_as, identity)
            listing = Listing(group.path, found, self.discovery.runs + 1, distrust=distrust)
        self.view = replace(self.view, phase="planning")
        here = await self.parts.projects.here(candidates(self.discovery, listing, self.parts.rules))
        made = plan(self.discovery, listing, self.bound, here, self.parts.rules)
        shown = sorted(made.steps, key=lambda planned: (_ORDER[planned.step.kind], planned.step.path))
        return made, await self._looked(shown[:STEPS_SHOWN])

    async def _pages(self, api: ForgeApi, group: Group, patience: Patience) -> list[FoundProject]:
        run, found = RunState(0, 0.0), dict[str, FoundProject]()
        while not is_listed(run):
            page = await patience.ask(partial(list_page, api, group, self.discovery.spec, run))
            found.update({project.id: project for project in usable(page.items)})
            run = replace(run, cursor=page.next, pages=run.pages + 1, found=len(found))
            check_bounds(run)
            total = page.total or self.view.total
            self.view = replace(self.view, pages=run.pages, found=run.found, total=total)
        return list(found.values())

    async def _looked(self, steps: list[Planned]) -> list[Step]:
        """With whether each target is there already."""
        spec = self.discovery.spec
        new = [p for p in steps if p.step.kind is StepKind.CREATE and p.target_path]
        if spec.target_url is None or not new:
            return [planned.step for planned in steps]
        self.view = replace(self.view, phase="making", steps=len(new))
        missing: set[str] = set()
        base = target_place(spec).base_url
        async with self.parts.forges.opened(spec.target_forge, base, spec.target_credential) as api:
            targets = Targets(api, spec, self._patience())
            for planned in new:
                if await targets.find(planned.target_path) is None:
                    missing.add(planned.step.path)
                self.view = replace(self.view, done=self.view.done + 1)
        return [replace(planned.step, makes_target=planned.step.path in missing) for planned in steps]

    def _patience(self) -> Patience:
        return Patience(self._waits, self.parts.sleep)

    def _waits(self, seconds: float) -> None:
        self.view = replace(self.view, waits_s=seconds)


class Previews:
    """Those of the last hour."""

    def __init__(self, parts: RunParts, start: Callable[[Coroutine[None, None, None]], object]) -> None:
        self._parts = parts
        self._start = start
        self._kept: dict[str, DryRun] = {}

    def begin(self, discovery: Discovery, bound: tuple[Bound, ...]) -> PreviewView:
        """``Conflict``: too many at once."""
        self._forget_old()
        running = sum(run.ended_at is None for run in self._kept.values())
        if running >= RUNNING_MAX:
            raise Conflict(f"{running} dry runs are under way", hint="Wait for one of them")
        run = DryRun(secrets.token_hex(8), discovery, bound, self._parts)
        self._kept[run.id] = run
        self._start(run.carry_out())
        return run.shown()

    def find(self, preview_id: str) -> PreviewView:
        self._forget_old()
        run = self._kept.get(preview_id)
        if run is None:
            raise NotFound(f"there is no dry run {preview_id!r}", hint="They are kept for an hour")
        return run.shown()

    def _forget_old(self) -> None:
        now = self._parts.clock()
        ended = [run for run in self._kept.values() if run.ended_at is not None]
        old = [run for run in ended if run.ended_at is not None and now - run.ended_at > KEPT_S]
        for run in (*old, *ended[: max(len(self._kept) - KEPT_MAX + 1, 0)]):
            self._kept.pop(run.id, None)


def _preview(made: Plan, steps: list[Step]) -> Preview:
    counts = Counter(planned.step.kind for planned in made.steps)
    return Preview(tuple(steps), len(made.steps) - len(steps), dict(counts))


def _outcome(made: Plan, began_at: float, ended_at: float) -> RunOutcome:
    return RunOutcome(
        began_at,
        ended_at,
        complete=True,
        found=made.found,
        chosen=made.chosen,
        created=made.count(StepKind.CREATE),
        unchanged=made.count(StepKind.KEEP),
        renamed=made.count(StepKind.RENAME),
        gone=made.count(StepKind.PAUSE),
        returned=made.count(StepKind.RESUME),
        refused=made.count(StepKind.REFUSE, StepKind.CLASH),
        held=made.count(StepKind.HOLD),
    )
