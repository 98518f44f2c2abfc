"""The catalog's sources: what was read, what could not be, what is held back; and the word that it is so."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from evermirror.errors import NotFound
from evermirror.faces.api.context import Api, ApiDep, CallerDep, problems
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.text import iso_or_none, printable
from evermirror.model.access import Role
from evermirror.nodes.coordinator.catalog.catalog_state import CatalogState
from evermirror.nodes.service import CatalogService

router = APIRouter(tags=["catalog"])


class SourceView(BaseModel):
    """One source."""

    place: str = Field(description="A path or a git URL")
    commit: str | None = Field(description="What the catalog is at; null for files on disk")
    looked_at: str | None = Field(description="The last look that succeeded")
    trouble: str | None = Field(description="Why the last look did not; the last good catalog stays")


class HeldView(BaseModel):
    """A change that removes much and waits for a person."""

    place: str | None = Field(description="The source; null where all were read anew")
    commit: str | None
    removed: int
    total: int


class ProblemView(BaseModel):
    """Something in a file that was not taken."""

    file: str
    line: int | None = Field(description="null where the file as a whole is meant")
    reason: str
    text: str


class CatalogView(BaseModel):
    """What the catalog is made from."""

    sources: list[SourceView]
    held: list[HeldView]
    problems_total: int
    problems: list[ProblemView] = Field(description="The first 100; `evermirror catalog check` lists all")
    notes: list[str]


class CatalogConfirmed(BaseModel):
    """What a confirmation did."""

    removed: int


@router.get(
    "/api/catalog", summary="Sources, problems, what is held back", responses=problems(Kind.NOT_FOUND)
)
async def get_catalog(api: ApiDep, caller: CallerDep) -> CatalogView:
    """Needs the role reader, also where reading is public: lines may name private repos."""
    caller.need(Role.READER)
    return _view(_catalog(api).state())


@router.post(
    "/api/catalog/confirm",
    summary="Do what is held back",
    responses=problems(Kind.CONFLICT, Kind.NOT_FOUND),
)
async def confirm_catalog(api: ApiDep, caller: CallerDep) -> CatalogConfirmed:
    """A change of the catalog that removes much is meant. 409 where nothing is held back."""
    caller.need(Role.OPERATOR)
    return CatalogConfirmed(removed=await _catalog(api).confirm(actor=caller.name))


def _catalog(api: Api) -> CatalogService:
    if api.catalog is None:
        raise NotFound("this server has no catalog", hint="Ask its coordinator")
    return api.catalog


def _view(state: CatalogState) -> CatalogView:
    return CatalogView(
        sources=[
            SourceView(
                place=printable(s.place),
                commit=s.version,
                looked_at=iso_or_none(s.looked_at),
                trouble=printable(s.trouble) or None,
            )
            for s in state.sources
        ],
        held=[
            HeldView(place=printable(h.source) or None, commit=h.version, removed=h.removed, total=h.total)
            for h in state.held
        ],
        problems_total=state.problems_total,
        problems=[
            ProblemView(
                file=printable(p.file),
                line=p.line or None,
                reason=printable(p.reason),
                text=printable(p.text),
            )
            for p in state.problems
        ],
        notes=[printable(note) for note in state.notes],
    )
