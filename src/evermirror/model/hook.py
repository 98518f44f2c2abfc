"""Hooks of forges: what one tells, what is known of a repo's, and what is registered at the forge.

A hook is a hint. It causes a look at a repo of the catalog; nothing else that it says is believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from evermirror.model.forge import Forge
from evermirror.model.repo import RepoKey


class HookKind(Enum):
    """What a hook is about, as far as a mirror cares."""

    MOVED = "moved"  # push, create, delete, tag: refs may have moved
    RENAMED = "renamed"  # the repository has another name now
    PING = "ping"  # the forge tries whether we answer
    OTHER = "other"  # nothing that a mirror cares about


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook as its body tells it. ``urls`` are addresses of the repository, best first; ``old_urls`` those
    that it had before it was renamed. ``delivery`` is the forge's number of this hook, the same when it is
    sent again; empty where the forge gives none."""

    forge: Forge
    kind: HookKind
    event: str  # the forge's own word
    delivery: str = ""
    urls: tuple[str, ...] = ()
    old_urls: tuple[str, ...] = ()


class HookEnd(Enum):
    """What became of a hook that was signed as it should be."""

    ACCEPTED = "accepted"  # the repo is looked at
    MERGED = "merged"  # a look that is still to come is enough, or this very hook was here before
    ADDED = "added"  # the repo was not in the catalog, and is now
    IGNORED = "ignored"  # ``reason`` says why
    PONG = "pong"


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """``repo``: the one that the hook was taken to be about."""

    end: HookEnd
    repo: RepoKey | None = None
    reason: str = ""


class HookTrust(Enum):
    """How far a repo's hooks can be relied on."""

    UNPROVEN = "unproven"
    RELIABLE = "reliable"  # every change of late was told: polls are rarer
    SILENT = "silent"  # polls found changes that no hook told: a person should look


@dataclass(frozen=True, slots=True)
class HookMemory:
    """What is known of one repo's hooks; core/hooks/trust.py says what follows. Times are UTC seconds."""

    key: RepoKey
    trust: HookTrust = HookTrust.UNPROVEN
    since: float = 0.0  # when ``trust`` became what it is
    received: int = 0  # hooks ever
    last_at: float = 0.0  # of the latest hook
    told: int = 0  # changes in a row that a hook told, up to now
    missed: int = 0  # changes in a row that no hook told, up to now
    needed: int = 0  # how many must be told in a row; 0: the usual number
    told_total: int = 0
    missed_total: int = 0


class RegistrationState(Enum):
    """Of our hook at the forge, as last seen."""

    OK = "ok"
    MISSING = "missing"
    DRIFTED = "drifted"  # there, and not as we want it: switched off, other events, another address
    REFUSED = "refused"  # the forge refuses us: ``problem`` has its words
    REMOVED = "removed"  # by us


@dataclass(frozen=True, slots=True)
class HookRegistration:
    """Our hook at a repo's forge. Nobody can read a hook's secret back: that it is still ours shows when it
    is used."""

    key: RepoKey
    forge: Forge
    state: RegistrationState
    hook_id: str = ""  # the forge's
    problem: str = ""
    checked_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ForgeHook:
    """A hook as a forge's API shows it."""

    id: str
    url: str
    active: bool
    events: frozenset[str]  # in the forge's own words
    json: bool = True  # its bodies are JSON
    checks_tls: bool = True
    trouble: str = ""  # what the forge says about its latest deliveries, where it does


@dataclass(frozen=True, slots=True)
class WantedHook:
    """A hook as it should be."""

    url: str
    secret: str
    events: frozenset[str]
