"""Orders about our hooks at forges: one at a time, in the background. People's part of ``HookService``.

An order is on the disk until it has ended. A stop cuts it short, and the next start goes on with it; what was
done twice by that changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import structlog

from evermirror.core.hooks.secrets import Secrets
from evermirror.edge.git.credentials import Credential
from evermirror.edge.store.hook_registrations import HookScope
from evermirror.errors import Conflict, InvalidUrl, NotFound, Unavailable, UsageError
from evermirror.model.failure import FailureError
from evermirror.model.forge import Forge
from evermirror.model.repo import RepoRecord
from evermirror.nodes.coordinator.hooks.registering_book import Order, RegisterParts
from evermirror.nodes.coordinator.hooks.registering_run import Run
from evermirror.nodes.coordinator.hooks.registering_walk import CatalogRepos, NamedRepos, Walk
from evermirror.nodes.coordinator.hooks.registering_whom import check_credential
from evermirror.nodes.hook_service import RegisterAction, RegisterRun, RegisterWish

log = structlog.get_logger(__name__)

RUNS_KEPT = 20
NAMED_MAX = 1_000  # repos of one order; more are a group, or all
NAMES_TOLD = 5
GROUP_CHARS_MAX = 2_048
BASES_KEPT = 10
ORDER = "hooks.order"  # settings of the store
BASES = "hooks.bases"

FindRepo = Callable[[str], Awaitable[RepoRecord]]


class Registering:
    def __init__(self, parts: RegisterParts, find: FindRepo) -> None:
        self._parts = parts
        self._find = find
        self._runs: OrderedDict[int, Run] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._ordering = asyncio.Lock()
        self._left: Run | None = None

    # Life

    def configure(self, base: str | None, secrets: Secrets, credentials: Mapping[str, Credential]) -> None:
        """What needs no restart. An order under way goes on as it began, but with the tokens of now."""
        self._parts.credentials.by_name = credentials
        self._parts = replace(self._parts, base=base, secrets=secrets)

    async def load(self) -> None:
        """An order that a stop cut short goes on with ``run``."""
        order = _order_out(await self._parts.store.get_setting(ORDER))
        if order is None:
            return
        try:
            run = await self._made(order, await self._walk(order.wish, missing_too=True))
        except UsageError as error:  # the settings are others now
            log.warning("an order about hooks is not gone on with", reason=str(error))
            await self._parts.store.put_setting(ORDER, None)
        else:
            self._left = self._runs[order.id] = run

    async def run(self) -> None:
        """Until cancelled. Called again, it goes on with the order that was cut short."""
        if self._left is None:
            await self.load()
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                if self._left is not None:
                    self._start(self._left, group)
                    self._left = None
                await asyncio.Event().wait()
            finally:
                self._group = None

    # What people order and ask

    async def register(self, wish: RegisterWish, *, actor: str) -> RegisterRun:
        wish = self.check(wish)
        async with self._ordering:
            if (under_way := self._under_way()) is not None:
                raise Conflict(
                    f"order {under_way.order.id} is under way: "
                    f"{under_way.order.wish.action.value}, by {under_way.order.actor}",
                    hint=f"`evermirror webhook status {under_way.order.id}` shows how far it is, "
                    f"`evermirror webhook stop {under_way.order.id}` stops it",
                )
            self._alive()
            order = Order(self._number(), wish, actor, self._parts.clock())
            run = await self._made(order, await self._walk(wish))
            if wish.group and not run.view.total:
                raise NotFound(
                    f"no repo of the catalog is below {wish.group!r}",
                    hint='A group is the beginning of keys, such as "github.com/owner"',
                )
            await self._parts.store.put_setting(ORDER, _order_in(order))
            await self._parts.store.audit(
                actor,
                f"hooks.{wish.action.value}",
                str(order.id),
                {**_wish_in(wish), "repos": wish.repos[:20]},
            )
            self._start(run, self._alive())
            return run.view

    async def registering(self, run_id: int) -> RegisterRun:
        return self._of(run_id).view

    async def registrations(self) -> tuple[RegisterRun, ...]:
        return tuple(run.view for run in reversed(self._runs.values()))

    async def cancel(self, run_id: int, *, actor: str) -> RegisterRun:
        """One that has ended stays as it is; one that the database cut short is not gone on with."""
        run, task = self._of(run_id), self._task
        if not run.has_ended:
            self._alive()
            assert task is not None  # noqa: S101 - who is alive has started what is known
            run.stopped_by = actor
            await asyncio.sleep(0)  # a task that has not begun would end without a trace
            task.cancel()
            await asyncio.wait({task})
            await self._parts.store.audit(actor, "hooks.order.stopped", str(run_id))
        elif run.cut_short and run is next(reversed(self._runs.values())):
            await self._parts.store.put_setting(ORDER, None)
            run.cut_short = False
        return run.view

    # Inside

    async def _made(self, order: Order, walk: Walk) -> Run:
        """Raises UsageError where it cannot be with the settings of today."""
        bases = await self._bases(order)
        lots = await walk.lots()
        check_credential(order.wish, lots, self._parts.credentials.by_name)
        return Run(order, self._parts, walk, lots, bases)

    def _start(self, run: Run, group: asyncio.TaskGroup) -> None:
        self._runs[run.order.id] = run
        while len(self._runs) > RUNS_KEPT:
            self._runs.popitem(last=False)
        self._task = group.create_task(self._carried_out(run))

    def _alive(self) -> asyncio.TaskGroup:
        if self._group is None:
            raise Unavailable("the server is starting, or being stopped", hint="Try again in a moment")
        return self._group

    async def _carried_out(self, run: Run) -> None:
        """Who is told that it has ended can rely on it: no start goes on with it, unless it is told to have
        been cut short."""
        try:
            await run.carry_out()
        except asyncio.CancelledError:
            if not run.stopped_by:
                raise  # a stop of the server: the order stays
        try:
            if not run.cut_short:
                await self._parts.store.put_setting(ORDER, None)
        except FailureError as error:  # given again at the next start, it finds all as it should be
            log.warning("the end of an order about hooks is not stored", reason=error.failure.message)
        finally:
            run.end()

    def _under_way(self) -> Run | None:
        newest = next(reversed(self._runs.values()), None)
        return newest if newest is not None and not newest.has_ended else None

    def _of(self, run_id: int) -> Run:
        run = self._runs.get(run_id)
        if run is None:
            raise NotFound(
                f"there is no order {run_id}",
                hint=f"The last {RUNS_KEPT} since the start are known; what they found: GET /api/hooks",
            )
        return run

    def _number(self) -> int:
        """Above every earlier one, also of earlier lives."""
        return max(int(self._parts.clock() * 1000), max(self._runs, default=0) + 1)

    def check(self, wish: RegisterWish) -> RegisterWish:
        """The order as it is carried out; raises UsageError where it, or the settings, do not allow it."""
        given = [bool(wish.repos), bool(wish.group), wish.all_repos]
        if sum(given) != 1:
            raise UsageError(
                "an order is about repos, or a group, or all: "
                + ("several" if any(given) else "none")
                + " of them are given",
                hint='Such as repos = ["github.com/owner/name"], group = "github.com/owner", or all = true',
            )
        if len(wish.repos) > NAMED_MAX:
            raise UsageError(
                f"{len(wish.repos)} repos are more than {NAMED_MAX}", hint="Name a group, or all"
            )
        if self._parts.base is None:
            raise UsageError(
                "webhooks.url is not set: forges must know where to send their hooks",
                hint="Set it to the address at which they reach this server, such as https://mirror.example.org",
            )
        if wish.action is RegisterAction.REGISTER and not any(self._parts.secrets.all()):
            raise UsageError(
                "no secret for hooks is set",
                hint="Set webhooks.github_secret, webhooks.gitlab_secret, … or webhooks.secrets",
            )
        return replace(wish, group=_group(wish.group))

    async def _walk(self, wish: RegisterWish, *, missing_too: bool = False) -> Walk:
        """``missing_too``: names that are no longer there are passed over."""
        if not wish.repos:
            disabled_too = wish.action is RegisterAction.REMOVE
            return CatalogRepos(self._parts.store, HookScope(wish.group, disabled_too))
        found: list[RepoRecord] = []
        unknown: list[str] = []
        for name in wish.repos:
            try:
                found.append(await self._find(name))
            except (NotFound, InvalidUrl):
                unknown.append(name)
        if unknown and not missing_too:
            more = f" and {len(unknown) - NAMES_TOLD} more" if len(unknown) > NAMES_TOLD else ""
            named = ", ".join(repr(name) for name in unknown[:NAMES_TOLD])
            raise NotFound(
                f"not in the catalog: {named}{more}", hint="Nothing was done; add them, or leave them out"
            )
        return NamedRepos(tuple(found))

    async def _bases(self, order: Order) -> tuple[str, ...]:
        """Our public addresses, the present one first: hooks with an earlier one are ours, too."""
        base = self._parts.base
        if base is None:
            raise UsageError("webhooks.url is not set")
        known = await self._parts.store.get_setting(BASES)
        earlier = [str(one) for one in known] if isinstance(known, list) else []
        bases = list(dict.fromkeys([base, *earlier]))[:BASES_KEPT]
        if bases != earlier and order.wish.action is RegisterAction.REGISTER:
            await self._parts.store.put_setting(BASES, bases)
        return tuple(bases)


def _group(text: str) -> str:
    """The beginning of keys, also where it is written as a URL."""
    group = text.rpartition("://")[2].strip("/")
    if text and (not group or len(group) > GROUP_CHARS_MAX or not group.isprintable()):
        raise UsageError(
            "group: this is not the beginning of keys", hint='Such as "github.com/owner", or "gitlab.com"'
        )
    return group


def _wish_in(wish: RegisterWish) -> dict[str, object]:
    return {
        "action": wish.action.value,
        "repos": list(wish.repos),
        "group": wish.group,
        "all": wish.all_repos,
        "credential": wish.credential,
        "forge": wish.forge.value if wish.forge is not None else None,
        "renew": wish.renew,
    }


def _order_in(order: Order) -> dict[str, object]:
    return {
        "id": order.id,
        "actor": order.actor,
        "started_at": order.started_at,
        "wish": _wish_in(order.wish),
    }


def _order_out(value: object) -> Order | None:
    """None for none, and for what another version wrote and this one cannot read."""
    try:
        match value:
            case {"id": int(id_), "actor": str(actor), "started_at": float(at), "wish": dict(wish)}:
                return Order(id_, _wish_out(wish), actor, at, resumed=True)
    except (KeyError, ValueError, TypeError):
        log.warning("an order about hooks that a stop cut short cannot be read")
    return None


def _wish_out(wish: dict[str, object]) -> RegisterWish:
    repos, forge, credential = wish["repos"], wish["forge"], wish["credential"]
    return RegisterWish(
        RegisterAction(wish["action"]),
        repos=tuple(str(name) for name in repos) if isinstance(repos, list) else (),
        group=str(wish["group"]),
        all_repos=bool(wish["all"]),
        credential=None if credential is None else str(credential),
        forge=None if forge is None else Forge(forge),
        renew=bool(wish["renew"]),
    )
