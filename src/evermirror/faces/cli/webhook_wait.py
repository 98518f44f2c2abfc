"""An order about hooks that a command waits for: a bar while it lasts, then what became of the repos."""

from __future__ import annotations

import time
from collections.abc import Sequence

from evermirror.errors import EvermirrorError
from evermirror.faces.cli.client import Client, Fields
from evermirror.faces.cli.following import Step, followed, patiently
from evermirror.faces.cli.output import as_seconds, print_json, print_table, say, warn
from evermirror.faces.cli.pull.common import count_of, dicts
from evermirror.faces.cli.pull.labels import short_clock, spell
from evermirror.faces.cli.webhook_labels import label, repositories, word
from evermirror.model.printable import one_line

AWAY_MAX_S = 60.0  # a server that is restarted goes on with its order
SHOWN = 50

_WORDS = {
    "register": "registering hooks",
    "check": "checking hooks",
    "remove": "removing hooks",
}
_DID = (
    "made", "mended", "as it should be", "removed", "not there", "missing", "drifted", "refused", "not asked",
    "no forge",
)  # fmt: skip
_FAILED = ("missing", "drifted", "refused", "not asked")
_HINT = {
    "drifted": "`evermirror webhook register` mends them",
    "missing": "`evermirror webhook register` makes them",
    "no forge": "--forge says whose API their hosts have, and --credential how to sign in there",
}


_GOES_ON = (
    "order {number} goes on: `evermirror webhook status {number}` shows it, "
    "`evermirror webhook stop {number}` stops it"
)


def finish(client: Client, path: str, *, named: bool, as_json: bool) -> None:
    """Waits for the order's end, shows what it did, and fails where it did. ``named``: it was about
    repositories that a person named: nothing done for one is a failure, too. Ctrl-C leaves it going: orders
    may take days."""
    try:
        answer = _watched(client, path, quiet=as_json)
    except KeyboardInterrupt:
        warn(label(_GOES_ON, number=path.rpartition("/")[2]))
        raise
    if as_json:
        print_json(answer)
    else:
        show(answer)
    _raise_failure(answer, named=named)


def leave(begun: Fields, *, as_json: bool) -> None:
    """Nobody waits for the order: its number is told."""
    if as_json:
        print_json(begun)
    else:
        say(label(_GOES_ON, number=begun.get("id")))


def list_orders(orders: Sequence[Fields]) -> None:
    """A line for each."""
    if not orders:
        say(label("no orders since the server's start"))
        return
    now = time.time()
    columns = ("order", "what", "about", "by", "begun", "state", "done")
    print_table(
        [label(column) for column in columns],
        [
            (
                order.get("id"),
                word(order.get("action")),
                order.get("group") or label("all" if order.get("all") else "named ones"),
                order.get("actor"),
                short_clock(order.get("started_at"), now),
                label(_state(order)),
                _progress(order),
            )
            for order in orders
        ],
        right=[label("done")],
    )
    for order in orders:
        if order.get("waiting"):
            waits = label("waits: {what}", what=order["waiting"])
            say(f"{order.get('id')}: {waits}")
        if order.get("error"):
            say(f"{order.get('id')}: {order['error']}")


def _state(order: Fields) -> str:
    return "running" if order.get("state") == "running" else "ended early" if order.get("error") else "ended"


def _progress(order: Fields) -> str:
    done, total = count_of(order.get("done")), order.get("total")
    return label("{done} of {total}", done=done, total=total) if isinstance(total, int) else str(done)


def _watched(client: Client, path: str, *, quiet: bool) -> Fields:
    """The answer in which the order has ended; a bar shows how far it is."""
    return followed(
        lambda: patiently(client, path, AWAY_MAX_S),
        lambda answer: answer.get("state") != "running",
        _step,
        first=label("counting"),
        quiet=quiet,
    )


def _step(answer: Fields) -> Step:
    words = one_line(str(answer.get("waiting") or label(_WORDS.get(str(answer.get("action")), ""))))
    total = answer.get("total")
    return Step(words, count_of(answer.get("done")), total if isinstance(total, int) else None)


def show(answer: Fields) -> None:
    """The counts, then the problems."""
    counts = _counts(answer)
    rows = [(label(did), counts[did]) for did in _DID if counts.get(did)]
    if rows:
        print_table([label("hooks"), label("repositories")], rows, right=[label("repositories")])
    else:
        say(label("no repositories"))
    problems = [item for item in dicts(answer.get("items")) if _is_problem(item)]
    if problems:
        print_table(
            [label("repository"), label("hook"), label("problem")],
            [(item.get("repo"), word(item.get("did")), item.get("problem")) for item in problems[:SHOWN]],
        )
    if len(problems) > SHOWN:
        warn(
            label(
                "{shown} of {total} shown; --json has more, `evermirror webhook list` has all",
                shown=SHOWN,
                total=len(problems),
            )
        )
    begun, ended = as_seconds(answer.get("started_at")), as_seconds(answer.get("ended_at"))
    if begun is not None and ended is not None:
        done = repositories(count_of(answer.get("done")))
        say(label("{repos} in {time}", repos=done, time=spell(max(0.0, ended - begun))))


def _is_problem(item: Fields) -> bool:
    return bool(item.get("problem")) or item.get("did") in _FAILED


def _raise_failure(answer: Fields, *, named: bool) -> None:
    if answer.get("error"):
        raise EvermirrorError(
            label("the order ended early: {error}", error=one_line(str(answer["error"]))),
            hint=label("Given again it goes on: what is as it should be is only looked at"),
        )
    counts = _counts(answer)
    failed = [did for did in (*_FAILED, *(("no forge",) if named else ())) if counts.get(did)]
    if failed:
        words = ", ".join(f"{counts[did]} {label(did)}" for did in failed)
        hint = "; ".join(label(_HINT[did]) for did in failed if did in _HINT)
        raise EvermirrorError(label("not all hooks are as they should be: {counts}", counts=words), hint=hint)


def _counts(answer: Fields) -> dict[str, int]:
    told = answer.get("counts")
    return {str(did): count_of(n) for did, n in told.items()} if isinstance(told, dict) else {}
