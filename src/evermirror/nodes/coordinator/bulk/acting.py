"""What an order does to a chunk of repos. Done twice it changes nothing: a crash may have cut it short. What
it changed is written down with the change itself, so that it is counted and noted as that, once.

sync, retry      a task for each, as a batch of `pull trigger` makes them
reset            a project that fails or paused itself: as `pull errors reset`; other failing repos: a look
pause, resume    as `additional_info` {"enabled": …} of POST /api/git_urls: laid over what the catalog says
priority         the same; and a project of which a person set another is told, too
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from evermirror.core.bulk.admission import LOOKS_MAX
from evermirror.core.bulk.course import CONFIGURING, Outcome, refused
from evermirror.core.bulk.verdict import Plain, Refused, verdict
from evermirror.core.pull.layers import enabled
from evermirror.edge.store.store import Store
from evermirror.errors import Conflict, UsageError
from evermirror.model.bulk import BulkAction, BulkOrder, BulkWish
from evermirror.model.pull import Project
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.model.task import Trigger
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.pull.pull_turn import to_the_end
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.coordinator.tasks.submission import apply_info, sync_params
from evermirror.nodes.service import TaskParams

_PARAMS = sync_params(TaskParams())
_LEFT = "is no longer in the catalog"


class Acting:
    """``act`` on a chunk."""

    def __init__(
        self, store: Store, coordinator: Coordinator, pulling: Pulling, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._pulling = pulling
        self.changing = pulling.changing
        self._clock = clock

    async def act(self, order: BulkOrder, *, again: bool) -> Outcome:
        """On what it works on. ``again``: a stop or crash may have cut this short before."""
        match order.wish.action:
            case BulkAction.SYNC | BulkAction.RETRY:
                return await self._look(order, again=again)
            case BulkAction.RESET:
                return await self._reset(order, again=again)
            case BulkAction.PAUSE | BulkAction.RESUME | BulkAction.PRIORITY:
                return await self._configure(order, again=again)

    def over(self, order: BulkOrder) -> None:
        """It has ended: who publishes what the API changed does so once for all of it."""
        if order.wish.action in CONFIGURING:
            self._coordinator.on_api_change()

    # Looks

    async def _look(self, order: BulkOrder, *, again: bool) -> Outcome:
        had = await self._looked_at(order, again=again)
        left = [key for key in order.working if key not in had]
        sorted_out = _Sorted(order.wish, left, await self._found(order), self._pulling.project)
        return sorted_out.outcome + await self._ask(order, sorted_out.act, had)

    async def _looked_at(self, order: BulkOrder, *, again: bool) -> set[RepoKey]:
        """Those that have a task of this order, whatever they are by now."""
        return await self._store.looked_at_for(order, order.working) if again else set()

    async def _ask(self, order: BulkOrder, wanted: Sequence[RepoRecord], had: Collection[RepoKey]) -> Outcome:
        """A task for each; others ``had`` one before."""
        room = max(0, LOOKS_MAX - order.looks - len(had))
        outcome = Outcome(done=len(had), looks=len(had))
        for record in wanted[room:]:
            outcome += refused(
                record.key, f"is not looked at now: one order makes at most {LOOKS_MAX} tasks; retry it"
            )
        alone: list[RepoRecord] = []
        for record in wanted[:room]:
            if self._pulling.is_project(record.key):
                outcome += await self._ask_project(order, record, alone)
            else:
                alone.append(record)
        return outcome + await self._ask_alone(order, alone)

    async def _ask_project(self, order: BulkOrder, record: RepoRecord, alone: list[RepoRecord]) -> Outcome:
        try:
            task = await self._pulling.submit(
                record.key, Trigger.MANUAL_BATCH, user=order.actor, params=_PARAMS
            )
        except Conflict as error:  # disabled by itself since it was looked at
            return refused(record.key, f"is not looked at: {error}")
        if task is None:  # no project any more
            alone.append(record)
            return Outcome()
        return Outcome(done=1, looks=1)

    async def _ask_alone(self, order: BulkOrder, records: Sequence[RepoRecord]) -> Outcome:
        if not records:
            return Outcome()
        untold = [record for record in records if record.key in self._coordinator.unassigned]
        if untold:
            await self._coordinator.assign(untold)
        keys = [record.key for record in records]
        await self._coordinator.tasks.create_many(
            keys, Trigger.MANUAL_BATCH, user=order.actor, params=_PARAMS
        )
        return Outcome(done=len(keys), looks=len(keys))

    # Resets

    async def _reset(self, order: BulkOrder, *, again: bool) -> Outcome:
        looked = await self._looked_at(order, again=again)
        had = {key for key in looked if not self._pulling.is_project(key)}
        left = [key for key in order.working if key not in had]
        outcome, plain = await self._reset_projects(order, left, again=again)
        return outcome + await self._ask(order, plain, had)

    @to_the_end
    async def _reset_projects(
        self, order: BulkOrder, keys: Sequence[RepoKey], *, again: bool
    ) -> tuple[Outcome, Sequence[RepoRecord]]:
        """Projects are as new; told are the others, which are to be looked at."""
        found, before = await self._found(order), await self._changed_before(order, again=again)

        async def write(projects: Sequence[Project]) -> tuple[Project, ...]:
            return await self._store.put_projects_for(order, projects, before)

        async with self.changing:
            sorted_out = _Sorted(order.wish, keys, found, self._pulling.project, before)
            now, put, plain = self._clock(), list[Project](), list[RepoRecord]()
            for record in sorted_out.act:
                project = self._pulling.project(record.key)
                if project is None:
                    plain.append(record)
                else:
                    put.append(enabled(project, now))
            await self._pulling.put(put, write)
        return sorted_out.outcome + Outcome(done=len(put)), plain

    # What is configured

    @to_the_end
    async def _configure(self, order: BulkOrder, *, again: bool) -> Outcome:
        coordinator = self._coordinator
        async with coordinator.changing:
            before = await self._changed_before(order, again=again)
            sorted_out = _Sorted(
                order.wish, order.working, await self._found(order), self._pulling.project, before
            )
            outcome, put = sorted_out.outcome, list[RepoRecord]()
            for record in sorted_out.act:
                try:
                    put.append(apply_info(record, _info(order.wish), credentials=frozenset()))
                except UsageError as error:  # its additional_info is full
                    outcome += refused(record.key, f"cannot be changed: {error}")
            told = put + [r for r in sorted_out.nothing if again or r.key in coordinator.unassigned]
            if told:
                await self._write(order, put, told, before)
        return outcome + Outcome(done=len(put))

    async def _write(
        self,
        order: BulkOrder,
        put: Sequence[RepoRecord],
        told: Sequence[RepoRecord],
        before: Collection[RepoKey],
    ) -> None:
        """Into the store, then to projects and the fleet; ``changing`` of the coordinator is held."""
        coordinator, keys = self._coordinator, {record.key for record in told}
        waited = keys & coordinator.unassigned
        coordinator.unassigned.update(keys)  # before anybody can find it
        try:
            await self._store.upsert_for(order, put, before)
        except BaseException:
            coordinator.unassigned.difference_update(keys - waited)
            raise
        await coordinator.follow(told)
        await coordinator.assign(list(told))

    # Both

    async def _found(self, order: BulkOrder) -> Mapping[RepoKey, RepoRecord]:
        return await self._store.find_repos(order.working)

    async def _changed_before(self, order: BulkOrder, *, again: bool) -> frozenset[RepoKey]:
        return await self._store.changed_for(order) if again else frozenset()


class _Sorted:
    """The repos of a chunk by what the order means for each; ``before``: what it changed before a crash."""

    def __init__(
        self,
        wish: BulkWish,
        keys: Sequence[RepoKey],
        found: Mapping[RepoKey, RepoRecord],
        project: Callable[[RepoKey], Project | None],
        before: Collection[RepoKey] = (),
    ) -> None:
        self.act: list[RepoRecord] = []
        self.nothing: list[RepoRecord] = []
        self.outcome = Outcome()  # of those that are not acted on
        for key in keys:
            record = found.get(key)
            match Refused(_LEFT) if record is None else verdict(wish, record, project(key)):
                case Refused(why):
                    self.outcome += refused(key, why)
                case Plain.NOTHING if record is not None:
                    self.nothing.append(record)
                case Plain.ACT if record is not None:
                    self.act.append(record)
        unneeded = sum(record.key not in before for record in self.nothing)
        self.outcome += Outcome(done=len(self.nothing), unchanged=unneeded)


def _info(wish: BulkWish) -> dict[str, object]:
    """As ``additional_info`` says it."""
    if wish.priority is not None:
        return {"priority": wish.priority.value}
    return {"enabled": wish.action is BulkAction.RESUME}
