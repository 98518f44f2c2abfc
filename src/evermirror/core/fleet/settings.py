"""The bounds of the fleet's decisions, each with its unit and reason."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE = 60.0
OUTBOX_LEAST = 16  # commands; some room is always left for those that come singly (draft.py)


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """What an operator can set; defaults are those of the specification."""

    replicas: int = 1  # workers that hold each repo
    points: int = 200  # on the ring for weight 1; balance max/mean at 1,000 workers is then 1.27 unbounded
    load_bound: float = 1.1  # busiest against the mean, per weight; beyond it repos move away
    heartbeat_s: float = 5.0
    max_missed: int = 4  # rounds missed until a worker is suspected
    grace_s: float = 10 * MINUTE  # from suspicion until its repos move
    warm_up_s: float = 10 * MINUTE  # before the first placement of an empty fleet
    min_workers: int | None = None  # so many end the warm-up early
    brake_share: float = 0.5  # more of the fleet suspect at once is our own network, not their death
    rebalance_gap_s: float = 10.0  # joins and losses within it are one change of the placement
    moves_first: int = 8  # clones asked of a worker at first; doubles while they succeed (slow start)
    moves_per_worker: int = 256  # clones asked of one worker and not yet done
    moves_total: int = 20_000  # the same for the whole fleet: upstreams are shared
    clone_patience_s: float = 10 * MINUTE  # a worker may show no progress in first clones, at least
    nudge_gap_s: float = 10 * MINUTE  # between two requests to bring differing copies together
    compare_every_s: float = 30 * MINUTE  # full comparison with a worker, by digests of ranges
    outbox_max: int = 1024  # commands sent to one worker and not acknowledged
    tick_s: float = 1.0  # precision of all timeouts
    host_rate: float | None = None  # polls a second of one upstream host, by all workers; None: not split
    polls_per_second: float | None = None  # the same over all hosts
    min_gap_s: float = MINUTE  # no worker polls a repo more often: it bounds what few repos can ask for

    @property
    def redial_s(self) -> float:
        """The longest pause of a worker that lost us: it has three tries before it counts as down."""
        return min(MINUTE, (self.max_missed * self.heartbeat_s + self.grace_s) / 3)

    def __post_init__(self) -> None:
        if self.outbox_max < OUTBOX_LEAST:
            raise ValueError(f"outbox_max is {self.outbox_max}, at least {OUTBOX_LEAST} are needed")
        for rate in (self.host_rate, self.polls_per_second):
            if rate is not None and not rate > 0:
                raise ValueError(f"a rate is {rate}: it must be positive")
        if self.load_bound <= 1.0:
            raise ValueError(f"load_bound is {self.load_bound}: everybody would be over it")
