"""`evermirror workers`, and orders to one of them: `worker drain`, `resume`, `retire`, `quarantine`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.client import Client, Fields, connect, repo_path
from evermirror.faces.cli.help import Command
from evermirror.faces.cli.options import AsJson, ConfigFile, Server, TokenFile
from evermirror.faces.cli.output import age, as_seconds, counted, make_table, print_json, say
from evermirror.faces.cli.watch import Watch, show
from evermirror.model.duration import format_size
from evermirror.model.printable import one_line

if TYPE_CHECKING:
    from rich.console import Group

WORKERS = "/api/fleet/workers"
RATES_SHOWN = 5  # the most used come first

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a worker, or its id, as `evermirror workers` shows it.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(group: typer.Typer) -> None:
    """Adds the orders to the group `worker`."""
    for name, order in (
        ("drain", drain),
        ("resume", resume),
        ("retire", retire),
        ("quarantine", quarantine),
        ("overrule-brake", overrule_brake),
    ):
        group.command(name, cls=Command)(order)


def workers(
    watch: Watch = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the workers and aggregators of the fleet, how each is doing, and what is wrong."""
    with connect(server, token_file, config) as client:
        show(lambda: client.get("/api/fleet"), _fleet, watch=watch, as_json=as_json)


def drain(
    name: Name,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Empty a worker: others get what it holds, and only then it lets go."""
    with connect(server, token_file, config) as client:
        _tell(client.post(_path(name, "drain"), {}), as_json=as_json)


def resume(
    name: Name,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Have a worker work again that is drained or in quarantine."""
    with connect(server, token_file, config) as client:
        _tell(client.post(_path(name, "resume"), {}), as_json=as_json)


def retire(
    name: Name,
    yes: Yes = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """End a worker that does not come back: what it held alone is cloned anew elsewhere."""
    with connect(server, token_file, config) as client:
        if not yes:
            _ask(client, name, "Retire it for good?")
        _tell(client.post(_path(name, "retire"), {}), as_json=as_json)


def quarantine(
    name: Name,
    reason: Annotated[str, typer.Option(metavar="TEXT", show_default=False, help="Why; for the record.")],
    yes: Yes = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Trust nothing that a worker holds, until it is resumed."""
    with connect(server, token_file, config) as client:
        if not yes:
            _ask(client, name, "Put it into quarantine?")
        _tell(client.post(_path(name, "quarantine"), {"reason": reason}), as_json=as_json)


def overrule_brake(
    yes: Yes = False,
    server: Server = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Say that the many workers that fell silent at once are really gone: their repositories move."""
    with connect(server, token_file, config) as client:
        if not yes:
            suspect = _count(_dict(client.get("/api/fleet"), "totals").get("suspect"))
            _confirm(f"{counted(suspect, 'worker')} fell silent.", "Declare down those whose grace is over?")
        answer = client.post("/api/fleet/brake/overrule", {})
    if as_json:
        print_json(answer)
        return
    down = sum(w.get("liveness") == "down" for w in _dicts(answer, "workers"))
    say(f"the brake is off; {counted(down, 'worker')} down")


def _path(name: str, order: str) -> str:
    return f"{repo_path(WORKERS, name)}/{order}"


def _ask(client: Client, name: str, question: str) -> None:
    """What it would mean is told before anybody says yes."""
    worker = client.get(repo_path(WORKERS, name))
    losing = _dict(worker, "losing")
    alone = counted(_count(losing.get("alone")), "repository", "repositories")
    copies = counted(_count(losing.get("copies")), "copy", "copies")
    meaning = f"Worker {worker.get('name')} is {worker.get('status')}; it should hold {copies}, "
    _confirm(f"{meaning}and {alone} of what it holds nobody else does.", question)


def _confirm(meaning: str, question: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{meaning} This needs a yes, and there is no terminal to ask at", hint="Add --yes")
    print(one_line(meaning), file=sys.stderr)
    typer.confirm(question, abort=True, err=True)


def _tell(worker: Fields, *, as_json: bool) -> None:
    if as_json:
        print_json(worker)
        return
    held = counted(_count(worker.get("held")), "copy", "copies")
    say(f"{worker.get('name')} is {worker.get('status')}; it holds {held}")


def _fleet(fleet: Fields) -> Group:
    from rich.console import Group

    now = as_seconds(fleet.get("now")) or time.time()
    totals = _dict(fleet, "totals")
    rows = [_row(w, now) for w in _dicts(fleet, "workers")]
    columns = ["worker", "id", "status", "held", "wanted", "cloning", "disk free", "polls/s", "syncs"]
    table = make_table(
        [*columns, "version", "alive", "falls"],
        rows,
        right=["id", "held", "wanted", "cloning", "disk free", "polls/s", "syncs", "falls"],
    )
    copies = f"{totals.get('planned')} copies planned, {totals.get('asked')} asked"
    moving = f"{totals.get('moving')}   {copies}, {totals.get('deferred')} deferred"
    facts: list[list[object]] = [
        ["repositories", f"{totals.get('repos')}   {totals.get('owned')} owned, {totals.get('held')} held"],
        ["moving", moving],
        ["waiting for room", totals.get("no_room")],
    ]
    if totals.get("unverified"):
        facts.append(["not verified", f"{totals['unverified']}   only untrusted workers say they hold them"])
    if totals.get("warming"):
        facts.append(["warming up", "nothing is placed yet"])
    facts += [_rate(rate) for rate in _dicts(fleet, "rates")[:RATES_SHOWN]]
    facts += [["alert", alert.get("text")] for alert in _dicts(fleet, "alerts")]
    tables = [table, make_table(["", "fleet"], facts)]
    if aggregators := _dicts(fleet, "aggregators"):
        columns = ["aggregator", "id", "status", "since", "address", "serves", "relay", "disk free"]
        rows = [_aggregator_row(a, now) for a in aggregators]
        right = ["id", "serves", "disk free", "falls"]
        tables.insert(1, make_table([*columns, "version", "alive", "falls"], rows, right=right))
    return Group(*tables)


def _aggregator_row(one: Fields, now: float) -> list[object]:
    return [
        one.get("name"),
        one.get("id"),
        one.get("status"),
        age(one.get("since"), now),
        one.get("url"),
        one.get("serves"),
        one.get("relay"),
        _disk(one),
        one.get("version"),
        age(one.get("last_alive_at"), now),
        sum(event.get("what") == "down" for event in _dicts(one, "history")),
    ]


def _row(worker: Fields, now: float) -> list[object]:
    return [
        worker.get("name"),
        worker.get("id"),
        worker.get("status"),
        worker.get("held"),
        worker.get("wanted"),
        worker.get("asked"),
        _disk(worker),
        _polls(worker),
        worker.get("running_syncs"),
        worker.get("version"),
        age(worker.get("last_alive_at"), now),
        worker.get("flap_score"),
    ]


def _polls(worker: Fields) -> str | None:
    """As it polls; where the fleet has a bound for all hosts, with its share of that."""
    polls, share = worker.get("polls_per_second"), _dict(worker, "limits").get("polls_per_second")
    if not isinstance(polls, int | float):
        return None
    return f"{polls:.1f} of {share:.1f}" if isinstance(share, int | float) else f"{polls:.1f}"


def _rate(rate: Fields) -> list[object]:
    used, most = rate.get("in_use"), rate.get("rate")
    known = isinstance(used, int | float) and isinstance(most, int | float)
    return [
        f"polls of {rate.get('host') or 'all hosts'}",
        f"{used:.3g} of {most:g} a second given to workers" if known else None,
    ]


def _disk(node: Fields) -> str | None:
    free, total = node.get("disk_free_bytes"), node.get("disk_total_bytes")
    share = f" ({free / total:.0%})" if isinstance(free, int) and isinstance(total, int) and total else ""
    return f"{format_size(free)}{share}" if isinstance(free, int) else None


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _dict(fields: Fields, key: str) -> Fields:
    found = fields.get(key)
    return found if isinstance(found, dict) else {}


def _dicts(fields: Fields, key: str) -> list[Fields]:
    found = fields.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
