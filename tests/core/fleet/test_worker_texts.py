"""What workers write, and everybody reads."""

from __future__ import annotations

import pytest

from evermirror.core.fleet.worker_texts import (
    bounded_status,
    is_worker_name,
    shown_hosts,
    shown_warnings,
)
from evermirror.model.messages import HostState, RunningSync, WorkerStatus
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId

FLOOD = "x\n\x1b[2J\u202e" + "y" * 60_000


def status(warnings=(), hosts=(), running=()) -> WorkerStatus:
    return WorkerStatus(1, 2, 0.5, 3, 4, tuple(running), 0, tuple(hosts), 1, 2, True, tuple(warnings), 5.0)


def host(reason: str, name: str = "h", state: str = "stormy") -> HostState:
    return HostState(name, 1, state, None, reason)


def test_texts_become_short_single_lines_and_few():
    told = bounded_status(
        status(
            [FLOOD] * 100_000,
            [host(FLOOD, FLOOD, FLOOD)] * 1_000,
            [RunningSync(RepoKey("k"), FLOOD, None, 0, 1.0, False)] * 1_000,
        )
    )
    texts = [*told.warnings, *(t for h in told.hosts for t in (h.host, h.state, h.reason))]
    texts += [sync.phase for sync in told.running]
    assert (len(told.warnings), len(told.hosts), len(told.running)) == (50, 50, 50)
    assert max(map(len, texts)) <= 300
    assert not any(c in text for text in texts for c in "\n\x1b\u202e")
    assert all(text.endswith("…") for text in texts)


def test_what_honest_workers_say_stays_as_it_is():
    said = status(["max_gap cannot be kept"], [host("the host asked us to wait", "例え.example", "waiting")])
    assert bounded_status(said) == said


def test_a_worker_that_is_not_trusted_speaks_last_seldom_and_in_its_own_name():
    trusted, stranger = WorkerId(1), WorkerId(2)
    statuses = {
        stranger: status([f"lie {n}" for n in range(50)], [host(f"lie {n}") for n in range(50)]),
        trusted: status(["true", "true"], [host("true")]),
    }
    named = {stranger: "volunteer"}.get
    assert shown_warnings(statuses, named) == ("true", *(f"volunteer: lie {n}" for n in range(3)))
    assert [h.reason for h in shown_hosts(statuses, named)] == [
        "true", *(f"volunteer: lie {n}" for n in range(3)),
    ]  # fmt: skip


def test_many_workers_that_are_not_trusted_cannot_push_others_out():
    statuses = {WorkerId(n): status([f"lie {n}"], [host("lie")]) for n in range(1, 1_000)}
    statuses[WorkerId(0)] = status(["true"], [host("true")])
    named = lambda worker: f"w{worker}" if worker else None  # noqa: E731
    warnings, hosts = shown_warnings(statuses, named), shown_hosts(statuses, named)
    assert (warnings[0], len(warnings)) == ("true", 100)
    assert (hosts[0].reason, len(hosts)) == ("true", 20)


@pytest.mark.parametrize(
    ("name", "fine"),
    [("w1", True), ("北京-1", True), ("", True), ("x" * 256, False), ("a\nb", False), ("a\x1b[2J", False)],
)
def test_names_can_be_read_as_they_stand(name, fine):
    assert is_worker_name(name) is fine
