"""How several processes share the tests: what belongs together is one process's own."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

from tests.support.order import scope_of


class FilesTogether(LoadScopeScheduling):
    """xdist's own scheduler, with our word on what belongs together."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
