"""`evermirror status`: is everything fresh, and if not, what is wrong; or all about one repository."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from evermirror.faces.cli.client import Client, Fields, connect, repo_path
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import age, as_seconds, console, counted, make_table, print_json, span
from evermirror.faces.cli.repos import error_words
from evermirror.model.duration import format_size

if TYPE_CHECKING:
    from rich.console import Group

WATCH_GAP_S = 2.0


def status(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", show_default=False, help="One repository; default: all.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing, until Ctrl-C.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show whether everything is fresh, or the state of one repository."""
    with connect(server, token_file, config) as client:
        if not watch:
            fields = _ask(client, key)
            if as_json:
                print_json(fields)
            else:
                console().print(_view(fields, key))
        elif as_json:
            while True:
                print(json.dumps(_ask(client, key)), flush=True)
                time.sleep(WATCH_GAP_S)
        else:
            _watch(client, key)


def _ask(client: Client, key: str | None) -> Fields:
    return client.get("/api/overview" if key is None else repo_path("/api/repos", key))


def _watch(client: Client, key: str | None) -> None:
    from rich.live import Live

    if not sys.stdout.isatty():
        while True:
            console().print(_view(_ask(client, key), key))
            time.sleep(WATCH_GAP_S)
    with Live(_view(_ask(client, key), key), console=console(), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(WATCH_GAP_S)
            live.update(_view(_ask(client, key), key), refresh=True)


def _view(fields: Fields, key: str | None) -> Group:
    return _overview(fields) if key is None else _repo(fields)


def _overview(o: Fields) -> Group:
    from rich.console import Group

    now = as_seconds(o.get("now")) or time.time()
    total, fresh = _number(o.get("total_repos")), _number(o.get("fresh_repos"))
    share = f" ({fresh / total:.1%})" if total else ""
    facts = [
        ["repositories", f"{total:g}   {_counts(o.get('by_status'))}"],
        ["fresh", f"{fresh:g}{share}"],
        ["longest not verified", span(_maybe(o.get("worst_lag_s")))],
        ["polls", f"{_number(o.get('polls_total')):g}   {_number(o.get('polls_per_second')):.1f}/s"],
        ["changes", f"{_number(o.get('changes_total')):g}   {_size(o.get('received_bytes_total'))} received"],
        ["syncs", f"{len(_dicts(o.get('running')))} running, {_number(o.get('queued_syncs')):g} queued"],
        ["failures", _counts(o.get("failures_by_kind")) or "none"],
        ["disk", f"{_size(o.get('disk_free_bytes'))} free of {_size(o.get('disk_total_bytes'))}{_clones(o)}"],
        ["running since", age(o.get("started_at"), now)],
        *([["warning", w] for w in _texts(o.get("warnings"))]),
    ]
    parts = [make_table(["", "now"], facts)]
    if running := _dicts(o.get("running")):
        rows = [
            [
                r.get("key"),
                r.get("phase"),
                "" if r.get("percent") is None else f"{_number(r.get('percent')):.0f} %",
                _size(r.get("received_bytes")),
                age(r.get("started_at"), now),
            ]
            for r in running
        ]
        parts.append(
            make_table(["running", "phase", "done", "received", "began"], rows, right=["done", "received"])
        )
    if hosts := _dicts(o.get("hosts")):
        rows = [
            [h.get("host"), h.get("repos"), h.get("state"), age(h.get("until"), now), h.get("reason")]
            for h in hosts
        ]
        parts.append(make_table(["host", "repos", "state", "until", "why"], rows, right=["repos"]))
    return Group(*parts)


def _repo(r: Fields) -> Group:
    from rich.console import Group

    now = time.time()
    plan = r.get("plan")
    plan = plan if isinstance(plan, dict) else {}
    gap_s = _maybe(plan.get("gap_s"))
    error = r.get("last_error")
    error = error if isinstance(error, dict) else {}
    facts: list[list[object]] = [
        ["URL", r.get("git_url")],
        ["status", r.get("status")],
        ["priority", r.get("priority")],
        ["alias", r.get("alias")],
        ["verified", age(r.get("verified_at"), now)],
        ["changed", age(r.get("changed_at") or r.get("last_updated"), now)],
        ["next look", f"{age(plan.get('next_poll_at'), now)}   {plan.get('reason') or ''}".strip()],
        ["gap", span(gap_s)],
        ["refs", r.get("refs_count")],
        ["size", _size(r.get("size_bytes"))],
        ["head", r.get("head_commit")],
        ["failures in a row", r.get("consecutive_failures")],
    ]
    held, upkeep = r.get("held"), r.get("upkeep")
    if isinstance(held, dict):
        seen = f"{age(held.get('since'), now)}, at {counted(int(str(held.get('sightings', 0))), 'look')}"
        facts.append(["held back", f"{held.get('reason')}   {seen}"])
    if isinstance(upkeep, dict):
        facts += [
            ["packs", upkeep.get("packs")],
            ["repacked", age(upkeep.get("repacked_at"), now)],
            ["checked", age(upkeep.get("checked_at"), now)],
        ]
    if error:
        facts += [
            ["last error", f"{error_words(error)}   {age(error.get('at'), now)}"],
            ["hint", error.get("hint")],
        ]
    parts = [make_table([str(r.get("key")), ""], facts)]
    if holders := _dicts(r.get("holders")):
        rows = [[h.get("worker"), h.get("primary"), age(h.get("verified_at"), now)] for h in holders]
        parts.append(make_table(["holder", "primary", "verified"], rows))
    return Group(*parts)


def _clones(o: Fields) -> str:
    return "" if o.get("accepting_clones", True) else "; too full for new clones"


def _counts(value: object) -> str:
    counts = value.items() if isinstance(value, dict) else ()
    return ", ".join(f"{n} {name}" for name, n in counts if n)


def _size(value: object) -> str:
    return format_size(int(value)) if isinstance(value, int | float) else "?"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _maybe(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _dicts(value: object) -> list[Fields]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [str(v) for v in value] if isinstance(value, list) else []
