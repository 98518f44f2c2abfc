"""Very many hooks at a steady rate: for random repos, most of which have nothing new, while some are pushed
to and the API is asked beside."""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass

from bench.measure import Line, Sense
from bench.worlds.api_asker import Asker
from bench.worlds.hook_sender import Sent, send_steadily
from bench.worlds.hook_worlds import SECRET, World, until
from tests.support.gitrepo import UpstreamRepo

RATE = 500.0
SEEN_S = 30.0
API_MS = 100.0

_NEWEST = "SELECT coalesce(max(id), 0) FROM tasks"
_LOOKS = "SELECT count(*), coalesce(sum(folded), 0) FROM tasks WHERE \"trigger\" = 'webhook' AND id > ?"
_SYNCS = (
    "SELECT repo, count(*) FROM tasks WHERE \"trigger\" = 'webhook' AND status = 'success' AND id > ?"
    " GROUP BY repo"
)


@dataclass(frozen=True, slots=True)
class Waited:
    """For answers: of one repo in full, of the probe for life, and of a bystander."""

    repo_ms: list[float]
    alive_ms: list[float]
    bystander_ms: list[float]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of it."""

    sent: Sent
    hooks: int  # that were sent
    pushes: int
    missing: int  # pushes that are not in the mirrors
    looks: int
    most_syncs: int  # of a repo, for its one push
    cpu_s: dict[str, float]  # by process
    delayed_s: dict[str, float]  # the same: ready, and without a core
    waited: Waited
    waited_before: Waited  # without any hook


def load(world: World, repos: list[str], pushed: list[UpstreamRepo], seconds: float) -> Loaded:
    """Hooks for all, at random; those that are pushed to get one after the push."""
    urls = _urls(world, repos, pushed, int(RATE * seconds))
    paths = (f"/api/repos/{world.key(pushed[0].name)}", "/healthz")
    with Asker(world.front.port, paths) as quiet:
        time.sleep(min(seconds / 3, 5.0))
    newest = world.asked(_NEWEST)[0][0]
    with Asker(world.front.port, paths) as asker:
        before, delayed = world.cpu_s(), world.delayed_s()
        sent = send_steadily(world.front.port, urls, SECRET, RATE)
        after, delayed_after = world.cpu_s(), world.delayed_s()

    def missing() -> int:
        return sum(world.tip(repo.name) != repo.tip() for repo in pushed)

    with contextlib.suppress(TimeoutError):
        until(lambda: missing() == 0, SEEN_S, 0.5)
    rows, folded = world.asked(_LOOKS, newest)[0]
    return Loaded(
        sent,
        len(urls),
        len(pushed),
        missing(),
        int(str(rows)) + int(str(folded)),
        max((int(str(n)) for _, n in world.asked(_SYNCS, newest)), default=0),
        {name: cpu_s - before[name] for name, cpu_s in after.items()},
        {name: delayed_s - delayed[name] for name, delayed_s in delayed_after.items()},
        Waited(*asker.took_ms),
        Waited(*quiet.took_ms),
    )


def _urls(world: World, repos: list[str], pushed: list[UpstreamRepo], count: int) -> list[str]:
    chance = random.Random(1)
    names = [chance.choice(repos) for _ in range(count)]
    spread = count // (len(pushed) + 1)
    for number, repo in enumerate(pushed):
        repo.commit()
        names[(number + 1) * spread] = repo.name
    return [world.server.url(name) for name in names]


def load_lines(who: str, loaded: Loaded) -> list[Line]:
    sent = loaded.sent
    hooks = sorted(sent.hook_ms)
    taken, count = sent.statuses.get(202, 0), loaded.hooks
    during = f"{RATE:g} hooks/s for {sent.took_s:.0f} s"
    merged = f"{who}, {during}: most syncs of a repo for its one push"
    return [
        _at_least(f"{who}, {during}: taken", "a second", taken / sent.took_s, RATE * 0.98),
        _at_most(f"{who}, {during}: not answered with 202", "", count - taken, 0, "hooks-lost"),
        _at_most(f"{who}, {during}: of {loaded.pushes} pushes not seen", "", loaded.missing, 0, "hooks-lost"),
        _at_most(merged, "", loaded.most_syncs, 1, "hooks-merged"),
        _at_most(f"{who}, {during}: looks for {count:,} hooks", "", loaded.looks),
        _at_most(f"{who}, {during}: a hook's answer, median", "ms wall", share(hooks, 0.5)),
        _at_most(f"{who}, {during}: a hook's answer, 99 %", "ms wall", share(hooks, 0.99)),
        *_waiting_lines(f"{who}, {during}", loaded.waited, loaded.waited_before),
        *(
            _at_most(f"{who}, {during}: CPU of the {name}, a hook", "ms CPU", cpu_s * 1000 / count)
            for name, cpu_s in loaded.cpu_s.items()
        ),
        *(
            _at_most(
                f"{who}, {during}: the {name} waited for a core", "% wall", 100 * delayed_s / sent.took_s
            )
            for name, delayed_s in loaded.delayed_s.items()
        ),
        _at_most(f"{who}, {during}: CPU of who sends, a hook", "ms CPU", sent.cpu_s * 1000 / count),
    ]


def _waiting_lines(during: str, beside: Waited, before: Waited) -> list[Line]:
    """What the API takes beside the hooks, and without them; and a bystander."""
    kinds = (
        ("GET /api/repos/KEY", beside.repo_ms, before.repo_ms),
        ("GET /healthz", beside.alive_ms, before.alive_ms),
        ("a bystander's answer", beside.bystander_ms, before.bystander_ms),
    )
    lines = []
    for what, with_hooks, without in kinds:
        for name, of in (("median", 0.5), ("99 %", 0.99)):
            is_promised = what.startswith("GET") and of > 0.9
            lines.append(
                Line(
                    f"{during}: {what}, {name}",
                    "ms wall",
                    (share(sorted(with_hooks), of),),
                    (share(sorted(without), of),),
                    Sense.AT_MOST,
                    API_MS if is_promised else None,
                    "without hooks",
                    "hooks-api" if is_promised else "",
                )
            )
    return lines


def share(ordered: list[float], of: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * of))]


def _at_most(what: str, unit: str, value: float, goal: float | None = None, promise: str = "") -> Line:
    return Line(what, unit, (value,), sense=Sense.AT_MOST, goal=goal, promise=promise)


def _at_least(what: str, unit: str, value: float, goal: float) -> Line:
    return Line(what, unit, (value,), sense=Sense.AT_LEAST, goal=goal)
