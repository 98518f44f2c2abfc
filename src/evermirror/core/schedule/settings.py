"""What an operator can set about when to look; one frozen value, validated before it comes here."""

from __future__ import annotations

from dataclasses import dataclass

# Of a host's connections this many are never given to transfers, so that polls go on while clones run.
CONNECTIONS_KEPT_FOR_POLLS = 2


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """Rates are polls per second, None is unlimited; gaps are seconds, a max gap of None is off."""

    policy: str = "adaptive"
    slots: int = 10
    min_gap_s: float = 60.0
    max_gap_s: float | None = None
    polls_per_second: float | None = None
    host_rate: float | None = 5.0
    host_connections: int = 8
    polls_in_flight: int = 256

    def __post_init__(self) -> None:
        if self.slots < 1 or self.host_connections < 1 or self.polls_in_flight < 1:
            raise ValueError("slots, host_connections and polls_in_flight must be at least 1")
        if self.min_gap_s < 0 or (self.max_gap_s is not None and self.max_gap_s <= 0):
            raise ValueError("gaps must be positive")
        for rate in (self.polls_per_second, self.host_rate):
            if rate is not None and not rate > 0:
                raise ValueError("rates must be positive")

    @property
    def host_transfers(self) -> int:
        """How many clones and fetches may run against one host."""
        return max(1, self.host_connections - CONNECTIONS_KEPT_FOR_POLLS)

    def places_as(self, other: ScheduleSettings) -> bool:
        """Whether repos stand in the same places under both: only limits differ."""
        mine = (self.policy, self.min_gap_s, self.max_gap_s)
        return mine == (other.policy, other.min_gap_s, other.max_gap_s)
