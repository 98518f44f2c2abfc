"""What is known of a repo's hooks, as the API tells it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from evermirror.core.hooks.trust import NEEDED
from evermirror.faces.api.text import iso, iso_or_none, printable
from evermirror.model.hook import HookMemory, HookRegistration
from evermirror.nodes.hook_service import HookView

TrustText = Literal["unproven", "reliable", "silent"]
RegistrationText = Literal["ok", "missing", "drifted", "refused", "removed"]


class HooksOut(BaseModel):
    """What hooks that came for a repo taught."""

    trust: TrustText = Field(
        description="reliable: polled less; silent: polls found changes that no hook told of"
    )
    since: str = Field(description="When that became so")
    received: int = Field(description="Hooks ever")
    last_at: str | None = Field(description="Of the latest hook; null: one was registered, and none came")
    told: int = Field(description="Changes in a row that a hook told of, up to now")
    missed: int = Field(description="Changes in a row that no hook told of, up to now")
    needed: int = Field(description="So many must be told of in a row before the repo is polled less")
    told_total: int
    missed_total: int


class RegistrationOut(BaseModel):
    """Our hook at the forge, as last seen."""

    forge: str
    state: RegistrationText
    problem: str
    checked_at: str


class RepoHooks(BaseModel):
    """A repo's hooks: those that came, and ours at its forge."""

    repo: str
    hooks: HooksOut | None = Field(description="Null where none ever came, nor was registered")
    registration: RegistrationOut | None = Field(description="Null where none was registered from here")


class RepoHooksList(BaseModel):
    """A page in key order."""

    items: list[RepoHooks]
    next_cursor: str | None


def hooks_out(memory: HookMemory) -> HooksOut:
    return HooksOut(
        trust=memory.trust.value,
        since=iso(memory.since),
        received=memory.received,
        last_at=iso_or_none(memory.last_at or None),
        told=memory.told,
        missed=memory.missed,
        needed=memory.needed or NEEDED,
        told_total=memory.told_total,
        missed_total=memory.missed_total,
    )


def repo_hooks(view: HookView) -> RepoHooks:
    return RepoHooks(
        repo=printable(view.key),
        hooks=hooks_out(view.memory) if view.memory is not None else None,
        registration=_registration_out(view.registration) if view.registration is not None else None,
    )


def _registration_out(registration: HookRegistration) -> RegistrationOut:
    return RegistrationOut(
        forge=registration.forge.value,
        state=registration.state.value,
        problem=printable(registration.problem),
        checked_at=iso(registration.checked_at),
    )
