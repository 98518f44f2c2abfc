"""Every figure that was promised: in the issues' "Figures to reach", and in the specification's performance.

A line of a benchmark names the promises it is about by their keys. A goal is told in the sense of its lines
(a clone at 0.9 times the speed takes 1.11 times as long); a promise without one is a comparison or a curve
that is to be shown, and may be judged by a goal of the line's own.
"""

from __future__ import annotations

from dataclasses import dataclass

SPEC = "6-performance"


@dataclass(frozen=True, slots=True)
class Promise:
    """One promised figure, who promised it, and which benchmark measures it."""

    key: str
    bench: str
    source: str
    says: str
    goal: float | None = None


POLL = (
    Promise(
        "poll",
        "poll",
        f"issue 2; {SPEC}, Poll",
        "an unchanged poll over TLS, end to end: at least 100 times less CPU than git ls-remote",
        100,
    ),
    Promise(
        "poll-next",
        "poll",
        f"{SPEC}, Poll; issue 11 (next step)",
        "an unchanged poll, end to end: at least 300 times less CPU than git ls-remote",
        300,
    ),
    Promise("poll-process", "poll", "issue 2", "an unchanged poll starts no process", 0),
    Promise("poll-memory", "poll", f"{SPEC}, Poll", "memory stays flat while polling"),
    Promise(
        "poll-million",
        "poll",
        f"{SPEC}, Poll",
        "a million polls an hour cost at most a tenth of a core",
        10,
    ),
    Promise("poll-clients", "poll", "issue 11", "polls by dulwich, pygit2 and others, side by side"),
)

SYNC = (
    Promise(
        "sync",
        "sync",
        f"issue 2; {SPEC}, Serve and sync",
        "a changed repo synced in at most 1.3 times the CPU and wall time of a bare git fetch",
        1.3,
    ),
    Promise(
        "round",
        "round",
        f"issue 2; {SPEC}, Serve and sync",
        "a round over 2,000 repos, 5 % changed: at least 10 times less CPU than a git remote update loop",
        10,
    ),
    Promise(
        "round-next",
        "round",
        "issue 11 (next step)",
        "that round: at least 20 times less CPU than the loop",
        20,
    ),
    Promise("round-grok", "round", f"{SPEC}, Serve and sync", "that round: less CPU than grok-pull", 1),
    Promise(
        "dead-list",
        "dead-list",
        "issue 19",
        "a list, 30 % dead in six ways: what lives is mirrored in at most 1.3 times its time alone",
        1.3,
    ),
    Promise("idle-memory", "idle", "issue 2", "10,000 repos in one process: at most 250 MB at rest", 250),
    Promise(
        "idle-start", "idle", "issue 2", "10,000 repos in one process: polling within 5 s of the start", 5
    ),
    Promise("version", "command", "issue 2", "evermirror --version in at most 0.3 s", 0.3),
)

FRESHNESS = (
    Promise(
        "freshness",
        "freshness",
        "issue 2",
        "mean delay of adaptive at most 0.93 of cbrt-age's on real histories, at 10 min, 1 h and 6 h",
        0.93,
    ),
    Promise(
        "freshness-next",
        "freshness",
        "issue 11 (next step)",
        "mean delay of adaptive at most 0.88 of cbrt-age's on real histories",
        0.88,
    ),
    Promise(
        "freshness-quiet",
        "freshness",
        "issue 11 (next step)",
        "the quiet half waits at most 1.1 times as long as with adaptive before that step",
        1.1,
    ),
    Promise(
        "freshness-spec",
        "freshness",
        f"{SPEC}, Freshness",
        "mean delay at a poll per repo and hour on real histories: at most 13.9 min",
        13.9,
    ),
    Promise(
        "freshness-rules",
        "freshness",
        "issue 11",
        "the rules of others and the oracles at the same budget of polls, side by side",
    ),
    Promise(
        "replay",
        "replay",
        "issue 11",
        "500 real upstreams pushed to by a replayed history: the delay from push to clonable, shown",
    ),
)

SERVE = (
    Promise(
        "clone-speed",
        "clone",
        f"issue 3; {SPEC}, Serve and sync",
        "a 300 MB clone at 0.9 times the speed of nginx with git http-backend, or better",
        1.11,
    ),
    Promise("clone-memory", "clone", "issue 3", "the server's memory stays flat during such clones"),
    Promise(
        "clone-hot",
        "clone",
        f"issue 3; {SPEC}, Serve and sync",
        "a clone of a hot repo costs at most a third of nginx with git http-backend's CPU",
        1 / 3,
    ),
    Promise("keep", "keep", "issue 3", "a force-push costs at most 1.1 times a normal update", 1.1),
    Promise(
        "relay-speed",
        "relay",
        f"issue 6; {SPEC}, Relay",
        "a 300 MB clone through the relay at 0.85 times the speed of a direct one, or better",
        1.18,
    ),
    Promise(
        "relay-cpu",
        "relay",
        f"issue 6; {SPEC}, Relay",
        "both ends of the relay together: at most 5 CPU-s/GB, TLS on",
        5,
    ),
    Promise("relay-ssh", "relay", "issue 11", "the relay and an OpenSSH -R tunnel, side by side"),
    Promise(
        "aggregator-push", "aggregator", "issue 6", "push to clonable at the aggregator: at most 1.5 s", 1.5
    ),
    Promise(
        "aggregator-catch-up",
        "aggregator",
        "issue 6",
        "catching up with 1,000 changed repos: at most 1.3 times the time of a loop of git fetch",
        1.3,
    ),
)

FLEET = (
    Promise(
        "fleet-change",
        "fleet",
        f"issue 4; {SPEC}, Coordinator",
        "a worker joins or is lost at 1M repos and 1,000 workers: at most 0.5 s",
        0.5,
    ),
    Promise("fleet-moved", "fleet", "issue 4", "moved by a join or a loss: at most 1.1 times the ideal", 1.1),
    Promise("fleet-busiest", "fleet", "issue 4", "the busiest worker: at most 1.1 times the mean", 1.1),
    Promise("fleet-state", "fleet", "issue 4", "the fleet's state at 1M repos: at most 150 MB", 150),
    Promise("fleet-heartbeat", "fleet", "issue 4", "a heartbeat handled in at most 20 µs", 20),
    Promise(
        "fleet-sim",
        "fleet-sim",
        "issue 4",
        "a million events of 1,000 flapping workers and 100,000 repos simulated in at most 5 min",
        300,
    ),
    Promise("placement-peers", "placement", "issue 11", "keys hashed and placed by uhashring, side by side"),
)

COORDINATOR = (
    Promise(
        "coordinator-ready",
        "coordinator",
        f"issue 5; {SPEC}, Coordinator",
        "the coordinator is ready within 5 s of its start at 1M repos",
        5,
    ),
    Promise(
        "coordinator-memory",
        "coordinator",
        f"issue 5; {SPEC}, Coordinator",
        "the coordinator takes at most 250 MB without workers",
        250,
    ),
    Promise(
        "coordinator-crowd-memory",
        "coordinator",
        f"issue 5; {SPEC}, Coordinator",
        "the coordinator takes at most 350 MB with 1,000 workers connected",
        350,
    ),
    Promise(
        "coordinator-crowd-cpu",
        "coordinator",
        f"issue 5; {SPEC}, Coordinator",
        "1,000 workers cost the coordinator at most 10 % of a core",
        10,
    ),
    Promise(
        "coordinator-commit", "coordinator", "issue 5", "a commit of 100 lines is acted on within 1 s", 1
    ),
    Promise("coordinator-command", "coordinator", "issue 5", "a command reaches its worker within 10 ms", 10),
    Promise(
        "coordinator-curve", "coordinator", "issue 5", "the coordinator's costs from 1,000 to 1M repos, shown"
    ),
)

HOOKS = (
    Promise("hooks-one", "hooks", "issue 9", "hook to refs: at most 300 ms beyond the bare git fetch", 300),
    Promise(
        "hooks-fleet",
        "hooks",
        "issue 9",
        "hook to refs through coordinator and worker: at most 500 ms beyond the bare git fetch",
        500,
    ),
    Promise("hooks-lost", "hooks", "issue 9", "500 hooks a second: none lost", 0),
    Promise(
        "hooks-merged", "hooks", "issue 9", "500 hooks a second: at most one sync per repo and change", 1
    ),
    Promise("hooks-api", "hooks", "issue 9", "500 hooks a second: the API still answers within 100 ms", 100),
)

PULL = (
    Promise(
        "pull-schedule", "pull-schedule", "issue 7", "decisions for 10,000 due projects in at most 50 ms", 50
    ),
    Promise(
        "pull-progress",
        "pull-progress",
        "issue 7",
        "overview and by-priority of 100,000 projects with a month of history in at most 100 ms",
        100,
    ),
    Promise(
        "pull-day",
        "pull-day",
        "issue 7",
        "a day of 200 projects against git remote update && git push --mirror, side by side",
    ),
    Promise("pull-request", "pull-day", "issue 7", "an unchanged project costs the source one request", 1),
    Promise("pull-process", "pull-day", "issue 7", "an unchanged project starts no git process", 0),
)

DASHBOARD = (
    Promise(
        "dashboard-overview",
        "dashboard",
        "issue 10",
        "the overview at 1M repos answers and shows within 1 s",
        1,
    ),
    Promise("dashboard-crowd", "dashboard", "issue 10", "200 open dashboards: at most 20 % of a core", 20),
)

GROWTH = tuple(
    Promise(
        f"growth-{key}", "growth", f"issue 11; {SPEC}, Coordinator", f"{says} from 100 to 1M repos, shown"
    )
    for key, says in (
        ("poll", "the cost of a poll"),
        ("queue", "the cost of the schedule's queue"),
        ("memory", "memory per repo"),
        ("start", "the cost of a start, per repo"),
        ("placement", "the cost of placing a repo"),
        ("overview", "the cost of the overview by API"),
    )
)

PROMISES: dict[str, Promise] = {
    p.key: p
    for group in (POLL, SYNC, FRESHNESS, SERVE, FLEET, COORDINATOR, HOOKS, PULL, DASHBOARD, GROWTH)
    for p in group
}


def promised_of(bench: str) -> list[Promise]:
    return [p for p in PROMISES.values() if p.bench == bench]
