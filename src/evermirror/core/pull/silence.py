"""Target hosts that do not answer: a forge that is down for an hour must not pause all that is pushed to it.

Rules
- A target host is *silent* once SILENT_TARGETS different targets there failed by the network and none
  succeeded since. Failures there then count against no target and no project, until one succeeds.
- Memory is bounded: a few targets for each host that fails, HOSTS_MAX hosts.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from evermirror.model.push import TargetId
from evermirror.model.repo import RepoKey

SILENT_TARGETS = 3
HOSTS_MAX = 1_000


def host_of(url: str) -> str:
    """The host of a target's URL, as its spelling has it: ``https://host/x``, ``ssh://git@host/x``,
    ``git@host:x``."""
    if "://" in url:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    return url.partition(":")[0].rpartition("@")[2].lower()


class Silence:
    """``failed`` and ``succeeded`` are its doors."""

    __slots__ = ("_hosts",)

    def __init__(self) -> None:
        self._hosts: dict[str, set[tuple[RepoKey, TargetId]]] = {}

    def failed(self, url: str, target: tuple[RepoKey, TargetId]) -> bool:
        """By the network. Returns whether that is the host's doing and not the target's."""
        host = host_of(url)
        failing = self._hosts.setdefault(host, set())
        if len(failing) < SILENT_TARGETS:
            failing.add(target)
        if len(self._hosts) > HOSTS_MAX:
            del self._hosts[next(iter(self._hosts))]
        return len(failing) >= SILENT_TARGETS

    def succeeded(self, url: str) -> None:
        """It answered, whatever it said."""
        self._hosts.pop(host_of(url), None)
