"""What must hold in every run of the simulated aggregator, whatever happens: checked at every decision."""

from __future__ import annotations

from collections.abc import Mapping

from evermirror.core.collect.decisions import Accuse, Decision, Fetch, Look, Serve, TellClients
from evermirror.core.collect.settings import CollectSettings
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey
from tests.support.sim.aggregation.worker import Upstream, Worker

ANSWER_SLACK_S = 3.0  # ticks come every second


class Broken(AssertionError):
    """A promise was broken; the message says which."""


class Checks:
    """Knows the truth about everybody."""

    def __init__(
        self,
        settings: CollectSettings,
        upstreams: Mapping[RepoKey, Upstream],
        workers: Mapping[NodeId, Worker],
    ) -> None:
        self._settings = settings
        self._upstreams = upstreams
        self._workers = workers
        self._running: dict[RepoKey, Fetch | Look] = {}
        self._waiting: dict[RepoKey, float] = {}
        self.served = 0
        self.accused: set[NodeId] = set()

    def decided(self, decision: Decision, now: float) -> None:
        for action in decision.actions:
            match action:
                case Fetch() | Look():
                    self._started(action)
                case Serve():
                    self.served += 1
                    if action.here.digest not in self._upstreams[action.key].history:
                        raise Broken(f"{action.key} is served as upstream never had it: {action.here}")
                case Accuse():
                    self.accused.add(action.node)
                    if not self._workers[action.node].lies:
                        raise Broken(f"{action.node} is honest: {action.reason}; {action.evidence}")
                case TellClients():
                    if self._waiting.pop(action.key, None) is None:
                        raise Broken(f"nobody waits for {action.key}")
                case _:
                    pass
        for key, since in self._waiting.items():
            if now - since > self._settings.client_wait_s + ANSWER_SLACK_S:
                raise Broken(f"a client waits for {key} since {since}, and it is {now}")

    def _started(self, order: Fetch | Look) -> None:
        if order.key in self._running:
            raise Broken(f"two attempts for {order.key}: {self._running[order.key]} and {order}")
        self._running[order.key] = order
        fetches = [o for o in self._running.values() if isinstance(o, Fetch)]
        if len(fetches) > self._settings.fetches:
            raise Broken(f"{len(fetches)} fetches at once")
        if len(self._running) - len(fetches) > self._settings.looks:
            raise Broken(f"{len(self._running) - len(fetches)} looks at once")
        if isinstance(order, Fetch):
            node = order.holder.node
            if sum(o.holder.node == node for o in fetches) > self._settings.per_holder:
                raise Broken(f"too many fetches from {node}")
            if node in self.accused:
                raise Broken(f"{node} was accused, and is fetched from")

    def ended(self, key: RepoKey) -> None:
        self._running.pop(key, None)

    def waits(self, key: RepoKey, now: float) -> None:
        self._waiting.setdefault(key, now)

    def crashed(self) -> None:
        """Who waited and what ran ended with the process."""
        self._running.clear()
        self._waiting.clear()
