"""A plan carried out: four steps at a time, each noted when it is done.

Order within a step, so that a crash between any two lines is repaired by the next run:

    RENAME, PAUSE   the old project is paused ──▶ noted
    CREATE          noted what is meant ──▶ project at the target ──▶ noted as being made ──▶ project here
                    ──▶ noted

What was meant to be made at the target and is there, and empty, is ours: a crash came before the answer.

A refusal (a name, a role, a clash) is that project's alone, and others go on. So is a 5xx or no answer while
its target is made: the next run tries it again. Whatever concerns all (a token that is refused, a limit,
``AWAY_AFTER`` such failures in a row) ends the run, which goes on from there the next time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from evermirror.core.discover.naming import NotNamed
from evermirror.core.discover.plan import Plan, Planned
from evermirror.errors import Conflict, EvermirrorError, Unavailable, UsageError
from evermirror.model.discovery import Bound, BoundState, Discovery, StepKind
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.nodes.coordinator.discovery.discovering_forges import our_mistake
from evermirror.nodes.coordinator.discovery.discovering_projects import FollowedProjects, actor_of
from evermirror.nodes.coordinator.discovery.discovering_targets import Targets

log = structlog.get_logger(__name__)

AT_ONCE = 4
SAVE_AT_ONCE = 500
MEANT = "its project at the target is being made"
AWAY_AFTER = 3  # projects in a row whose targets could not be made: the forge itself is away
BEING_MADE = "its project here is being made"
_ITS_OWN = frozenset({FailureKind.CONFLICT, FailureKind.PERMISSION_DENIED, FailureKind.NOT_FOUND})
_KEPT_OUT = frozenset({FailureKind.AUTH_FAILED, FailureKind.PERMISSION_DENIED, FailureKind.NOT_FOUND})

_WEATHER = frozenset({FailureKind.NETWORK_TIMEOUT, FailureKind.UNKNOWN})

Save = Callable[[Sequence[Bound]], Awaitable[None]]
Places = frozenset[tuple[str, str]]
"""Projects, by id and path."""


@dataclass(slots=True)
class Steps:
    """One plan. ``done`` counts what was done by its kind; ``failure`` is the first that people must see."""

    discovery: Discovery
    projects: FollowedProjects
    targets: Targets | None
    save: Save
    clock: Callable[[], float]
    ticked: Callable[[], None] = lambda: None
    stands: Callable[[Bound], None] = lambda row: None  # told of each that is there
    intents: Places = frozenset()  # whose targets a run that was cut short was about to make
    missed: Places = frozenset()  # that the last run did not find, and held
    done: Counter[StepKind] = field(default_factory=Counter)
    failure: Failure | None = None
    cut: bool = False
    _weather: list[Failure] = field(default_factory=list)  # since a target was last made

    async def carry_out(self, plan: Plan) -> None:
        """Raises nothing that is weather: ``cut`` says that something is left, ``failure`` why."""
        still = [p for p in plan.steps if p.step.kind in (StepKind.KEEP, StepKind.HOLD)]
        todo = deque(p for p in plan.steps if p.step.kind not in (StepKind.KEEP, StepKind.HOLD))
        await self._note([*(p.after for p in still), *plan.forgotten])
        for planned in still:
            self._count(planned.step.kind)
            self.stands(planned.after)
        await self._forgive(still)
        turning = deque(p for p in todo if p.turns)
        await self._yield_paths(turning)
        for steps in (deque(p for p in todo if not p.turns), turning):
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(self._work(steps))

    async def _yield_paths(self, turning: Iterable[Planned]) -> None:
        """Their projects push to the targets of those that were renamed, until they have their own."""
        for planned in turning:
            if planned.after.key is not None:
                why = f"another project is {planned.step.path} now"
                await self.projects.leave(planned.after.key, why, actor=actor_of(self.discovery.id))

    async def _forgive(self, still: Sequence[Planned]) -> None:
        """The last run was kept out, or missed some; so were syncs meanwhile: what they paused goes on."""
        last = self.discovery.last
        failure = last.failure if last is not None else None
        kept_out = failure is not None and failure.kind in _KEPT_OUT
        for planned in still:
            row = planned.after
            back = kept_out or (row.forge_id, row.path) in self.missed
            if back and planned.step.kind is StepKind.KEEP and row.key is not None:
                await self.projects.resume(row.key, actor=actor_of(self.discovery.id))

    async def _work(self, todo: deque[Planned]) -> None:
        while todo and not self.cut:
            planned = todo.popleft()
            try:
                kind = await self._do(planned)
            except FailureError as error:
                self.cut = True
                self.failure = error.failure
            except EvermirrorError as error:
                self.cut = True
                weather = isinstance(error, Unavailable)
                kind_of = FailureKind.NETWORK_TIMEOUT if weather else FailureKind.UNKNOWN
                self.failure = Failure(kind_of, error.message, hint=error.hint)
            except Exception:  # a forge's answer must never be more than a failed run
                log.exception("a step of a discovery failed", path=planned.step.path)
                self.cut = True
                self.failure = our_mistake()
            else:
                self._count(kind)

    def _count(self, kind: StepKind) -> None:
        self.done[kind] += 1
        self.ticked()

    async def _do(self, planned: Planned) -> StepKind:
        actor = actor_of(self.discovery.id)
        kind, after = planned.step.kind, planned.after
        if kind is StepKind.PAUSE:
            return await self._pause(planned)
        if planned.pauses is not None:
            await self.projects.leave(planned.pauses, f"renamed to {planned.step.path}", actor=actor)
        if kind in (StepKind.CREATE, StepKind.RENAME):
            try:
                after = await self._with_target(planned)
            except FailureError as error:
                if error.failure.kind in _WEATHER:
                    return await self._put_off(planned, error)
                kind, after = self._refusal(planned, error)
            except NotNamed as error:
                kind, after = StepKind.REFUSE, _refused(after, BoundState.REFUSED, str(error))
            else:
                kind, after = await self._make(planned, after)
        elif kind is StepKind.RESUME and after.key is not None:
            await self.projects.resume(after.key, actor=actor)
        await self._note([after] if planned.old is None else [after, planned.old])
        if after.state is BoundState.ACTIVE:
            self.stands(after)
        return kind

    async def _pause(self, planned: Planned) -> StepKind:
        """What another discovery still finds goes on; of two that lose it, the second pauses it."""
        key, after, id_ = planned.pauses, planned.after, self.discovery.id
        async with self.projects.leaving:
            gone = after.state is BoundState.GONE
            if key is not None and not (gone and await self.projects.is_found_by_another(key, id_)):
                await self.projects.leave(key, planned.step.why, actor=actor_of(id_))
            await self._note([after] if planned.old is None else [after, planned.old])
        return planned.step.kind

    async def _put_off(self, planned: Planned, error: FailureError) -> StepKind:
        """Its target could not be made now: the next run tries it again, and others go on. A rename stays as
        it is noted. Raises where the forge seems to be away."""
        failure, after = error.failure, planned.after
        if not any(failure is known for known in self._weather):  # a group that fails is asked for once
            self._weather.append(failure)
        if len(self._weather) >= AWAY_AFTER:
            raise error
        self.failure = self.failure or failure
        if planned.step.kind is StepKind.CREATE:
            if (after.forge_id, after.path) in self.intents:
                await self._note([_intent(after, f"{MEANT}: {_words(failure)}")])
            else:
                await self._note([_refused(after, BoundState.REFUSED, _words(failure))])
        return StepKind.REFUSE

    def _refusal(self, planned: Planned, error: FailureError) -> tuple[StepKind, Bound]:
        if error.failure.kind not in _ITS_OWN:
            raise error
        if error.failure.kind is not FailureKind.CONFLICT:
            self.failure = self.failure or error.failure
        return StepKind.REFUSE, _refused(planned.after, BoundState.REFUSED, _words(error.failure))

    async def _make(self, planned: Planned, after: Bound) -> tuple[StepKind, Bound]:
        """What came of it: it is there, or it is refused with words."""
        step = planned.step
        try:
            await self.projects.ensure(
                self.discovery.spec,
                step.project_key,
                step.source_url,
                after.target_url,
                actor=actor_of(self.discovery.id),
                like=planned.like,
                turns=planned.turns,
            )
        except FailureError as error:
            return self._refusal(replace(planned, after=after), error)
        except Conflict as error:
            return StepKind.CLASH, _refused(after, BoundState.CLASH, error.message)
        except UsageError as error:
            return StepKind.REFUSE, _refused(after, BoundState.REFUSED, error.message)
        return step.kind, after

    async def _with_target(self, planned: Planned) -> Bound:
        after = planned.after
        if self.targets is None or not planned.target_path or planned.project is None:
            return after
        place = (after.forge_id, after.path)

        async def making() -> None:
            await self._note([_intent(after, MEANT), *(() if planned.old is None else (planned.old,))])
            self.intents |= {place}

        made = await self.targets.ensure(
            planned.target_path, planned.project, making, meant=place in self.intents
        )
        self._weather.clear()
        after = replace(after, target_url=made.url, made_target=made.new or after.made_target)
        if made.new:
            await self._note([_refused(after, BoundState.REFUSED, BEING_MADE, keep_target=True)])
        return after

    async def _note(self, rows: Sequence[Bound]) -> None:
        now = self.clock()
        for begin in range(0, len(rows), SAVE_AT_ONCE):
            await self.save([replace(row, updated_at=now) for row in rows[begin : begin + SAVE_AT_ONCE]])


def without_intents(bound: Sequence[Bound]) -> tuple[tuple[Bound, ...], Places]:
    """Rows for a plan, which knows of no target that may not be there; and what was meant."""
    meant = {(row.forge_id, row.path) for row in bound if row.why.startswith(MEANT)}
    rows = (
        replace(row, target_url=None, made_target=False) if (row.forge_id, row.path) in meant else row
        for row in bound
    )
    return tuple(rows), frozenset(meant)


def _intent(row: Bound, why: str) -> Bound:
    """Its target is about to be made: what is there at the next run, and empty, is ours."""
    return replace(_refused(row, BoundState.REFUSED, why, keep_target=True), made_target=True)


def _refused(row: Bound, state: BoundState, why: str, *, keep_target: bool = False) -> Bound:
    """Nothing stands for it here. A target that was made, or that it had before, stays its own."""
    target = row.target_url if keep_target or row.made_target else None
    return replace(row, state=state, key=None, target_url=target, why=why)


def _words(failure: Failure) -> str:
    return f"{failure.message}. {failure.hint}" if failure.hint else failure.message
