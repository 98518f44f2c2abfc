"""Settings of what git clients may use of a node that serves mirrors."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from evermirror.config.section import Section
from evermirror.config.values import Count, Duration, Size, TextList

FILTERS = ("blob:none", "blob:limit", "tree", "object:type", "sparse:oid", "combine")  # git's own names


def _check_filters(filters: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [f for f in filters if f not in FILTERS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(FILTERS)}")
    return filters


class Serve(Section):
    """Mirrors for git clients."""

    packs: Count = Field(default=16, ge=1, le=10_000, description="Git processes that make packs at a time.")
    per_client: Count = Field(
        default=8,
        ge=1,
        le=10_000,
        description="Packs on their way to one address at a time. A proxy in front is one, unless trusted.",
    )
    requests_per_client: Count = Field(
        default=64,
        ge=1,
        le=10_000,
        description="Git requests of one address, or of one token there, at a time; more get 429.",
    )
    queue: Count = Field(default=64, ge=0, le=10_000, description="Clients that may wait for their turn.")
    queue_wait: Duration = Field(default=10.0, ge=0, description="So long; then 503 with Retry-After.")
    pace: Size = Field(
        default=64_000,
        ge=0,
        description="Bytes a second that a client must take while others wait for its turn to end; it rises"
        " with time. 0: none.",
    )
    silence: Duration = Field(
        default=300.0, gt=0, description="A client that neither sends nor takes anything is left."
    )
    filters: Annotated[TextList, AfterValidator(_check_filters)] = Field(
        default=("blob:none", "blob:limit", "tree", "object:type", "combine"),
        description="For partial clones; sparse:oid is possible too, and costly. A client that asks for "
        "another filter gets a complete clone.",
    )
    cache_bytes: Size = Field(
        default=2_000_000_000, ge=0, description="Packs of fresh clones kept in data.dir/cache; 0: none."
    )
