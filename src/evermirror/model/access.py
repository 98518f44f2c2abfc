"""Who may do what: the roles of tokens, and what is remembered of a token (never the token itself)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

TOKEN_PREFIX = "em_"  # noqa: S105 - lets secret scanners and people recognise a token
TOKEN_BYTES = 32  # of chance in a token
_TOKEN_FORM = re.compile(TOKEN_PREFIX + r"[A-Za-z0-9_-]{43}")  # 32 bytes in base64 without padding


def has_token_form(text: str) -> bool:
    """Whether ``text`` is written as our tokens are. Anything else need not be looked up anywhere."""
    return _TOKEN_FORM.fullmatch(text) is not None


class Role(Enum):
    """What the bearer of a token may do. The first four are people's, the last two are nodes'."""

    ADMIN = "admin"
    OPERATOR = "operator"
    SUBMITTER = "submitter"
    READER = "reader"
    WORKER = "worker"
    AGGREGATOR = "aggregator"

    @property
    def of_node(self) -> bool:
        return self in (Role.WORKER, Role.AGGREGATOR)


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """What the worker of a token may have at most, unless it is trusted. None: the default, which is
    model/worker.py's."""

    weight: float | None = None  # share of the load
    capacity: int | None = None  # repos that it holds


NO_LIMITS = TokenLimits()  # its token says nothing


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token, known by its hash only. Times are UTC seconds since the epoch."""

    id: int
    name: str
    role: Role
    trusted: bool  # may hold private repos and credentials; its digests count as verified copies
    created_at: float
    last_used_at: float | None = None
    revoked_at: float | None = None
    operator: str = ""  # who runs the node that shows it; of one operator only one counts in a quorum
    limits: TokenLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Who changed what."""

    id: int
    at: float
    actor: str
    action: str
    subject: str
    detail: object = None  # JSON
