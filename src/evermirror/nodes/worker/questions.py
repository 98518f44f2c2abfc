"""Small reads that travel to a worker and back: what can be asked, and each answer as JSON.

Used at both ends: the worker answers (``answer``), the coordinator asks and understands (``RemoteView``).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from evermirror.errors import EvermirrorError, NotFound, Unavailable
from evermirror.model.failure import FailureError
from evermirror.model.kept import GuardMemory, GuardReason, KeptTip, Why
from evermirror.model.plan import PollPlan, Step
from evermirror.model.push import RefStanding, RefState, Standings, TargetId, TargetStanding
from evermirror.model.refs import Oid, RefsDigest, RefSnapshot
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Answer, Question
from evermirror.nodes.service import Upkeep

if TYPE_CHECKING:
    from evermirror.nodes.worker.ports import WorkerView

ANSWER_S = 10.0  # a worker that is alive answers in milliseconds; reading many refs takes longer
NOT_FOUND = "not-found"  # the error that is a plain no; anything else is text for people


async def answer(view: WorkerView, question: Question) -> Answer:
    """What this worker says; never raises for what may happen on a disk."""
    ask = _ASKED.get(question.what)
    if ask is None:
        return Answer(question.number, "", f"this worker does not know what {question.what!r} is: upgrade it")
    try:
        value = await ask(view, question.key)
    except NotFound:
        return Answer(question.number, "", NOT_FOUND)
    except FailureError as error:
        return Answer(question.number, "", error.failure.message)
    except EvermirrorError as error:
        return Answer(question.number, "", error.message)
    return Answer(question.number, json.dumps(value, default=_enum_value))


async def _plan(view: WorkerView, key: RepoKey) -> object:
    return dataclasses.asdict(view.plan(key))


async def _refs(view: WorkerView, key: RepoKey) -> object:
    refs = await view.refs(key)
    return {"head": refs.head, "refs": dict(refs.refs)}


async def _guard(view: WorkerView, key: RepoKey) -> object:
    guard = view.guard(key)
    return None if guard is None else dataclasses.asdict(guard)


async def _history(view: WorkerView, key: RepoKey) -> object:
    return [dataclasses.asdict(tip) for tip in await view.history(key)]


async def _upkeep(view: WorkerView, key: RepoKey) -> object:
    upkeep = await view.upkeep(key)
    return None if upkeep is None else dataclasses.asdict(upkeep)


async def _standings(view: WorkerView, key: RepoKey) -> object:
    return dataclasses.asdict(await view.standings(key))


_ASKED: dict[str, Callable[[WorkerView, RepoKey], Awaitable[object]]] = {
    "plan": _plan,
    "refs": _refs,
    "guard": _guard,
    "history": _history,
    "upkeep": _upkeep,
    "standings": _standings,
}


def _enum_value(value: Any) -> object:
    return value.value


Ask = Callable[[str, RepoKey], Awaitable[Answer]]


class RemoteView:
    """A worker as it is asked from afar; raises NotFound, or Unavailable where it does not answer well."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def plan(self, key: RepoKey) -> PollPlan:
        return _understood(_plan_of, await self._get("plan", key))

    async def refs(self, key: RepoKey) -> RefSnapshot:
        said = await self._get("refs", key)
        return RefSnapshot({str(n): Oid(str(o)) for n, o in said["refs"].items()}, said["head"])

    async def guard(self, key: RepoKey) -> GuardMemory | None:
        said = await self._get("guard", key)
        if said is None:
            return None
        return GuardMemory(
            GuardReason(said["reason"]),
            said["since"],
            said["sightings"],
            RefsDigest(said["digest"]),
            said["lost"],
        )

    async def history(self, key: RepoKey) -> tuple[KeptTip, ...]:
        return tuple(
            KeptTip(t["name"], t["ref"], t["at"], Why(t["why"]), Oid(t["old"]), t["new"] and Oid(t["new"]))
            for t in await self._get("history", key)
        )

    async def upkeep(self, key: RepoKey) -> Upkeep | None:
        said = await self._get("upkeep", key)
        return None if said is None else Upkeep(**said)

    async def standings(self, key: RepoKey) -> Standings:
        return _understood(_standings_of, await self._get("standings", key))

    async def _get(self, what: str, key: RepoKey) -> Any:
        answer = await self._ask(what, key)
        if answer.error == NOT_FOUND:
            raise NotFound(f"there is no mirror of {key} yet", hint="Wait for its first sync")
        if answer.error:
            raise Unavailable(f"the worker could not answer: {answer.error}")
        return _understood(json.loads, answer.body)


_T = TypeVar("_T")


def _understood(read: Callable[[Any], _T], said: Any) -> _T:
    try:
        return read(said)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Unavailable("the worker gave an answer that cannot be read") from None


def _plan_of(said: dict[str, Any]) -> PollPlan:
    """A worker of the version before tells no steps; what a later one tells besides is not understood yet."""
    steps = tuple(Step(**{n: s.get(n) for n in _STEP}) for s in said.get("steps", ()))
    return PollPlan(**{n: v for n, v in said.items() if n in _PLAN} | {"steps": steps})


def _standings_of(said: dict[str, Any]) -> Standings:
    targets = tuple(_target_of(target) for target in said["targets"])
    return Standings(said["total"], RefsDigest(said["digest"]), targets)


def _target_of(said: dict[str, Any]) -> TargetStanding:
    refs = tuple(
        RefStanding(r["name"], RefState(r["state"]), r["ours"], r["theirs"], r["reason"])
        for r in said["refs"]
    )
    return TargetStanding(TargetId(said["target"]), said["url"], said["equal"], refs, said["complete"])


_STEP = tuple(field.name for field in dataclasses.fields(Step))
_PLAN = frozenset(field.name for field in dataclasses.fields(PollPlan))
