"""One repo's hook at its forge: looked at, made, mended or removed, as its plan says."""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.core.hooks.plan import Make, Mend, Ours, Plan, Remove, plan, removal
from evermirror.edge.forge.hooks_api import ForgeHooks
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.hook import ForgeHook, RegistrationState, WantedHook
from evermirror.nodes.hook_service import RegisterAction, RegisterWish

TURNS = 2  # a hook that somebody removed meanwhile is looked for once more


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one repo: as an item of the run, and as it is stored. ``state`` None: nothing was
    learned of its hook."""

    did: str
    state: RegistrationState | None
    hook_id: str = ""
    problem: str = ""


_CHECKED = {
    RegistrationState.OK: "as it should be",
    RegistrationState.MISSING: "missing",
    RegistrationState.DRIFTED: "drifted",
}
_WEATHER = (FailureKind.NETWORK_TIMEOUT, FailureKind.RATE_LIMITED)


async def act(api: ForgeHooks, path: str, wanted: WantedHook, ours: Ours, wish: RegisterWish) -> Done:
    """Raises FailureError."""
    match wish.action:
        case RegisterAction.CHECK:
            seen = plan(wanted, await api.hooks(path), ours)
            if seen.renamed and wanted.secret:
                return await _renamed(api, path, wanted, ours, seen)
            return Done(_CHECKED[seen.state], seen.state, seen.hook_id, _problem(seen))
        case RegisterAction.REMOVE:
            return await _remove(api, path, ours)
        case RegisterAction.REGISTER:
            return await _register(api, path, wanted, ours, renew=wish.renew)


def refused(failure: Failure) -> Done:
    """What a forge's trouble with one repo means: bad weather says nothing of its hook."""
    words = f"{failure.message}: {failure.hint}" if failure.hint else failure.message
    state = None if failure.kind in _WEATHER or failure.ours else RegistrationState.REFUSED
    return Done("refused", state, problem=words)


async def _renamed(api: ForgeHooks, path: str, wanted: WantedHook, ours: Ours, seen: Plan) -> Done:
    """A hook that names what its repo was called before gets its address of now, by a check already: with the
    old one the repo is not told of. A token that may only look leaves it as it is."""
    try:
        return await _register(api, path, wanted, ours, renew=False)
    except FailureError as error:
        if error.failure.kind is not FailureKind.PERMISSION_DENIED:
            raise
        problem = f"{_problem(seen)}; {error.failure.message}"
        return Done("drifted", RegistrationState.DRIFTED, seen.hook_id, problem)


async def _remove(api: ForgeHooks, path: str, ours: Ours) -> Done:
    steps = removal(await api.hooks(path), ours)
    for step in steps:
        await api.remove_hook(path, step.id)
    return Done("removed" if steps else "not there", RegistrationState.REMOVED)


async def _register(api: ForgeHooks, path: str, wanted: WantedHook, ours: Ours, *, renew: bool) -> Done:
    turn = 1
    while True:
        todo = plan(wanted, await api.hooks(path), ours, renew=renew)
        try:
            hook = await _carry_out(api, path, wanted, todo)
        except FailureError as error:
            if error.failure.kind is not FailureKind.NOT_FOUND or turn == TURNS:
                raise
            turn += 1
            continue
        did = "as it should be" if not todo.steps else "made" if Make() in todo.steps else "mended"
        if hook is None:
            return Done(did, RegistrationState.OK, todo.hook_id, todo.trouble)
        if not hook.active:  # GitLab tries one that it had switched off, before it is on again
            problem = f"the forge keeps it switched off: {hook.trouble}".removesuffix(": ")
            return Done("drifted", RegistrationState.DRIFTED, hook.id, problem)
        return Done(did, RegistrationState.OK, hook.id)


async def _carry_out(api: ForgeHooks, path: str, wanted: WantedHook, todo: Plan) -> ForgeHook | None:
    """The hook that was made or mended, if one was."""
    written: ForgeHook | None = None
    for step in todo.steps:
        match step:
            case Make():
                written = await api.make_hook(path, wanted)
            case Mend(id=known):
                written = await api.change_hook(path, known, wanted)
            case Remove(id=double):
                await api.remove_hook(path, double)
    return written


def _problem(seen: Plan) -> str:
    return "; ".join(seen.why) or seen.trouble
