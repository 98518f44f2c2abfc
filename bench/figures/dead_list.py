"""A new list, 30 % of it dead in six ways: until all that lives is mirrored, against the live ones alone.

For real, both are whole: ``evermirror up --catalog`` on an empty folder, from its start until the last live
repository is here. Every host is an address of its own, with the limits that hosts have by default. A list of
a hundred thousand is simulated: the real machine and schedule in virtual time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from bench.measure import Bench, Context, Line, Sense
from evermirror.core.schedule.settings import ScheduleSettings
from tests.support.mixed_upstreams import Dead, MixedUpstreams, Url
from tests.support.sim.first_clones import FirstMirroring, mixed_list
from tests.support.up_process import up

DEAD = 0.3
SEED = 19
HOSTS = 100  # that live ones are spread over: the usual limits of a host are not what is measured
WITHIN_S = 900.0
RARELY = ScheduleSettings(min_gap_s=86_400.0)  # polls of what is mirrored already are not what is simulated


def _mirrored_s(world: MixedUpstreams, urls: Sequence[Url], folder: Path) -> float:
    """From the start of the process until everything that lives is here."""
    folder.mkdir()
    catalog = world.write_list(urls, folder / "urls.txt")
    wanted = {url.key for url in urls if url.alive}
    began = time.monotonic()
    with up(folder, {**world.settings, "EVERMIRROR_LOG__LEVEL": "warning"}, catalog) as node:
        node.until(lambda: wanted <= node.mirrors(), WITHIN_S, look_s=0.2)
        return time.monotonic() - began


def _simulated(n: int) -> Line:
    upstreams = mixed_list(n, DEAD, HOSTS, Random(SEED))
    living = [each for each in upstreams if each.death is None]
    ours, alone = (
        FirstMirroring(some, schedule=RARELY).run(most_s=7 * 86_400.0) for some in (upstreams, living)
    )
    return Line(
        f"{n:,} URLs, as many of them dead, simulated: what lives mirrored",
        "s virtual",
        (ours,),
        (alone,),
        sense=Sense.TIMES_AS_MUCH,
        goal=1.3,
        promise="dead-list",
    )


def _run(context: Context) -> list[Line]:
    n, rounds = context.size(2_000, 60), context.rounds or 1
    dead = round(n * DEAD)
    ours, alone = [], []
    with MixedUpstreams(
        context.folder / "upstreams", hosts=HOSTS, huge_bytes=context.size(200, 2) << 20
    ) as world:
        for i in range(rounds):
            urls = world.mixed(n - dead, dead, SEED + i)
            living = [url for url in urls if url.alive]
            alone.append(_mirrored_s(world, living, context.folder / f"alone-{i}"))
            ours.append(_mirrored_s(world, urls, context.folder / f"mixed-{i}"))
    return [
        Line(
            f"{n - dead:,} live and {dead:,} dead URLs, in {len(Dead)} ways, shuffled: what lives mirrored",
            "s wall",
            tuple(ours),
            tuple(alone),
            sense=Sense.TIMES_AS_MUCH,
            goal=1.3,
            promise="dead-list",
        ),
        _simulated(context.size(100_000, 1_000)),
    ]


BENCH = Bench(
    name="dead-list",
    measures=f"a first mirroring of a list of which {DEAD:.0%} is dead: gone, refused, hanging, redirecting, "
    "malformed, TLS",
    alternative="the live ones of the same list alone",
    run=_run,
    order=70,
    takes_s=120,
)
