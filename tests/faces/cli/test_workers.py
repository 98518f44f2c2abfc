"""`evermirror workers` and the orders to a worker: what the server is asked, and what a person sees."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from tests.faces.cli.conftest import clean_env
from tests.support.node import NodeThread

WORKER = {
    "name": "attic", "id": 3, "status": "alive", "liveness": "alive", "duty": "active", "trusted": True,
    "connected": True, "accepting": True, "weight": 1.0, "weight_now": 1.0, "capacity": None, "wanted": 12,
    "held": 11, "asked": 1, "strays": 0, "unacknowledged": 0, "disk_free_bytes": 40_000_000_000,
    "disk_total_bytes": 100_000_000_000, "polls_per_second": 1.25, "running_syncs": 1, "queued_syncs": 0,
    "version": "0.1", "flap_score": 0.0, "joined_at": "2026-11-15T20:00:00Z",
    "last_alive_at": "2026-11-15T20:29:58Z",
}  # fmt: skip
AWAY = {
    **WORKER, "name": "cellar\x1b[31m", "id": 4, "status": "down", "liveness": "down", "connected": False,
    "disk_free_bytes": None, "disk_total_bytes": None, "polls_per_second": None, "running_syncs": None,
    "version": None,
}  # fmt: skip
FLEET = {
    "workers": [WORKER, AWAY],
    "totals": {
        "repos": 12, "owned": 12, "held": 11, "no_room": 2, "moving": 1, "planned": 5, "asked": 1,
        "deferred": 0, "stopping": 0, "leaving": 0, "workers": 2, "alive": 1, "suspect": 0, "braked": False,
        "warming": False,
    },
    "alerts": [{"kind": "worker-down", "about": "cellar", "text": "worker cellar is down"}],
    "now": "2026-11-15T20:30:00Z",
}  # fmt: skip
DETAIL = {**WORKER, "history": [], "losing": {"copies": 12, "alone": 1}}


def test_the_workers_are_listed_with_the_whole(ask, api):
    api.on("GET", "/api/fleet", (200, FLEET))
    result = ask("workers")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[1].split()[:6] == ["attic", "3", "alive", "11", "12", "1"]
    assert "(40%)" in lines[1]
    assert "\x1b" not in result.stdout
    assert "12   12 owned, 11 held" in result.stdout
    assert "worker cellar is down" in result.stdout
    assert json.loads(ask("workers", "--json").stdout) == FLEET


def test_the_aggregators_are_listed_too(ask, api):
    one = {
        "name": "front\x1b[31m", "id": 7, "status": "alive", "url": "http://front.example.org",
        "connected": True, "since": "2026-11-15T20:20:00Z", "serves": 12,
        "history": [{"at": "2026-11-14T20:20:00Z", "what": "down"}],
        "followed": 7, "changes_told": 9, "relay": "front.example.org:8422",
        "disk_free_bytes": 40_000_000_000, "disk_total_bytes": 100_000_000_000, "version": "0.1",
    }  # fmt: skip
    away = {**one, "name": "back", "status": "down", "relay": None, "disk_free_bytes": None, "url": None}
    api.on("GET", "/api/fleet", (200, {**FLEET, "aggregators": [one, away]}))
    out = ask("workers").stdout
    (line,) = [line for line in out.splitlines() if "front.example.org:8422" in line]
    assert "alive" in line
    assert "http://front.example.org" in line
    assert " 12 " in line
    assert line.rstrip().endswith(" 1"), "it fell once"
    assert "(40%)" in line
    assert "\x1b" not in out
    assert any("back" in line and "down" in line for line in out.splitlines())


def test_shares_of_the_fleets_rates_are_shown(ask, api):
    limits = {"polls_per_second": 3.5, "host_rate": 5.0, "hosts": [], "hosts_total": 0, "told_at": None}
    rates = [
        {"host": f"h{n}.example.org\x1b[31m" if n else None, "rate": 5.0, "in_use": 4.7512} for n in range(9)
    ]
    workers = [{**WORKER, "limits": limits}, AWAY]
    api.on("GET", "/api/fleet", (200, {**FLEET, "workers": workers, "rates": rates}))
    out = ask("workers").stdout
    assert "1.2 of 3.5" in out.splitlines()[1]
    shown = [line.split() for line in out.splitlines() if "given to workers" in line]
    assert len(shown) == 5, "the most used"
    assert shown[0][:7] == ["polls", "of", "all", "hosts", "4.75", "of", "5"]
    assert shown[1][2].startswith("h1.example.org")
    assert "\x1b" not in out


def test_watching_goes_on_until_it_is_interrupted(api, here, tmp_path):
    api.on("GET", "/api/fleet", (200, FLEET), (200, FLEET), (503, {"title": "x", "detail": "enough"}))
    process = subprocess.Popen(
        [sys.executable, "-m", "evermirror", "workers", "--watch", "--json", "--server", api.url],
        cwd=here,
        env=clean_env(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=60)
    assert [json.loads(line) for line in out.splitlines()] == [FLEET, FLEET]
    assert "enough" in err


@pytest.mark.parametrize("order", ["drain", "resume"])
def test_what_can_be_taken_back_is_done_at_once(ask, api, order):
    status = {"drain": "draining", "resume": "alive"}[order]
    api.on("POST", f"/api/fleet/workers/attic/{order}", (200, {**WORKER, "status": status}))
    result = ask("worker", order, "attic")
    assert (result.returncode, result.stdout) == (0, f"attic is {status}; it holds 11 copies\n")
    answer = json.loads(ask("worker", order, "attic", "--json").stdout)
    assert answer["status"] == status


def test_a_name_is_sent_whole(ask, api):
    api.on("POST", "/api/fleet/workers/a b/drain", (200, WORKER))
    assert ask("worker", "drain", "a b").returncode == 0


def test_retiring_needs_a_yes_and_says_what_it_means(ask, api):
    api.on("GET", "/api/fleet/workers/attic", (200, DETAIL))
    api.on("POST", "/api/fleet/workers/attic/retire", (200, {**WORKER, "status": "retired", "held": 0}))
    refused = ask("worker", "retire", "attic")
    assert refused.returncode == 2
    assert "it should hold 12 copies, and 1 repository of what it holds nobody else does" in refused.stderr
    assert "--yes" in refused.stderr
    assert "POST" not in [method for method, *_ in api.asked]
    done = ask("worker", "retire", "attic", "--yes")
    assert (done.returncode, done.stdout) == (0, "attic is retired; it holds 0 copies\n")


def test_a_person_at_a_terminal_is_asked(api, here, tmp_path):
    api.on("GET", "/api/fleet/workers/attic", (200, DETAIL))
    api.on("POST", "/api/fleet/workers/attic/quarantine", (200, {**WORKER, "status": "quarantined"}))
    args = ["worker", "quarantine", "attic", "--reason", "odd", "--server", api.url]
    for answer, posted in ((b"n\n", 0), (b"y\n", 1)):
        main, terminal = pty.openpty()
        os.write(main, answer)
        done = subprocess.run(
            [sys.executable, "-m", "evermirror", *args],
            cwd=here,
            env=clean_env(tmp_path),
            stdin=terminal,
            capture_output=True,
            text=True,
            timeout=60,
        )
        os.close(main)
        os.close(terminal)
        assert "Put it into quarantine?" in done.stderr
        assert (done.returncode == 0) == bool(posted), done.stderr
        orders = [body for method, _, _, body, _ in api.asked if method == "POST"]
        assert orders == [{"reason": "odd"}] * posted


def test_a_quarantine_needs_a_reason(ask):
    result = ask("worker", "quarantine", "attic", "--yes")
    assert result.returncode == 2
    assert "--reason" in result.stderr


def test_the_brake_is_overruled_with_a_yes(ask, api):
    api.on("GET", "/api/fleet", (200, {**FLEET, "totals": {"suspect": 7, "braked": True}}))
    api.on("POST", "/api/fleet/brake/overrule", (200, FLEET))
    refused = ask("worker", "overrule-brake")
    assert refused.returncode == 2
    assert "7 workers fell silent" in refused.stderr
    assert ask("worker", "overrule-brake", "--yes").stdout == "the brake is off; 1 worker down\n"


def test_an_unknown_worker_is_5_and_a_conflict_1(ask, api):
    api.on("POST", "/api/fleet/workers/x/drain", (404, _problem(404, "not-found", "no worker 'x'")))
    result = ask("worker", "drain", "x")
    assert result.returncode == 5
    assert "no worker 'x'" in result.stderr
    assert "evermirror workers" in result.stderr
    api.on("POST", "/api/fleet/workers/x/drain", (409, _problem(409, "conflict", "it is quarantined")))
    assert ask("worker", "drain", "x").returncode == 1


def _problem(status, kind, detail):
    return {
        "type": f"/problems/{kind}",
        "title": "x",
        "status": status,
        "detail": detail,
        "hint": "GET /api/fleet",
    }


def test_against_a_real_node_the_worker_is_shown_drained_and_resumed_and_the_audit_tells(
    run, tmp_path, upstream
):
    repo = upstream.create("team/x")
    with NodeThread(tmp_path, upstream.host, schedule__min_gap="1h", worker__name="attic") as node:
        env = {"EVERMIRROR_SERVER": node.url}
        node.add(repo.url)
        node.until_active(f"{upstream.host}/team/x")
        (worker,) = json.loads(run("workers", "--json", env=env).stdout)["workers"]
        assert (worker["name"], worker["status"], worker["held"]) == ("attic", "alive", 1)
        table = run("workers", env=env).stdout
        assert "attic" in table
        holder = run("status", f"{upstream.host}/team/x", env=env).stdout
        assert "first on its walk round the ring" in holder
        assert run("worker", "drain", "attic", env=env).stdout == "attic is draining; it holds 1 copy\n"
        assert run("worker", "resume", "attic", env=env).stdout == "attic is alive; it holds 1 copy\n"
        refused = run("worker", "retire", "attic", "--yes", env=env)
        assert refused.returncode == 1
        assert "this very process" in refused.stderr
        log = json.loads(run("audit", "--json", "--data", str(node.data), env=env).stdout)
        assert [(r["actor"], r["action"], r["subject"]) for r in log][:2] == [
            ("local", "worker.resumed", "attic"),
            ("local", "worker.drained", "attic"),
        ]
