"""Discovery: a group at a forge whose projects are mirrored, as they come, are renamed and go.

Discovery (what to follow, by whose word) ──run──▶ pages of FoundProject ──plan──▶ steps ──▶ Bound, each
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from evermirror.model.failure import Failure
from evermirror.model.forge import Forge, Identity, Visibility
from evermirror.model.repo import Priority, RepoKey

DiscoveryId = NewType("DiscoveryId", int)


class Protected(Enum):
    """What is done about protected branches of projects that a discovery made."""

    OPEN = "open"  # opened, so that a rewrite upstream can be followed
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class DiscoverySpec:
    """What a person asks for. Patterns are globs over a project's whole path at the source."""

    source_url: str  # of the instance: "https://gitlab.example.com"
    forge: Forge
    group: str  # "devops", or "devops/tools"
    credential: str | None = None
    subgroups: bool = True
    include: tuple[str, ...] = ()  # empty: everything
    exclude: tuple[str, ...] = ()  # wins over include
    archived: bool = False
    prefix: str = ""  # before the project's key, such as "mirror/"
    over_ssh: bool = False  # sources and targets by their ssh address
    target_url: str | None = None  # instance and group: "https://gitlab.other.com/mirrors"; None: no target
    target_forge: Forge = Forge.GITLAB
    target_credential: str | None = None
    visibility: Visibility | None = None  # of what is made at the target; None: as at the source
    protected: Protected = Protected.OPEN
    priority: Priority = Priority.NORMAL
    interval_s: float | None = None  # None: the class's
    hooks: bool = False  # our hook is registered at each project that is found
    every_s: float | None = 3600.0  # how often it is looked again; None: only when asked


class BoundState(Enum):
    """What became of a project that was found."""

    ACTIVE = "active"
    GONE = "gone"  # no longer found: its project is paused
    RENAMED = "renamed"  # the same project is found under another path: this one is paused
    REFUSED = "refused"  # a name that is not taken, here or at the target
    CLASH = "clash"  # its key, source or target belongs to something else here


@dataclass(frozen=True, slots=True)
class Bound:
    """A project at the source, and what stands for it here."""

    discovery: DiscoveryId
    forge_id: str
    path: str
    state: BoundState
    key: RepoKey | None = None  # None: nothing was made
    project_key: str = ""
    target_url: str | None = None
    made_target: bool = False  # the target's project was made by us
    branches_open: bool = False  # and its protected branches were opened after the first push
    why: str = ""  # of REFUSED, CLASH; of ACTIVE: what is still to be done, and cannot
    run: int = 0  # the last run that found it
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended; ``failure`` where it was cut short: it goes on from there the next time."""

    began_at: float
    ended_at: float
    complete: bool
    found: int = 0
    chosen: int = 0  # of these, by include, exclude, archived
    created: int = 0
    unchanged: int = 0
    renamed: int = 0
    gone: int = 0
    returned: int = 0
    refused: int = 0  # and clashes
    held: int = 0  # removals that wait for a person: too many at once, or seen as another user
    failure: Failure | None = None
    held_why: str = ""  # where another user looked than before


@dataclass(frozen=True, slots=True)
class RunState:
    """A run under way, or cut short: where its listing goes on."""

    number: int
    began_at: float
    cursor: str | None = None
    pages: int = 0
    found: int = 0
    seen_as: Identity | None = None  # who read these pages


@dataclass(frozen=True, slots=True)
class Discovery:
    """A group that is followed."""

    id: DiscoveryId
    spec: DiscoverySpec
    created_by: str
    created_at: float
    enabled: bool = True
    group_id: str = ""  # at the forge; a renamed group is found again by it
    next_at: float | None = None
    runs: int = 0
    failures: int = 0  # runs in a row that failed
    run: RunState | None = None
    last: RunOutcome | None = None
    seen_as: Identity | None = None  # who saw what is here: by the last run that held nothing back


class StepKind(Enum):
    """What a run does about one project."""

    CREATE = "create"
    KEEP = "keep"
    RENAME = "rename"
    PAUSE = "pause"
    RESUME = "resume"
    REFUSE = "refuse"
    CLASH = "clash"
    HOLD = "hold"  # a removal that waits for a person


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan, as people read it in a dry run."""

    kind: StepKind
    path: str
    project_key: str
    source_url: str = ""
    target_url: str | None = None
    makes_target: bool = False
    was: str = ""  # of RENAME: the path before
    why: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would do."""

    steps: tuple[Step, ...]
    more: int = 0  # that have no room in ``steps``
    counts: dict[StepKind, int] = field(default_factory=dict)
