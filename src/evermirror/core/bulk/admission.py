"""What may be ordered: checked as a whole before anything is done."""

from __future__ import annotations

from evermirror.errors import Conflict, UsageError
from evermirror.model.bulk import BulkAction, BulkWish

KEYS_MAX = 1_000  # of one order; more are a filter
LOOKS_MAX = 10_000  # tasks that one order may make: more would keep upstreams and the queue busy for hours
WAITING_MAX = 20  # orders in line behind the one under way

LOOKING = frozenset({BulkAction.SYNC, BulkAction.RETRY})


def check_wish(wish: BulkWish) -> None:
    """Raises UsageError for one that cannot be meant."""
    if bool(wish.keys) == (wish.filter is not None):
        given = "both are" if wish.keys else "neither is"
        raise UsageError(
            f"an order is about keys, or a filter: {given} given",
            hint='Such as keys = ["github.com/owner/name"], or filter = {"status": "failing"}; '
            "filter = {} is the whole catalog",
        )
    if len(wish.keys) > KEYS_MAX:
        raise UsageError(f"{len(wish.keys)} keys are more than {KEYS_MAX}", hint="Order by a filter instead")
    if (wish.action is BulkAction.PRIORITY) != (wish.priority is not None):
        missing = wish.priority is None
        raise UsageError(
            "priority: which one is not said" if missing else "priority: only the action priority has one",
            hint="One of: critical, high, normal, low" if missing else "Leave it out",
        )


def check_count(wish: BulkWish, matched: int, expected: int | None) -> None:
    """Raises Conflict where the catalog is not as whoever ordered saw it, UsageError where it is too much."""
    if expected is not None and matched != expected:
        raise Conflict(
            f"{_repos(expected)} {'was' if expected == 1 else 'were'} expected, and {matched} match now: "
            "nothing was done",
            hint="Look at them again, and order with the new count",
        )
    if wish.action in LOOKING and matched > LOOKS_MAX:
        raise UsageError(
            f"{_repos(matched)} match, and one order can {wish.action.value} at most {LOOKS_MAX}",
            hint="Narrow the filter, such as to one host, one priority, or status failing",
        )


def check_line(waiting: int) -> None:
    """Raises Conflict where too many orders wait."""
    if waiting >= WAITING_MAX:
        raise Conflict(
            f"{waiting} orders wait already",
            hint="Wait until one has ended, or stop one: `evermirror bulk list`",
        )


def _repos(count: int) -> str:
    return "1 repo" if count == 1 else f"{count} repos"
