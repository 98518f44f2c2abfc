"""What lets nodes read from each other: passes that say who a node is, tickets that say what it may read.

Every ticket is sealed in ``Passes.source``, and none without asking whether its bearer may read the repo now.
A node that was shut out (quarantined, retired, its token revoked) gets neither, and relays are told to refuse
what it still has.
"""

from __future__ import annotations

from collections.abc import Callable

from evermirror.edge.relay.seal import PASS_S, TICKET_S, Sealer, SealInvalid, Unsealer
from evermirror.model.access import Role
from evermirror.model.relay import Denial, NodeId, Pass, RelayAddress, Source, Ticket, worker_node_id
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Access
from evermirror.model.worker import Duty, WorkerId, WorkerRecord

RENEW_S = PASS_S / 2  # every node gets a new pass so often: none is ever older than half its life
DENIED_MAX = (
    10_000  # nodes that are remembered as shut out; of more, those whose passes end first are forgotten
)


class Passes:
    """Given out by the coordinator."""

    def __init__(
        self,
        sealer: Sealer,
        utc: Callable[[], float],
        record_of: Callable[[WorkerId], WorkerRecord | None],
        may_read: Callable[[RepoKey, WorkerId], bool],
    ) -> None:
        self._sealer = sealer
        self._unsealer = Unsealer(sealer.public_key)
        self._utc = utc
        self._record_of = record_of
        self._may_read = may_read
        self._denied: dict[NodeId, float] = {}  # when the last pass of each ends
        self._revoked: set[NodeId] = set()  # those of them that never come back
        self.relays: Callable[[], tuple[RelayAddress, ...]] = tuple  # those that can be reached now

    # Who is shut out

    def deny(self, node: NodeId, since: float, *, revoked: bool = False) -> bool:
        """The node gets nothing from here on, and got its last pass at ``since`` (UTC seconds) at the latest.
        A ``revoked`` one is never readmitted. Returns whether it was not shut out before."""
        news = node not in self._denied
        self._denied[node] = max(since + PASS_S, self._denied.get(node, 0.0))
        if revoked:
            self._revoked.add(node)
        if len(self._denied) > DENIED_MAX:
            oldest = min(self._denied, key=self._denied.__getitem__)
            del self._denied[oldest]
            self._revoked.discard(oldest)
        return news

    def is_denied(self, node: NodeId) -> bool:
        return node in self._denied

    def readmit(self, node: NodeId) -> bool:
        """Returns whether it was shut out, and is no more."""
        return node not in self._revoked and self._denied.pop(node, None) is not None

    def denials(self) -> tuple[Denial, ...]:
        """For relays: nodes of which a pass may still be good."""
        now = self._utc()
        return tuple(Denial(node, until) for node, until in self._denied.items() if until > now)

    def _is_shut_out(self, record: WorkerRecord) -> bool:
        return record.duty is Duty.QUARANTINED or worker_node_id(record) in self._denied

    # Passes

    def of_worker(self, worker: WorkerId) -> Access | None:
        """None for one that has retired or is shut out."""
        record = self._record_of(worker)
        if record is None or self._is_shut_out(record):
            return None
        return self._access(worker_node_id(record), Role.WORKER, trusted=record.facts.trusted)

    def of_aggregator(self, node: NodeId) -> Access | None:
        """None for one that is shut out."""
        return None if node in self._denied else self._access(node, Role.AGGREGATOR, self.denials())

    def _access(
        self, node: NodeId, role: Role, denied: tuple[Denial, ...] = (), *, trusted: bool = True
    ) -> Access:
        now = self._utc()
        until = now + PASS_S
        sealed = self._sealer.seal(Pass(node, role, until, trusted))
        key = self._sealer.public_key
        return Access(node, sealed, until, key, self.relays(), denied=denied, told_at=now)

    def read(self, sealed: str) -> Pass:
        """Raises SealInvalid."""
        read = self._unsealer.read_pass(sealed, self._utc())
        if read.node in self._denied:
            raise SealInvalid("the pass was taken back")
        return read

    # Tickets

    def source(self, bearer: WorkerId, holder: WorkerId, key: RepoKey) -> Source | None:
        """None while there is no relay to read through, and where one of the two may not read the repo, has
        retired or is shut out."""
        reads, holds = self._record_of(bearer), self._record_of(holder)
        if reads is None or holds is None or not self.relays():
            return None
        if not all(self._may_read(key, worker) for worker in (bearer, holder)):
            return None
        if self._is_shut_out(reads) or self._is_shut_out(holds):
            return None
        until, trusted = self._utc() + TICKET_S, reads.facts.trusted
        ticket = Ticket(worker_node_id(reads), worker_node_id(holds), key, until, trusted)
        return Source(key, ticket.holder, self._sealer.seal(ticket), trusted=holds.facts.trusted)
