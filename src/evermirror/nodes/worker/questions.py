"""Small reads that travel to a worker and back: what can be asked, and each answer as JSON.

Used at both ends: the worker answers (``answer``), the coordinator asks and understands (``RemoteView``).
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from evermirror.errors import BadAnswer, EvermirrorError, NotFound, Unavailable
from evermirror.model.decode import Undecodable, decode
from evermirror.model.failure import FailureError
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.plan import PollPlan
from evermirror.model.printable import short_line
from evermirror.model.push import Standings
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Answer, Question
from evermirror.nodes.service import Upkeep

if TYPE_CHECKING:
    from evermirror.nodes.worker.ports import WorkerView

ANSWER_S = 10.0  # a worker that is alive answers in milliseconds; reading many refs takes longer
LARGE_CHARS = 100_000  # an answer longer than that is read beside the event loop
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
Complain = Callable[[str, RepoKey, str], None]


class RemoteView:
    """A worker as it is asked from afar; raises NotFound, Unavailable where it does not answer, BadAnswer
    where its answer is none. ``complain`` is told of those: what was asked, of which repo, what is wrong."""

    def __init__(self, ask: Ask, complain: Complain = lambda what, key, why: None) -> None:
        self._ask = ask
        self._complain = complain

    async def plan(self, key: RepoKey) -> PollPlan:
        plan: PollPlan = await self._get("plan", key, PollPlan)
        return plan

    async def refs(self, key: RepoKey) -> RefSnapshot:
        refs: RefSnapshot = await self._get("refs", key, RefSnapshot)
        return refs

    async def guard(self, key: RepoKey) -> GuardMemory | None:
        guard: GuardMemory | None = await self._get("guard", key, GuardMemory | None)
        return guard

    async def history(self, key: RepoKey) -> tuple[KeptTip, ...]:
        tips: tuple[KeptTip, ...] = await self._get("history", key, tuple[KeptTip, ...])
        return tips

    async def upkeep(self, key: RepoKey) -> Upkeep | None:
        upkeep: Upkeep | None = await self._get("upkeep", key, Upkeep | None)
        return upkeep

    async def standings(self, key: RepoKey) -> Standings:
        standings: Standings = await self._get("standings", key, Standings)
        return standings

    async def _get(self, what: str, key: RepoKey, wanted: Any) -> Any:
        answer = await self._ask(what, key)
        if answer.error == NOT_FOUND:
            raise NotFound(f"there is no mirror of {key} yet", hint="Wait for its first sync")
        if answer.error:
            raise Unavailable(f"the worker could not answer: {short_line(answer.error)}")
        try:
            if len(answer.body) > LARGE_CHARS:
                return await asyncio.to_thread(decode, answer.body, wanted)
            return decode(answer.body, wanted)
        except Undecodable as error:
            self._complain(what, key, str(error))
            raise BadAnswer(
                f"the worker that holds {key} gave an answer that cannot be read: {error}",
                hint="Upgrade that worker, or take it out: evermirror worker quarantine",
            ) from None
