"""A forge (GitLab, Gitea, GitHub, Gitee) as its API shows it: groups, projects, pages, tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Forge(Enum):
    """Whose API it is."""

    GITLAB = "gitlab"
    GITEA = "gitea"
    GITHUB = "github"
    GITEE = "gitee"  # its hooks only: groups there are not followed


class Visibility(Enum):
    """Who may see a project there; GitHub and Gitea call INTERNAL and PRIVATE the same where they must."""

    PRIVATE = "private"
    INTERNAL = "internal"
    PUBLIC = "public"

    @property
    def rank(self) -> int:
        """The higher, the more people."""
        return ("private", "internal", "public").index(self.value)


@dataclass(frozen=True, slots=True)
class Group:
    """A GitLab group, or an organisation (or user) of Gitea or GitHub. ``id`` outlives a rename."""

    id: str
    path: str  # such as "devops/tools"
    name: str
    visibility: Visibility


@dataclass(frozen=True, slots=True)
class FoundProject:
    """A project that a listing found. ``id`` outlives a rename; ``path`` is whole: "devops/tools/core"."""

    id: str
    path: str
    http_url: str
    ssh_url: str
    visibility: Visibility
    default_branch: str | None = None
    description: str = ""
    archived: bool = False
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a listing; ``next`` asks for the one after it, also much later. None: this was the last."""

    items: tuple[FoundProject, ...]
    next: str | None
    total: int | None = None  # where the forge tells it


@dataclass(frozen=True, slots=True)
class NewTarget:
    """A project to be made at a target; its group is there already."""

    path: str  # whole
    name: str
    visibility: Visibility
    description: str
    default_branch: str | None


@dataclass(frozen=True, slots=True)
class TargetProject:
    """A project at a target."""

    id: str
    path: str
    http_url: str
    ssh_url: str
    visibility: Visibility
    default_branch: str | None
    description: str
    empty: bool
    archived: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a forge takes us for. Another user, or fewer scopes, may see fewer projects."""

    user_id: str  # outlives a rename, and a new token of the same user
    name: str  # the user's or the token's, for people
    scopes: tuple[str, ...] | None = None  # sorted; None: the forge does not say


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """What the forge says of the token that asks. None: it does not say."""

    name: str
    scopes: frozenset[str] | None
    expires_at: float | None  # UTC; the token is good until then
    user_id: str | None = None

    @property
    def identity(self) -> Identity | None:
        if self.user_id is None:
            return None
        scopes = None if self.scopes is None else tuple(sorted(self.scopes))
        return Identity(self.user_id, self.name, scopes)
