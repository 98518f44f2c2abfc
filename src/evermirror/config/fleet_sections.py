"""Settings of a process as the aggregator of a fleet, and of the relay that it runs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from evermirror.config.section import Section, SettingError
from evermirror.config.values import (
    Count,
    Duration,
    Flag,
    Kind,
    MaybeAddress,
    MaybeHttpUrl,
    MaybeText,
    Number,
    Secret,
    split_host_port,
)


class Aggregator(Section):
    """This process as the aggregator of a fleet."""

    name: MaybeText = Field(
        default=None, min_length=1, max_length=100, description="none: the name of its token."
    )
    token: Secret = Field(default=None, description="From `evermirror token create --role aggregator`.")
    coordinator: MaybeAddress = Field(default=None, description="gRPC address of the coordinator.")
    coordinator_url: MaybeHttpUrl = Field(
        default=None,
        description="HTTP address of the coordinator, for the API; none: the one that it tells itself.",
    )
    public_url: MaybeHttpUrl = Field(
        default=None,
        description="Where people clone from it, as the registry of nodes shows it; none: where it listens.",
    )
    mode: Annotated[Literal["full", "pull-through"], Kind.CHOICE] = Field(
        default="full",
        description="full: holds every repository. pull-through: those that somebody asked for.",
    )
    verify: Annotated[Literal["untrusted", "all"], Kind.CHOICE] = Field(
        default="untrusted", description="Whose refs are compared with upstream's own before they are served."
    )
    quorum: Count = Field(
        default=2,
        ge=1,
        le=16,
        description="Operators whose workers must agree to stand in for an upstream that is away.",
    )
    fetches: Count = Field(default=8, ge=1, le=1000, description="Fetches from workers at the same time,")
    fetches_per_holder: Count = Field(default=2, ge=1, le=64, description="of these from one worker.")
    audits_per_minute: Number = Field(
        default=6.0,
        ge=0,
        le=600,
        description="Repositories that only untrusted workers hold, compared with upstream now and then.",
    )
    wait: Duration = Field(
        default=60.0,
        ge=0,
        description="How long a client waits for a repository that is not here yet; then 503.",
    )


class Relay(Section):
    """The relay in this process: workers open lines to it, and are read through them."""

    enabled: Flag = Field(default=True, description="An aggregator without one reads through others'.")
    in_coordinator: Flag = Field(
        default=False, description="A coordinator runs one too: where only that has a public address."
    )
    listen: MaybeAddress = Field(
        default=None, description="none: the host of server.listen, at a port that the system chooses."
    )
    address: MaybeAddress = Field(
        default=None, description="As workers reach it from outside; none: where it listens."
    )
    lines: Count = Field(
        default=8, ge=1, le=64, description="Lines of this process, as a worker, to each relay."
    )

    @model_validator(mode="after")
    def _address_has_a_port(self) -> Self:
        if self.address is not None and split_host_port(self.address)[1] == 0:
            raise SettingError("address", "has the port 0, which nobody can reach")
        return self
