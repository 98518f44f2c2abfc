"""What lets nodes read from each other: passes that say who a node is, tickets that say what it may read."""

from __future__ import annotations

from collections.abc import Callable

from evermirror.edge.relay.seal import PASS_S, TICKET_S, Sealer, Unsealer
from evermirror.model.access import Role
from evermirror.model.relay import NodeId, Pass, RelayAddress, Source, Ticket, worker_node_id
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Access
from evermirror.model.worker import WorkerId, WorkerRecord

RENEW_S = PASS_S / 2  # every node gets a new pass so often: none is ever older than half its life


class Passes:
    """Given out by the coordinator."""

    def __init__(
        self,
        sealer: Sealer,
        utc: Callable[[], float],
        record_of: Callable[[WorkerId], WorkerRecord | None],
        trusted: Callable[[WorkerId], bool] = lambda _: False,
    ) -> None:
        self._sealer = sealer
        self._unsealer = Unsealer(sealer.public_key)
        self._utc = utc
        self._record_of = record_of
        self._trusted = trusted
        self.relays: Callable[[], tuple[RelayAddress, ...]] = tuple  # those that can be reached now

    def access(self, node: NodeId, role: Role) -> Access:
        now = self._utc()
        until = now + PASS_S
        sealed = self._sealer.seal(Pass(node, role, until))
        return Access(node, sealed, until, self._sealer.public_key, self.relays(), told_at=now)

    def read(self, sealed: str) -> Pass:
        """Raises SealInvalid."""
        return self._unsealer.read_pass(sealed, self._utc())

    def of_worker(self, worker: WorkerId) -> Access | None:
        """None for one that has retired."""
        record = self._record_of(worker)
        return None if record is None else self.access(worker_node_id(record), Role.WORKER)

    def source(self, bearer: WorkerId, holder: WorkerId, key: RepoKey) -> Source | None:
        """None while there is no relay to read through, and where one of them has retired."""
        reads, holds = self._record_of(bearer), self._record_of(holder)
        if reads is None or holds is None or not self.relays():
            return None
        ticket = Ticket(worker_node_id(reads), worker_node_id(holds), key, self._utc() + TICKET_S)
        return Source(key, ticket.holder, self._sealer.seal(ticket), trusted=self._trusted(holder))
