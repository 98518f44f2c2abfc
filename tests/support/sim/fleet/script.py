"""Scripts: the fleet's races told as text, and played against the real machine.

    # A worker that is back within its grace finds everything as it was
    settings grace 10m, warm-up 0s
    at 0:00 A joins (trusted)
    the catalog gains github.com/x/one
    at 0:20 expect A is asked for github.com/x/one
    then A has cloned github.com/x/one at v1
    at 1:00 A's connection breaks
    at 5:00 A reconnects
    expect A is alive
    expect nothing

Rules
- A line is something that happens, or begins with ``expect`` (phrases.py has both).
- ``at 1:30``, ``at 1:00:00`` and ``after 30s`` let time pass first, with ticks and the heartbeats of whoever
  is connected; ``then`` and ``and`` are for the ear.
- A line that happens may end in ``; the coordinator crashes before it writes``, or ``… before it acts``.
- Every command and every alert must be expected, in any order, before the next thing happens: what a script
  does not name must not be decided. Details (as primary, from upstream) need not be named.
- Refs digests are told as versions: v1, v2, …
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from evermirror.core.fleet.settings import FleetSettings
from evermirror.errors import UsageError
from evermirror.model.duration import parse_duration
from tests.support.sim.fleet.phrases import EXPECTED, HAPPENED, Failed, clock, find
from tests.support.sim.fleet.stage import Stage

_SETTINGS: dict[str, tuple[str, Callable[[str], float | int]]] = {
    "replicas": ("replicas", int),
    "grace": ("grace_s", parse_duration),
    "warm-up": ("warm_up_s", parse_duration),
    "workers awaited": ("min_workers", int),
    "heartbeat": ("heartbeat_s", parse_duration),
    "rounds missed": ("max_missed", int),
    "brake": ("brake_share", float),
    "gap": ("rebalance_gap_s", parse_duration),
    "clones at first": ("moves_first", int),
    "clones in all": ("moves_total", int),
    "load bound": ("load_bound", float),
    "nudge gap": ("nudge_gap_s", parse_duration),
}


END = "expect nothing"  # is at the end of every script


class ScriptError(UsageError):
    """A line that cannot be read, or that did not come true."""


class Script:
    """One scenario: ``play`` raises ScriptError with file and line at the first thing that is not so."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._lines = text.splitlines()

    @classmethod
    def read(cls, path: Path) -> Script:
        return cls(path.name, path.read_text("utf-8"))

    def play(self) -> Stage:
        """Returns the stage as it was left."""
        stage: Stage | None = None
        settings = FleetSettings()
        for number, raw in enumerate((*self._lines, END), 1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            try:
                if stage is None and line.startswith("settings "):
                    settings = _settings(line.removeprefix("settings "))
                    continue
                stage = stage or Stage(settings)
                _play_line(stage, line)
            except (Failed, UsageError, AssertionError, LookupError) as error:
                raise ScriptError(f"{self.name}:{number}: {error}", hint=f"The line is: {line}") from error
        return stage or Stage(settings)


def _settings(text: str) -> FleetSettings:
    changes: dict[str, float | int] = {}
    for part in text.split(","):
        words, _, value = part.strip().rpartition(" ")
        if words not in _SETTINGS:
            raise Failed(f"no such setting: {words!r}; there are {', '.join(_SETTINGS)}")
        name, read = _SETTINGS[words]
        changes[name] = read(value)
    return replace(FleetSettings(), **changes)  # type: ignore[arg-type]


_PREFIX = re.compile(r"(?:at (?P<at>[\d:]+)|after (?P<after>[\d.]+[a-z]+)|then|and)(?:,? |$)")
_CRASH = re.compile(r"; the coordinator crashes before it (writes|acts)$")


def _play_line(stage: Stage, line: str) -> None:
    match = _PREFIX.match(line)
    rest = line[match.end() :] if match else line
    expects = rest.removeprefix("expect ") if rest.startswith("expect ") else None
    if expects is None:
        _all_expected(stage)
    if match and (match["at"] or match["after"]):
        _pass_time(stage, match["at"], match["after"])
    if not rest:
        return
    if expects is not None:
        find(EXPECTED, expects)(stage)
        return
    if crash := _CRASH.search(rest):
        stage.crash, rest = crash[1], rest[: crash.start()]
    find(HAPPENED, rest)(stage)


def _pass_time(stage: Stage, at: str | None, after: str | None) -> None:
    if at is not None:
        until = 0.0
        for part in at.split(":"):
            until = until * 60 + float(part)
    else:
        until = stage.now_s + parse_duration(after or "0s")
    if until < stage.now_s:
        raise Failed(f"it is {clock(stage.now_s)} already")
    stage.pass_until(until)


def _all_expected(stage: Stage) -> None:
    """What was decided and not expected; forgotten quiet lines are no matter."""
    unexpected = [str(line) for line in stage.lines if not line.quiet]
    if unexpected:
        raise Failed(
            f"by {clock(stage.now_s)} this was decided too, before this line: {'; '.join(unexpected)}"
        )
    stage.lines.clear()
