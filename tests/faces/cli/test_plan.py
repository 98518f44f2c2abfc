"""`evermirror status KEY`: why a repository is looked at then."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from evermirror.faces.cli.plan_lines import _WORDS
from evermirror.model.plan import StepCode

KEY = "github.com/o/r"


def iso(seconds):
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()


def steps():
    """As of now: hours may lie between this file's import and its tests. In hours: a test takes its time."""
    return [
        {"code": "pushes", "s": 43_200.0, "at": None, "detail": "2 pushes a day are expected"},
        {"code": "policy_gap", "s": 600.0, "at": None, "detail": "its share"},
        {"code": "last_poll", "s": None, "at": iso(-5 * 3600), "detail": "the last look"},
        {"code": "turn", "s": None, "at": iso(5 * 3600), "detail": "its turn under adaptive"},
        {"code": "of_a_later_version", "s": None, "at": iso(10 * 3600), "detail": "words of its own\x1b[31m"},
    ]


@pytest.fixture
def shown(run, api):
    def show(plan, **env):
        api.on("GET", f"/api/repos/{KEY}", (200, {"key": KEY, "plan": plan}))
        done = run("status", KEY, env={"EVERMIRROR_SERVER": api.url, **env})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return show


def test_the_reasoning_is_shown_step_by_step(shown):
    lines = shown({"reason": "x", "steps": steps()}).splitlines()
    begin = next(n for n, line in enumerate(lines) if "why then" in line)
    rows = [" ".join(line.replace("│", " ").split()) for line in lines[begin:]]
    told = [row for row in rows if any(c.isalpha() for c in row)]
    assert told[-1].startswith("words of its own")
    assert told[:5] == [
        "why then gap or wait next look",
        "a push is expected every 12 h –",
        "its share of the polls 10 min –",
        "last look – 5 h ago",
        "its turn in the queue – in 5 h",
    ]
    assert "\x1b[31m" not in "\n".join(lines)


def test_it_is_told_in_chinese_too(shown):
    text = shown({"steps": steps()}, LC_ALL="zh_CN.UTF-8")
    for words in ("原因", "预计的推送间隔", "按策略分得的间隔", "上次检查", "排队轮到"):
        assert words in text


def test_a_worker_that_tells_no_steps_is_shown_as_before(shown):
    assert "why then" not in shown({"reason": "its interval", "steps": []})
    assert "why then" not in shown({"reason": "its interval"})


def test_every_step_has_words_in_both_languages():
    assert _WORDS.keys() == set(StepCode)
    assert all(english.isascii() and not chinese.isascii() for english, chinese in _WORDS.values())
