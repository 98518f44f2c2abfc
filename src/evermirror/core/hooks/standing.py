"""How an instance stands to us while we ask it about many repos: when asking the rest is no use.

One repo's refusal says little: a token may be good for some repos only. Many in a row say much, and a login
that is refused says all at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from evermirror.model.failure import FailureKind

# In a row; one that is allowed in between begins anew.
ENOUGH: Mapping[FailureKind, int] = {
    FailureKind.AUTH_FAILED: 1,
    FailureKind.RATE_LIMITED: 1,  # longer than anybody waits
    FailureKind.NETWORK_TIMEOUT: 3,  # each was tried some times already
    FailureKind.PERMISSION_DENIED: 10,
    FailureKind.UNKNOWN: 10,
    FailureKind.CONFLICT: 10,
    FailureKind.NOT_FOUND: 200,  # GitHub hides what the token may not see
}
MOST = max(ENOUGH.values())


class Standing:
    """Of one instance with one login."""

    def __init__(self) -> None:
        self._refused = 0
        self._by_kind: dict[FailureKind, int] = {}

    def allowed(self) -> None:
        self._refused = 0
        self._by_kind.clear()

    def refused(self, kind: FailureKind) -> bool:
        """Whether that was enough."""
        self._refused += 1
        self._by_kind[kind] = self._by_kind.get(kind, 0) + 1
        return self._refused >= MOST or self._by_kind[kind] >= ENOUGH.get(kind, MOST)
