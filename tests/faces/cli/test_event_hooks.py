"""`evermirror events hooks|letters|retry|forget|test`: what the server is asked, and what a person sees."""

from __future__ import annotations

import json

from tests.faces.cli.pull_answers import HOSTILE

HOOK = {
    "name": "ci", "host": "ci.example.org", "types": ["refs.*", "task.ended"], "repos": ["*"], "batch": 50,
    "state": "fine", "waiting": 0, "letters": 2, "after": 9, "delivered_at": "2025-12-13T23:50:00Z",
    "delivered_total": 1234, "laid_aside_total": 2, "failures": 0, "failing_since": None,
    "next_attempt_at": None, "error": "",
}  # fmt: skip
FAILING = {
    **HOOK,
    "name": "archive",
    "state": "failing",
    "failing_since": "2025-12-13T23:50:00Z",
    "error": "HTTP 503",
}
LETTER = {
    "id": 7, "hook": "ci", "event": 1_765_670_100_000_000, "type": "refs.changed", "reason": "HTTP 400",
    "attempts": 3, "at": "2025-12-13T23:50:00Z", "again": False,
    "body": {"version": 1, "id": 1_765_670_100_000_000, "type": "refs.changed", "repo": "github.com/acme/x"},
}  # fmt: skip


def rows(out: str) -> list[str]:
    return [" ".join(line.split()) for line in out.splitlines()]


def test_hooks_are_listed_with_how_they_do(ask, api):
    api.on("GET", "/api/event_hooks", (200, {"items": [HOOK, FAILING]}))
    shown = rows(ask("events", "hooks").stdout)
    assert shown[0] == "Hook Host Types State Waiting Letters Delivered Last Error"
    assert shown[1].startswith("ci ci.example.org refs.* task.ended fine 0 2 1234 ")
    assert "failing since " in shown[2]
    assert shown[2].endswith("HTTP 503")
    assert json.loads(ask("events", "hooks", "--json").stdout) == {"items": [HOOK, FAILING]}


def test_none_says_what_to_do(ask, api):
    api.on("GET", "/api/event_hooks", (200, {"items": []}))
    api.on("GET", "/api/event_hooks/letters", (200, {"items": [], "next_before": None}))
    assert "add [event_hooks.NAME] to the settings" in ask("events", "hooks").stdout
    assert ask("events", "letters").stdout == "no letters: nothing was laid aside\n"


def test_letters_are_read_page_by_page_and_shown_harmless(ask, api):
    hostile = {**LETTER, "id": 6, "reason": HOSTILE, "body": {"repo": HOSTILE}, "again": False}
    waiting = {**LETTER, "id": 5, "again": True}
    pages = (
        (200, {"items": [LETTER], "next_before": 7}),
        (200, {"items": [hostile, waiting], "next_before": None}),
    )
    api.on("GET", "/api/event_hooks/letters", *pages)
    out = ask("events", "letters", "ci", "--limit", "10").stdout
    assert [query for _, _, query, _, _ in api.asked] == [
        {"hook": ["ci"], "limit": ["10"]},
        {"hook": ["ci"], "limit": ["9"], "before": ["7"]},
    ]
    assert rows(out)[1].startswith("7 ci refs.changed github.com/acme/x ")
    assert rows(out)[3].endswith("goes again")
    assert "\x1b" not in out
    assert len(out.splitlines()) == 4


def test_a_limit_is_kept(ask, api):
    api.on("GET", "/api/event_hooks/letters", (200, {"items": [LETTER], "next_before": 7}))
    answer = json.loads(ask("events", "letters", "--limit=1", "--json").stdout)
    assert answer == {"items": [LETTER]}
    assert len(api.asked) == 1


def test_letters_are_sent_again_all_or_some(ask, api):
    api.on("POST", "/api/event_hooks/ci/retry", (200, {"hook": "ci", "letters": 2}))
    assert ask("events", "retry", "ci").stdout == "ci: tried again now; 2 letters to be sent again\n"
    ask("events", "retry", "ci", "7", "8")
    assert [body for _, _, _, body, _ in api.asked] == [{}, {"letters": [7, 8]}]


def test_forgetting_all_needs_a_yes(ask, api):
    api.on("POST", "/api/event_hooks/ci/forget", (200, {"hook": "ci", "letters": 1}))
    refused = ask("events", "forget", "ci")
    assert refused.returncode == 2
    assert "Add --yes" in refused.stderr
    assert not api.asked
    assert ask("events", "forget", "ci", "--yes").stdout == "ci: 1 letter forgotten\n"
    assert ask("events", "forget", "ci", "7").returncode == 0
    assert [body for _, _, _, body, _ in api.asked] == [{}, {"letters": [7]}]


def test_what_is_no_number_is_refused_before_anything_is_asked(ask, api):
    for wrong in ("x", "0", "1.5", "9" * 19, "¹"):
        done = ask("events", "retry", "ci", wrong)
        assert done.returncode == 2, wrong
        assert "is not the number of a letter" in done.stderr
    assert not api.asked


def test_a_test_fails_where_it_is_not_taken(ask, api):
    api.on(
        "POST",
        "/api/event_hooks/ci/test",
        (200, {"hook": "ci", "sent": True, "error": ""}),
        (200, {"hook": "ci", "sent": False, "error": "HTTP 500"}),
    )
    fine, failed = ask("events", "test", "ci"), ask("events", "test", "ci")
    assert (fine.returncode, fine.stdout) == (0, "ci: sent\n")
    assert (failed.returncode, failed.stdout) == (1, "ci: not sent: HTTP 500\n")


def test_a_hook_that_is_not_there_is_named(ask, api):
    done = ask("events", "test", "nobody/x")
    assert done.returncode == 5
    assert "nobody/x" in done.stderr
