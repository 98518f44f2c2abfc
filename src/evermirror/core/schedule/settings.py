"""What an operator can set about when to look; one frozen value, validated before it comes here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from evermirror.model.messages import ApplySettings
from evermirror.model.repo import Host

# Of a host's connections this many are never given to transfers, so that polls go on while clones run.
CONNECTIONS_KEPT_FOR_POLLS = 2
RATE_LEAST = 1e-6  # a second: a rate that is told and is none, or less, is taken for this


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
    host_rates: Mapping[Host, float] = field(default_factory=dict)  # where it is not ``host_rate``

    def __post_init__(self) -> None:
        if self.slots < 1 or self.host_connections < 1 or self.polls_in_flight < 1:
            raise ValueError("slots, host_connections and polls_in_flight must be at least 1")
        if self.min_gap_s < 0 or (self.max_gap_s is not None and self.max_gap_s <= 0):
            raise ValueError("gaps must be positive")
        for rate in (self.polls_per_second, self.host_rate, *self.host_rates.values()):
            if rate is not None and not rate > 0:
                raise ValueError("rates must be positive")

    @property
    def host_transfers(self) -> int:
        """How many clones and fetches may run against one host."""
        return max(1, self.host_connections - CONNECTIONS_KEPT_FOR_POLLS)

    def rate_of(self, host: Host) -> float | None:
        """Polls a second of this host."""
        return self.host_rates.get(host, self.host_rate)

    def within(self, limits: ApplySettings | None) -> ScheduleSettings:
        """The same within what the coordinator allows: these are the most that this worker does at all."""
        if limits is None:
            return self
        return replace(
            self,
            polls_per_second=_smaller(self.polls_per_second, limits.polls_per_second),
            host_rate=_smaller(self.host_rate, limits.host_rate),
            slots=self.slots if limits.slots is None else max(min(self.slots, limits.slots), 1),
            host_rates={
                host: told
                for host, rate in limits.host_rates
                if (told := _smaller(self.host_rate, rate)) is not None
            },
        )

    def places_as(self, other: ScheduleSettings) -> bool:
        """Whether repos stand in the same places under both: only limits differ."""
        mine = (self.policy, self.min_gap_s, self.max_gap_s)
        return mine == (other.policy, other.min_gap_s, other.max_gap_s)


def _smaller(own: float | None, told: float | None) -> float | None:
    if told is None:
        return own
    told = max(told, RATE_LEAST)
    return told if own is None else min(own, told)
