"""An order about many repositories that a command waits for: a bar while it lasts, then what became of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from evermirror.errors import EvermirrorError
from evermirror.faces.cli.bulk_labels import label, repositories
from evermirror.faces.cli.client import Client, Fields
from evermirror.faces.cli.following import Step, followed, patiently
from evermirror.faces.cli.output import print_json, print_table, say, warn
from evermirror.faces.cli.pull.common import count_of
from evermirror.faces.cli.pull.labels import short_clock
from evermirror.model.printable import one_line

AWAY_MAX_S = 60.0  # a server that is restarted goes on with its order

_WORDS = {
    "sync": "syncing",
    "retry": "retrying",
    "reset": "resetting",
    "pause": "pausing",
    "resume": "resuming",
    "priority": "setting priorities",
}
_STATES = {"done": "finished", "failed": "cut short"}
_GOES_ON = "order {number} goes on: `evermirror bulk list` shows it, `evermirror bulk stop {number}` stops it"


def finish(client: Client, path: str, *, as_json: bool) -> None:
    """Waits for the order's end, shows what it did, and fails where it did. Ctrl-C leaves it going."""
    try:
        answer = _watched(client, path, quiet=as_json)
    except KeyboardInterrupt:
        warn(label(_GOES_ON, number=path.rpartition("/")[2]))
        raise
    if as_json:
        print_json(answer)
    else:
        show(answer)
    raise_failure(answer)


def leave(begun: Fields, *, as_json: bool) -> None:
    """Nobody waits for the order: its number is told."""
    if as_json:
        print_json(begun)
    else:
        say(label(_GOES_ON, number=begun.get("id")))


def show(answer: Fields) -> None:
    """How many are done."""
    done, unchanged = count_of(answer.get("done")), count_of(answer.get("unchanged"))
    words = "{repos} done, of which {unchanged} needed nothing" if unchanged else "{repos} done"
    say(label(words, repos=repositories(done), unchanged=unchanged))


def raise_failure(answer: Fields) -> None:
    """EvermirrorError where not all is done."""
    matched, error = count_of(answer.get("matched")), one_line(str(answer.get("first_error") or ""))
    if answer.get("status") == "failed":
        raise EvermirrorError(label("the order was cut short: {error}", error=error))
    if failed := count_of(answer.get("failed")):
        words = "{failed} of {matched} failed; the first: {error}"
        raise EvermirrorError(label(words, failed=failed, matched=matched, error=error))
    if answer.get("status") == "stopped":
        done = count_of(answer.get("done"))
        raise EvermirrorError(
            label("the order was stopped after {done} of {matched}", done=done, matched=matched)
        )


def list_orders(orders: Sequence[Fields]) -> None:
    """A line for each."""
    if not orders:
        say(label("no orders"))
        return
    now = time.time()
    columns = ("order", "what", "about", "by", "begun", "state", "done", "failed")
    print_table(
        [label(column) for column in columns],
        [
            (
                order.get("id"),
                _what(order),
                _about(order),
                order.get("actor"),
                short_clock(order.get("created_at"), now),
                label(_state(order)),
                label("{done} of {matched}", done=order.get("done"), matched=order.get("matched")),
                order.get("failed"),
            )
            for order in orders
        ],
        right=[label("done"), label("failed")],
    )
    for order in orders:
        if order.get("first_error"):
            say(f"{order.get('id')}: {order['first_error']}")


def _what(order: Fields) -> str:
    action = label(str(order.get("action")))
    return f"{action} {order['priority']}" if order.get("priority") else action


def _about(order: Fields) -> str:
    which = order.get("filter")
    if not isinstance(which, dict):
        return label("named ones")
    return " ".join(f"{name}={value}" for name, value in which.items() if value) or label("all")


def _state(order: Fields) -> str:
    status = str(order.get("status"))
    return "waiting" if status == "running" and order.get("ahead") else _STATES.get(status, status)


def _watched(client: Client, path: str, *, quiet: bool) -> Fields:
    """The answer in which the order has ended; a bar shows how far it is."""
    return followed(
        lambda: patiently(client, path, AWAY_MAX_S),
        lambda answer: answer.get("status") != "running",
        _step,
        quiet=quiet,
    )


def _step(answer: Fields) -> Step:
    through = count_of(answer.get("done")) + count_of(answer.get("failed"))
    return Step(_doing(answer), through, count_of(answer.get("matched")))


def _doing(answer: Fields) -> str:
    if ahead := count_of(answer.get("ahead")):
        return label("waiting for {orders} before it", orders=ahead)
    return label(_WORDS.get(str(answer.get("action")), ""))
