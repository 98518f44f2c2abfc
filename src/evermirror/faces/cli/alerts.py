"""`alerts`: what people should know, who was told of it; channels tried out; silences."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from evermirror.errors import ExitCode, InvalidValue, UsageError
from evermirror.faces.cli.alert_labels import label, language
from evermirror.faces.cli.client import Client, Fields, connect, repo_path
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import print_json, say
from evermirror.faces.cli.pull.boxes import Grid, drawn, facts_box, grid_box, show_lines, terminal_width
from evermirror.faces.cli.pull.common import (
    MANY,
    FromOption,
    ToOption,
    count_of,
    dicts,
    naming,
    paged,
    time_range,
    whole,
)
from evermirror.faces.cli.pull.labels import clock, short_clock
from evermirror.faces.cli.watch import Watch
from evermirror.faces.cli.watch import show as show_once_or_on
from evermirror.model.duration import DURATION_FORM, parse_duration
from evermirror.model.printable import one_line

if TYPE_CHECKING:
    from rich.console import Group as Drawing

ALERTS = "/api/alerts"
SILENCES = f"{ALERTS}/silences"
LEVELS = ("warning", "error", "critical")
SILENCE_MAX_S = 366 * 86_400.0
ROOMY = 160  # columns of a terminal in which a list shows everything; in others it has what matters

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="What people should know: alerts, where they are sent, silences."
)


def _levels() -> list[str]:
    return list(LEVELS)


def _kinds() -> list[str]:
    from evermirror.core.watch.kinds import ALL_KINDS

    return sorted(ALL_KINDS)


LevelOption = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="LEVEL",
        show_default=False,
        autocompletion=_levels,
        help="At least: warning, error or critical.",
    ),
]
NumberArgument = Annotated[str, typer.Argument(metavar="ID", help="As `evermirror alerts list` shows it.")]


@app.command("list", cls=Command)
def list_alerts(
    everything: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    level: LevelOption = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            show_default=False,
            autocompletion=_kinds,
            help="Such as project-failing.",
        ),
    ] = None,
    about: Annotated[
        str | None,
        typer.Option("--about", metavar="TEXT", show_default=False, help="Part of what it is about."),
    ] = None,
    begin: FromOption = None,
    end: ToOption = None,
    limit: Annotated[
        int, typer.Option("--limit", parser=whole(1, MANY), metavar="N", help="At most so many.")
    ] = 50,
    watch: Watch = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List alerts that stand, newest first."""
    if level is not None and level not in LEVELS:
        raise UsageError(f"--level {one_line(level)!r} is not one of {', '.join(LEVELS)}")
    time_range(begin, end, time.time())  # what is no time is told before anything is asked
    asked: dict[str, str | int] = {"state": "all" if everything else "standing", "language": language()}
    asked |= {name: said for name, said in (("level", level), ("kind", kind), ("about", about)) if said}
    with connect(server, token_file, config) as client:
        show_once_or_on(
            lambda: paged(client, ALERTS, {**asked, **time_range(begin, end, time.time())}, limit),
            lambda fields: _list_view(fields, everything),
            watch=watch,
            as_json=as_json,
        )


@app.command("show", cls=Command)
def show(
    number: NumberArgument,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show one alert, and who was told of it."""
    with connect(server, token_file, config) as client, naming(number):
        path = repo_path(ALERTS, _number(number, "alerts list --all"))
        fields = client.get(path, {"language": language()})
    if as_json:
        print_json(fields)
    else:
        show_lines(_one_view(fields))


@app.command("channels", cls=Command)
def channels(
    watch: Watch = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the channels of the settings, and how each is doing."""
    with connect(server, token_file, config) as client:
        show_once_or_on(
            lambda: client.get(f"{ALERTS}/channels"), _channels_view, watch=watch, as_json=as_json
        )


@app.command("test", cls=Command)
def try_channels(
    channel: Annotated[
        str | None, typer.Argument(metavar="CHANNEL", show_default=False, help="Default: all.")
    ] = None,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Send a test message to a channel, or to all. Fails where one does not take it."""
    body: dict[str, object] = {} if channel is None else {"channel": channel}
    with connect(server, token_file, config) as client, naming(channel or ""):
        answer = client.post(f"{ALERTS}/test", body)
    tried = dicts(answer.get("items"))
    if as_json:
        print_json(answer)
    else:
        rows = [
            [t.get("channel"), label("sent" if t.get("sent") else "not sent"), t.get("error")] for t in tried
        ]
        show_lines(_table(("Channel", "Result", "Error"), rows, "Channels"))
    if not all(one.get("sent") for one in tried):
        raise typer.Exit(ExitCode.FAILED)


@app.command("silence", cls=Command)
def silence(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", autocompletion=_kinds, help="A kind, or a pattern such as 'project-*'."
        ),
    ],
    lasts: Annotated[
        str, typer.Option("--for", metavar="TIME", show_default=False, help="How long, such as 2h or 3d.")
    ],
    about: Annotated[
        str,
        typer.Argument(
            metavar="ABOUT", show_default=False, help="A project, host, …, or a pattern. Default: any."
        ),
    ] = "*",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", show_default=False, help="For others to read.")
    ] = "",
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Tell nobody of some alerts for a while. What still stands then is told."""
    body = {"kind": kind, "about": about, "for_s": _seconds(lasts), "reason": reason}
    with connect(server, token_file, config) as client, naming(kind, body):
        answer = client.post(SILENCES, body)
    if as_json:
        print_json(answer)
        return
    say(
        label(
            "silence {number}: {kind} about {about} until {until}",
            number=answer.get("id"),
            kind=answer.get("kind"),
            about=answer.get("about"),
            until=clock(answer.get("until")),
        )
    )


@app.command("silences", cls=Command)
def silences(
    server: Server = None, token_file: TokenFile = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """List the silences in force."""
    with connect(server, token_file, config) as client:
        answer = client.get(SILENCES)
    items = dicts(answer.get("items"))
    if as_json:
        print_json(answer)
    elif not items:
        say(label("no silences"))
    else:
        rows = [
            [s.get("id"), s.get("kind"), s.get("about"), clock(s.get("until")), s.get("by"), s.get("reason")]
            for s in items
        ]
        show_lines(_table(("Id", "Kind", "About", "Until", "By", "Reason"), rows, "Silences"))


@app.command("unsilence", cls=Command)
def unsilence(
    number: Annotated[str, typer.Argument(metavar="ID", help="As `evermirror alerts silences` shows it.")],
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """End a silence. What it covered and still stands is told."""
    with connect(server, token_file, config) as client, naming(number):
        answer = _ended(client, number)
    if as_json:
        print_json(answer)
    else:
        say(label("silence {number} ended", number=number))


def _ended(client: Client, number: str) -> Fields:
    return client.delete(repo_path(SILENCES, _number(number, "alerts silences")))


def _number(text: str, where: str) -> str:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"{one_line(text)!r} is not the number of one", hint=f"`evermirror {where}` shows them"
        )
    return text


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except InvalidValue:
        seconds = 0.0
    if not 0 < seconds <= SILENCE_MAX_S:
        raise UsageError(
            f"--for {one_line(text)!r} is not {DURATION_FORM}, of at most 366 days", hint="Such as --for 2h"
        )
    return seconds


# How it is drawn


def _table(columns: tuple[str, ...], rows: list[list[object]], title: str) -> list[str]:
    return grid_box(Grid([label(name) for name in columns], rows), label(title))


def _list_view(fields: Fields, everything: bool) -> Drawing:
    items = dicts(fields.get("items"))
    if not items:
        return drawn([label("no alerts" if everything else "no alerts stand")])
    if terminal_width() < ROOMY:
        rows = [_short_row(item) for item in items]
        lines = _table(("Id", "Level", "Since", "State", "What"), rows, "Alerts")
    else:
        rows = [_row(item) for item in items]
        lines = _table(("Id", "Level", "Alert", "About", "What", "Since", "State"), rows, "Alerts")
    total = count_of(fields.get("total"))
    if total > len(items):
        text = "{shown} of {total} shown; {option} shows more"
        lines.append(label(text, shown=len(items), total=total, option="--limit"))
    return drawn(lines)


def _row(item: Fields) -> list[object]:
    return [
        item.get("id"),
        label(str(item.get("level"))),
        item.get("title"),
        item.get("about"),
        item.get("text"),
        clock(item.get("raised_at")),
        _state(item),
    ]


def _short_row(item: Fields) -> list[object]:
    """Without what the text says as well."""
    silenced = item.get("silenced_by") is not None
    state = "over" if not item.get("standing") else "silenced" if silenced else ""
    about, text = str(item.get("about")), str(item.get("text"))
    return [
        item.get("id"),
        label(str(item.get("level"))),
        short_clock(item.get("raised_at"), time.time()),
        state and label(state),
        text if about in text else f"{about}: {text}",
    ]


def _state(item: Fields) -> str:
    if not item.get("standing"):
        return label("over since {at}", at=clock(item.get("ended_at")))
    return label("standing, silenced" if item.get("silenced_by") is not None else "standing")


def _one_view(item: Fields) -> list[str]:
    facts: list[tuple[str, object]] = [
        ("Level", label(str(item.get("level")))),
        ("Kind", item.get("kind")),
        ("About", item.get("about")),
        ("What", item.get("text")),
        ("State", _state(item)),
        ("Raised", clock(item.get("raised_at"))),
        ("Last told", clock(item.get("changed_at"))),
        ("How it ended", item.get("end_text")),
        ("Silenced by", item.get("silenced_by")),
    ]
    lines = [f"{label(name)}: {one_line(str(value))}" for name, value in facts if value not in (None, "")]
    title = f"{label('Alert {number}', number=item.get('id'))}: {item.get('title')}"
    notices = dicts(item.get("notices"))
    if not notices:
        return [*facts_box(title, lines), label("nobody was told")]
    rows: list[list[object]] = [
        [
            notice.get("channel"),
            label(str(notice.get("turn"))),
            label(str(notice.get("state"))),
            clock(notice.get("sent_at") or notice.get("given_up_at") or notice.get("created_at")),
            notice.get("attempts"),
            notice.get("error"),
        ]
        for notice in notices
    ]
    told = _table(("Channel", "Turn", "Result", "Time", "Tries", "Error"), rows, "Told to")
    return [*facts_box(title, lines), *told]


def _channels_view(fields: Fields) -> Drawing:
    items = dicts(fields.get("items"))
    if not items:
        return drawn([label("no channels")])
    rows: list[list[object]] = [
        [
            item.get("name"),
            item.get("type"),
            _condition(item),
            item.get("waiting"),
            clock(item.get("sent_at")),
            item.get("error"),
        ]
        for item in items
    ]
    return drawn(_table(("Channel", "Type", "State", "Waiting", "Last sent", "Error"), rows, "Channels"))


def _condition(item: Fields) -> str:
    if item.get("state") == "failing":
        return label("failing since {at}", at=clock(item.get("failing_since")))
    return label(str(item.get("state")))
