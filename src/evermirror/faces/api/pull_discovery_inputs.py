"""What clients may say about discovery. Times are minutes, as everywhere in pull mirroring."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from evermirror.faces.api.inputs import CleanText, Input
from evermirror.faces.api.pull_inputs import CredentialText, Interval, PriorityText, refused
from evermirror.model.discovery import DiscoverySpec, Protected
from evermirror.model.forge import Forge, Visibility
from evermirror.model.pull import MINUTE
from evermirror.model.repo import Priority

ForgeText = Literal["gitlab", "gitea", "github"]
VisibilityText = Literal["private", "internal", "public"]
InstanceText = Annotated[CleanText, Field(min_length=1, max_length=2_048)]
Pattern = Annotated[CleanText, Field(min_length=1, max_length=255)]
Patterns = Annotated[
    list[Pattern],
    Field(max_length=100, description="Globs over the whole path at the source; * goes over slashes"),
]
Every = Annotated[float, Field(ge=1, le=43_200, allow_inf_nan=False)]

_EVERY = "Minutes from one look to the next; null: only when asked"
_TARGET = "Instance and group; missing groups and projects are made there. Null: no target"


class SpecIn(Input):
    """All that can be changed of a discovery."""

    credential: CredentialText | None = None
    subgroups: bool = Field(True, description="Also projects of groups in the group")
    include: Patterns = Field(default=[])
    exclude: Patterns = Field(default=[], description="Wins over include")
    archived: bool = Field(False, description="Also archived projects")
    prefix: Annotated[CleanText, Field(max_length=200)] = Field("", description="Of the project keys")
    over_ssh: bool = Field(False, description="git asks by ssh; the API is asked over https all the same")
    target_url: InstanceText | None = Field(
        None, examples=["https://gitlab.other.com/mirrors"], description=_TARGET
    )
    target_forge: ForgeText = "gitlab"
    target_credential: CredentialText | None = None
    visibility: VisibilityText | None = Field(None, description="Of what is made; null: as at the source")
    protected_branches: Literal["open", "leave"] = Field(
        "open", description="Of projects that were made: opened, so that a rewrite can be followed"
    )
    hooks: bool = Field(False, description="Our hook is registered at each project that is found")
    priority: PriorityText = "normal"
    sync_interval: Interval | None = Field(None, description="In minutes; null: the priority's own")
    every: Every | None = Field(60.0, description=_EVERY)

    def over(self, spec: DiscoverySpec) -> DiscoverySpec:
        """``spec`` with what was given."""
        given = {name: getattr(self, name) for name in self.model_fields_set if name in _SPEC}
        return replace(spec, **dict(_SPEC[name](value) for name, value in given.items()))


class DiscoveryIn(SpecIn):
    """A group whose projects are to be mirrored."""

    source_url: InstanceText = Field(examples=["https://gitlab.example.com"])
    forge: ForgeText = "gitlab"
    group: Annotated[CleanText, Field(min_length=1, max_length=255)] = Field(examples=["devops/tools"])
    dry_run: bool = Field(False, description="Nothing is changed: 202, and what would be done")

    def spec(self) -> DiscoverySpec:
        return self.over(DiscoverySpec(self.source_url, Forge(self.forge), self.group))


class DiscoveryChangeIn(SpecIn):
    """What is to change; what is not given stays. The group, and where it is, cannot be changed."""

    enabled: bool = Field(True, description="False: stopped, until it is true again")

    def is_enabled(self, before: bool) -> bool:
        return self.enabled if "enabled" in self.model_fields_set else before


class RunIn(Input):
    """A run that is wanted now."""

    accept: bool = Field(False, description="Removals that wait for a person's word are carried out")


def discovery_id_in(text: str) -> int:
    """The number in an address; 422 for what is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise refused("path.id", "is not the number of a discovery")
    return int(text)


def _as(name: str, make: Any = lambda value: value) -> Any:
    """The field of a spec, and its value there."""
    return lambda value: (name, None if value is None else make(value))


_SPEC: dict[str, Any] = {
    "credential": _as("credential"),
    "subgroups": _as("subgroups"),
    "include": _as("include", tuple),
    "exclude": _as("exclude", tuple),
    "archived": _as("archived"),
    "prefix": _as("prefix"),
    "over_ssh": _as("over_ssh"),
    "target_url": _as("target_url"),
    "target_forge": _as("target_forge", Forge),
    "target_credential": _as("target_credential"),
    "visibility": _as("visibility", Visibility),
    "protected_branches": _as("protected", Protected),
    "hooks": _as("hooks"),
    "priority": _as("priority", Priority),
    "sync_interval": _as("interval_s", lambda value: value * MINUTE),
    "every": _as("every_s", lambda value: value * MINUTE),
}
