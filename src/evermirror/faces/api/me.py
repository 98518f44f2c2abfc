"""Who asks, and what they may do: a page offers no more than that."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from evermirror.faces.api.auth import Caller
from evermirror.faces.api.context import CallerDep, problems
from evermirror.model.access import Role

RoleText = Literal["admin", "operator", "submitter", "reader", "public"]

_HIGHEST_FIRST: tuple[tuple[Role, RoleText], ...] = (
    (Role.ADMIN, "admin"),
    (Role.OPERATOR, "operator"),
    (Role.SUBMITTER, "submitter"),
    (Role.READER, "reader"),
)

router = APIRouter(tags=["overview"])


class MeView(BaseModel):
    """Who asks."""

    name: str | None = Field(
        description="The token's name; local for this machine's own user; null without any"
    )
    role: RoleText = Field(description="Each role may do what those after it in the list may")


@router.get("/api/me", summary="Who asks, and in which role", responses=problems())
async def get_me(caller: CallerDep) -> MeView:
    """401 for a token that is not known here, or was revoked, and without one where reads are not public."""
    role = role_of(caller)
    return MeView(name=None if role == "public" else caller.name, role=role)


def role_of(caller: Caller) -> RoleText:
    return next((text for role, text in _HIGHEST_FIRST if caller.may(role)), "public")
