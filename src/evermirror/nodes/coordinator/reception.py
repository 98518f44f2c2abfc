"""Who comes in is led to where it belongs: workers to the fleet, aggregators to their feeds."""

from __future__ import annotations

from evermirror.edge.rpc.transport import Peer
from evermirror.model.access import Role
from evermirror.nodes.coordinator.aggregators.feeds import Feeds
from evermirror.nodes.coordinator.fleet import Fleet


class Reception:
    """What a door is given to serve connections with."""

    def __init__(self, fleet: Fleet, feeds: Feeds) -> None:
        self._fleet = fleet
        self._feeds = feeds

    async def serve(self, peer: Peer) -> None:
        """A connection from its first word to its end."""
        if peer.identity.role is Role.AGGREGATOR:
            await self._feeds.serve(peer)
        else:
            await self._fleet.serve(peer)
