"""`pull strategy`: how many pulls may run when, for all projects."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.client import Fields, connect
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json
from evermirror.faces.cli.pull.boxes import facts_box, show_lines
from evermirror.faces.cli.pull.common import PRIORITIES, said, whole
from evermirror.faces.cli.pull.labels import label, minutes
from evermirror.model.printable import one_line
from evermirror.model.pull import CONCURRENT_MAX

STRATEGY = "/api/pull/strategy"

app = typer.Typer(cls=Group, no_args_is_help=True, help="Show or change how many pulls may run when.")

Onoff = Annotated[
    bool | None, typer.Option("--enable/--disable", show_default=False, help="Switch it on or off.")
]


def _most(flag: str, text: str) -> object:
    return typer.Option(flag, parser=whole(1, CONCURRENT_MAX), metavar="N", show_default=False, help=text)


@app.command("show", cls=Command)
def show(
    server: Server = None, token_file: TokenFile = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Show the strategy, and what follows from it now."""
    with connect(server, token_file, config) as client:
        _tell(client.get(STRATEGY), as_json=as_json)


@app.command("update", cls=Command)
def update(
    max_concurrent: Annotated[
        int | None, _most("--max-concurrent", "Pulls at once, without peak avoidance.")
    ] = None,
    peak_hours: Annotated[
        str | None,
        typer.Option("--peak-hours", metavar="START-END", show_default=False, help="Such as 9-18 or 22-6."),
    ] = None,
    peak_concurrent: Annotated[
        int | None, _most("--peak-concurrent", "Pulls at once in peak hours; only critical and high.")
    ] = None,
    off_peak_concurrent: Annotated[
        int | None, _most("--off-peak-concurrent", "Pulls at once outside of them.")
    ] = None,
    night_hours: Annotated[
        str | None,
        typer.Option(
            "--night-hours",
            metavar="START-END",
            show_default=False,
            help="Such as 0-6; none: no such window.",
        ),
    ] = None,
    night_concurrent: Annotated[
        int | None, _most("--night-concurrent", "Pulls at once in the night hours.")
    ] = None,
    enable: Annotated[
        bool | None,
        typer.Option("--enable/--disable", show_default=False, help="Whether the schedule starts anything."),
    ] = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Change the strategy; what is not given stays."""
    body = said(
        max_concurrent_pulls=max_concurrent,
        peak_max_concurrent=peak_concurrent,
        off_peak_max_concurrent=off_peak_concurrent,
        night_max_concurrent=night_concurrent,
        enabled=enable,
    )
    body |= _window("--peak-hours", "peak", peak_hours)
    if night_hours == "none":
        body |= {"night_hours_start": None, "night_hours_end": None, "night_max_concurrent": None}
    else:
        body |= _window("--night-hours", "night", night_hours)
    if not body:
        raise UsageError("nothing to change was given", hint="Such as --max-concurrent=5; --help lists all")
    with connect(server, token_file, config) as client:
        _tell(client.put(STRATEGY, body), as_json=as_json)


@app.command("set-peak-avoidance", cls=Command)
def set_peak_avoidance(
    enable: Onoff = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Have fewer pulls in peak hours, and of critical and high only; or not."""
    body = {"enable_peak_avoidance": _decided(enable)}
    with connect(server, token_file, config) as client:
        _tell(client.put(STRATEGY, body), as_json=as_json)


@app.command("set-adaptive", cls=Command)
def set_adaptive(
    enable: Onoff = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Let the source's load decide how many pulls run; or not."""
    body = {"enable_adaptive": _decided(enable)}
    with connect(server, token_file, config) as client:
        _tell(client.put(STRATEGY, body), as_json=as_json)


def _decided(enable: bool | None) -> bool:
    if enable is None:
        raise UsageError("neither --enable nor --disable was given")
    return enable


def _window(option: str, name: str, text: str | None) -> dict[str, object]:
    """``9-18`` as the API's two hours."""
    if text is None:
        return {}
    found = re.fullmatch(r"([0-9]{1,2})(?::00)?-([0-9]{1,2})(?::00)?", text)
    start, end = (int(found[1]), int(found[2])) if found else (24, 24)
    if start > 23 or end > 24:
        raise UsageError(
            f"{option} {one_line(text)!r} is no part of the day in hours", hint="Such as 9-18, or 22-6"
        )
    return {f"{name}_hours_start": start, f"{name}_hours_end": end}


def _tell(strategy: Fields, *, as_json: bool) -> None:
    if as_json:
        print_json(strategy)
    else:
        name = strategy.get("strategy_name") or "default"
        show_lines(facts_box(f"{label('Strategy')}: {name}", _facts(strategy)))


def _facts(s: Fields) -> list[str]:
    facts = [
        ("State", _switch(s.get("enabled", True))),
        ("Most at once", s.get("max_concurrent_pulls")),
        ("Peak avoidance", _switch(s.get("enable_peak_avoidance"))),
        ("Peak hours", _hours(s, "peak")),
        ("Most at once in peak hours", s.get("peak_max_concurrent")),
        ("Most at once off peak", s.get("off_peak_max_concurrent")),
    ]
    if s.get("night_max_concurrent") is not None:
        facts += [
            ("Night hours", _hours(s, "night")),
            ("Most at once at night", s.get("night_max_concurrent")),
        ]
    facts.append(("Adaptive", _switch(s.get("enable_adaptive"))))
    if now := _now(s):
        facts.append(("Now", now))
    lines = [f"{label(name)}: {one_line(str(value))}" for name, value in facts]
    return [*lines, *(f"{label('Expected delay')} {name}: {text}" for name, text in _expected(s))]


def _expected(s: Fields) -> list[tuple[str, str]]:
    """By class: from a push until it is pulled."""
    delays = s.get("expected_delay")
    found = []
    for name in PRIORITIES:
        delay = delays.get(name) if isinstance(delays, dict) else None
        if isinstance(delay, dict):
            usual, worst = minutes(delay.get("usual_minutes")), minutes(delay.get("worst_minutes"))
            text = label("up to {usual}", usual=usual)
            if worst != usual:
                text += label("; up to {worst} around peak hours", worst=worst)
            found.append((name, text))
    return found


def _switch(on: object) -> str:
    return label("enabled" if on else "disabled")


def _hours(s: Fields, name: str) -> str:
    zone = f" ({s.get('time_zone')})" if s.get("time_zone") else ""
    return f"{s.get(f'{name}_hours_start')}-{s.get(f'{name}_hours_end')}{zone}"


def _now(s: Fields) -> str:
    parts = []
    if s.get("in_peak") is not None:
        parts.append(label("peak hours" if s.get("in_peak") else "off peak"))
    if s.get("current_limit") is not None:
        parts.append(
            label("{running} of {limit} running", running=s.get("running", 0), limit=s.get("current_limit"))
        )
    load = s.get("load")
    if isinstance(load, dict):
        parts.append(label("load {level}: {reason}", level=load.get("level"), reason=load.get("reason")))
    return ", ".join(parts)
