"""How the fleet's rates are split, as `/api/fleet` shows it: each worker's shares, and what is in use.

Names of hosts may tell of private repos, so the public sees none of it.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from evermirror.faces.api.text import iso_or_none, printable
from evermirror.model.messages import ApplySettings
from evermirror.nodes.coordinator.fleet_view import RateInUse

SHARES_MAX = 10  # of each worker in the list of all; one worker in full has at most 256


class ShareView(BaseModel):
    """What a worker may ask of one upstream host."""

    host: str
    rate: float = Field(description="Polls a second")


class LimitsView(BaseModel):
    """A worker's shares of the fleet's rates; its own settings hold besides."""

    polls_per_second: float | None = Field(description="Over all hosts; null: no bound")
    host_rate: float | None = Field(description="Of each host that has no share of its own; null: no bound")
    hosts: list[ShareView] = Field(
        description=f"Hosts with a share of their own: the {SHARES_MAX} largest; of one worker in full, all"
    )
    hosts_total: int = Field(description="How many those are in all")
    told_at: str | None


class RateView(BaseModel):
    """One rate of the whole fleet that is split over its workers."""

    host: str | None = Field(description="Null: over all hosts")
    rate: float = Field(description="Polls a second that the coordinator's settings allow")
    in_use: float = Field(description="The most that workers which are not down may be using now")


def limits_view(limits: ApplySettings | None, most: int = SHARES_MAX) -> LimitsView | None:
    """None for a worker that was told nothing: it has its own settings."""
    if limits is None:
        return None
    largest = sorted(limits.host_rates, key=lambda share: (-share[1], share[0]))[:most]
    return LimitsView(
        polls_per_second=limits.polls_per_second,
        host_rate=limits.host_rate,
        hosts=[ShareView(host=printable(host), rate=rate) for host, rate in largest],
        hosts_total=len(limits.host_rates),
        told_at=iso_or_none(limits.told_at),
    )


def rate_view(one: RateInUse) -> RateView:
    host = None if one.host is None else printable(one.host)
    return RateView(host=host, rate=one.rate, in_use=one.in_use)
