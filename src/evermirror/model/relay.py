"""How nodes that nobody can reach are read: who a node is, what it may read of whom, where relays are.

A *pass* says who its bearer is, a *ticket* what its bearer may read of whom. The coordinator signs both
(edge/relay/seal.py); whoever knows its public key can tell without asking it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NewType

from evermirror.model.access import Role
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerRecord

NodeId = NewType("NodeId", str)  # "worker/12-1794800000123", "aggregator/3" (its token's number)


def worker_node_id(record: WorkerRecord) -> NodeId:
    """Nobody's ever again: a number is given anew once its worker has retired, so when that one joined is in
    it, too (milliseconds). What one was given, or is remembered of it, never counts for the next."""
    return NodeId(f"worker/{record.id}-{round(record.joined_at * 1000)}")


def aggregator_node_id(token_id: int) -> NodeId:
    return NodeId(f"aggregator/{token_id}")


@dataclass(frozen=True, slots=True)
class RelayAddress:
    """Where a relay listens, and the SHA-256 of its certificate (hex): nothing is trusted on first use."""

    address: str  # host:port
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Pass:
    """Its bearer is this node, until then (UTC seconds). ``trusted``: it may hold private repos."""

    node: NodeId
    role: Role
    until: float
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Ticket:
    """``bearer`` may read this one repo from ``holder``, until then (UTC seconds); a private one only
    if it is ``trusted``."""

    bearer: NodeId
    holder: NodeId
    key: RepoKey
    until: float
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Denial:
    """Relays refuse this node, whatever pass it shows, until then (UTC seconds): by then its last pass has
    ended."""

    node: NodeId
    until: float


@dataclass(frozen=True, slots=True)
class Source:
    """A live holder that a repo may be copied from: ``ticket`` is sealed; empty for an aggregator, whose
    pass is enough. Of a ``trusted`` one the old tips that it keeps are taken, too."""

    key: RepoKey
    holder: NodeId
    ticket: str = field(default="", repr=False)
    trusted: bool = False
