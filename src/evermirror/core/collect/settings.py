"""The bounds of the aggregator's decisions, each with its unit and reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MINUTE = 60.0


class CollectMode(Enum):
    """What is fetched."""

    FULL = "full"  # everything
    PULL_THROUGH = "pull-through"  # what clients ask for; then its changes


class Verify(Enum):
    """Of whose reports upstream is asked."""

    UNTRUSTED = "untrusted"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """What an operator can set; times in seconds."""

    mode: CollectMode = CollectMode.FULL
    verify: Verify = Verify.UNTRUSTED
    quorum: int = 2  # different operators that stand in for upstream while it is away
    fetches: int = 8  # at once
    per_holder: int = 2  # of these, from one holder: it has its own work to do
    looks: int = 4  # at upstream at once, for audits and doubts, beside the fetches
    audits_per_minute: float = 6.0
    queue_max: int = 20_000  # repos held in memory; the others wait in the store
    load_batch: int = 1_000  # rows read from the store at once
    rescan_s: float = 5 * MINUTE  # between two scans of the store for what is not in memory
    class_step_s: float = 10 * MINUTE  # so much longer than the next higher class does a repo wait at most
    waits_max: int = 1_000  # repos that clients wait for at once
    client_wait_s: float = 30.0  # then they are told to come again
    ask_again_s: float = 20.0  # a question for holders that was not answered
    holders_fresh_s: float = 30.0  # so long is known who holds a repo
    retry_first_s: float = 5.0  # doubles with each failure in a row
    retry_last_s: float = 60 * MINUTE
    clock_slack_s: float = 5 * MINUTE  # by which a worker's clock may be off; the coordinator cuts off more
    doubt_wait_s: float = 6 * MINUTE  # between two rounds of a doubt: longer than the slack
    doubt_rounds: int = 8  # then audits have to find it again
    strikes: int = 2  # an upstream that went there and back once accuses nobody
    disk_high: float = 0.85  # used share above which nothing new is cloned
    disk_low: float = 0.80  # down to which pull-through mode evicts
    evict_batch: int = 64  # repos evicted at once

    def __post_init__(self) -> None:
        if self.doubt_wait_s <= self.clock_slack_s:
            raise ValueError("doubt_wait_s must be longer than clock_slack_s: no report would ever count")
        if not 0.0 < self.disk_low < self.disk_high <= 1.0:
            raise ValueError(f"disk_low {self.disk_low} must be below disk_high {self.disk_high}")
        if min(self.fetches, self.per_holder, self.looks, self.quorum, self.strikes, self.queue_max) < 1:
            raise ValueError("fetches, per_holder, looks, quorum, strikes and queue_max are at least 1")
