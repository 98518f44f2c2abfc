"""Why something did not work: one closed set of kinds that all policy is written against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

OURS = "ours"  # in a failure's context: the other end has no part in it; its value says what has
HOST_WIDE = "host_wide"  # in a failure's context: no repo of the host can be reached; its value says why
SOURCE_URL = "source_url"  # in a failure's context: where it was to be read from, and where to be put
TARGET_URL = "target_url"
HTTP_STATUS = "http_status"  # in a failure's context: of the answer, and how its body began
HTTP_BODY = "http_body"
CREDENTIAL = "credential"  # one that a node's settings lack
VISIBILITY = "visibility"  # a target is more visible than its source: nothing is pushed there
REFUSED_REFS = "refused_refs"  # how many refs a target refuses, where it takes all others
MISSING_COMMIT = "missing_commit"  # one that was asked for, and upstream does not have (yet)


class FailureKind(Enum):
    """The edge turns every exception, exit code and stderr into one of these."""

    NETWORK_TIMEOUT = "NETWORK_TIMEOUT"  # time-out, reset, refused, DNS, 5xx
    RATE_LIMITED = "RATE_LIMITED"  # 429, rate-limit 403: the host waits
    AUTH_FAILED = "AUTH_FAILED"  # credentials refused
    NOT_FOUND = "NOT_FOUND"  # gone, or an anonymous 401: gone or private
    PERMISSION_DENIED = "PERMISSION_DENIED"  # a target refuses
    CONFLICT = "CONFLICT"  # a guard held, lease failed, unrelated history
    DISK_FULL = "DISK_FULL"  # here
    UNKNOWN = "UNKNOWN"  # the rest, with full context


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure with what a person needs to understand it. Secrets were removed before it was made."""

    kind: FailureKind
    message: str  # git's or the server's own words, one line where possible
    hint: str = ""  # what to do next, where we know
    retry_after_s: float | None = None  # what the host asked for (RATE_LIMITED)
    git_command: str = ""
    stdout: str = ""  # bounded by the edge
    stderr: str = ""  # bounded by the edge
    corrupt: bool = False  # git's own evidence that the mirror here is damaged
    context: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def ours(self) -> bool:
        """The trouble is this node's own: it counts against no source and no target."""
        return OURS in self.context

    @property
    def exposes(self) -> bool:
        """A push would have shown to more people what the source shows to fewer."""
        return VISIBILITY in self.context

    @property
    def of_refs(self) -> bool:
        """A target refuses some refs and takes the others: these refs wait, and the target is not paused."""
        return REFUSED_REFS in self.context

    @property
    def host_wide(self) -> bool:
        """It is about the host, whichever repo was asked for, and mostly about all of them."""
        return HOST_WIDE in self.context


def ls_remote_command(url: str) -> str:
    """What a person runs to see what a look at ``url`` sees: looks of ours start no git."""
    return f"git ls-remote --symref {url} HEAD 'refs/heads/*' 'refs/tags/*'"


def fetch_command(url: str) -> str:
    """The same of a sync."""
    return f"git fetch --prune {url} '+refs/heads/*:refs/heads/*' '+refs/tags/*:refs/tags/*'"


class FailureError(Exception):
    """Carries a ``Failure`` through the edge's call stack; never leaves it otherwise."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind.value}: {failure.message}")
        self.failure = failure
