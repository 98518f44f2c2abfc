"""`evermirror status`: is everything fresh, and if not, what is wrong; or all about one repository."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from evermirror.core.schedule.disk import percent_full
from evermirror.faces.cli.client import Fields, connect, repo_path
from evermirror.faces.cli.keys import by_name, complete_keys
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import age, as_seconds, counted, make_table, span
from evermirror.faces.cli.plan_lines import plan_table
from evermirror.faces.cli.repos import error_words
from evermirror.faces.cli.watch import show
from evermirror.model.duration import format_size

if TYPE_CHECKING:
    from rich.console import Group


def status(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY",
            show_default=False,
            autocompletion=complete_keys,
            help="One repository; default: all.",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing, until Ctrl-C.")] = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show whether everything is fresh, or the state of one repository."""
    with connect(server, token_file, config) as client:

        def ask() -> Fields:
            if key is None:
                return client.get("/api/overview")
            return by_name(client, key, lambda name: client.get(repo_path("/api/repos", name)))

        show(ask, _overview if key is None else _repo, watch=watch, as_json=as_json)


def _overview(o: Fields) -> Group:
    from rich.console import Group

    now = as_seconds(o.get("now")) or time.time()
    total, fresh = _number(o.get("total_repos")), _number(o.get("fresh_repos"))
    share = "" if o.get("fresh_share") is None else f" ({_number(o.get('fresh_share')):.1%})"
    facts = [
        ["repositories", f"{total:g}   {_counts(o.get('by_status'))}"],
        ["fresh", f"{fresh:g}{share}"],
        ["longest not verified", span(_maybe(o.get("worst_lag_s")))],
        ["polls", f"{_number(o.get('polls_total')):g}   {_number(o.get('polls_per_second')):.1f}/s"],
        ["changes", f"{_number(o.get('changes_total')):g}   {_size(o.get('received_bytes_total'))} received"],
        ["syncs", f"{len(_dicts(o.get('running')))} running, {_number(o.get('queued_syncs')):g} queued"],
        ["failures", _counts(o.get("failures_by_kind")) or "none"],
        ["disk", f"{_disk(o)}{_clones(o)}"],
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
        ["status", "inactive (paused)" if r.get("enabled") is False else r.get("status")],
        ["priority", r.get("priority")],
        ["alias", r.get("alias")],
        ["verified", age(r.get("verified_at"), now)],
        ["changed", age(r.get("changed_at"), now)],
        ["next look", f"{age(plan.get('next_poll_at'), now)}   {plan.get('reason') or ''}".strip()],
        ["gap", span(gap_s)],
        ["refs", r.get("refs_count")],
        ["size", _size(r.get("size_bytes"))],
        ["head", r.get("head_commit")],
        ["failures in a row", r.get("consecutive_failures")],
    ]
    if r.get("verified") is False and r.get("verified_at"):
        facts.append(["not verified", "only workers that are not trusted say that they hold it"])
    held, upkeep, hooks = r.get("held"), r.get("upkeep"), r.get("hooks")
    if isinstance(hooks, dict):
        last = f"since {age(hooks.get('since'), now)}; the last came {age(hooks.get('last_at'), now)}"
        facts.append(["hooks", f"{hooks.get('trust')}   {last}"])
    if isinstance(held, dict):
        seen = f"{age(held.get('since'), now)}, at {counted(int(str(held.get('sightings', 0))), 'look')}"
        facts.append(["held back", f"{held.get('reason')}   {seen}"])
    if allowed := _texts(r.get("fsck_allow")):
        facts.append(["malformed objects", f"{', '.join(allowed)} allowed: {r.get('fsck_reason')}"])
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
    if (reasoning := plan_table(plan, now)) is not None:
        parts.append(make_table(*reasoning))
    if holders := _dicts(r.get("holders")):
        rows = [
            [
                h.get("worker"),
                h.get("primary"),
                _copy_state(h),
                age(h.get("verified_at"), now),
                h.get("reason"),
            ]
            for h in holders
        ]
        parts.append(make_table(["holder", "primary", "copy", "verified", "why there"], rows))
    return Group(*parts)


def _copy_state(holder: Fields) -> str:
    state = str(holder.get("state") or "")
    return state if holder.get("wanted", True) else f"{state}, not wanted"


def _disk(o: Fields) -> str:
    free, total = o.get("disk_free_bytes"), o.get("disk_total_bytes")
    if isinstance(free, int) and isinstance(total, int) and total:
        return f"{_size(free)} free of {_size(total)} ({percent_full(1.0 - free / total)} used)"
    return f"{_size(free)} free of {_size(total)}"


def _clones(o: Fields) -> str:
    return "" if o.get("accepting_clones", True) else "; too full for new clones (fleet.disk_high)"


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
