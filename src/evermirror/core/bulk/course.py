"""How an order goes on, from chunk to chunk.

    taken (on the disk) ──▶ acted on ──▶ handled, and the next ones taken (on the disk) ──▶ … ──▶ ended

A crash between the two leaves ``working``: those are acted on once more, which changes nothing where it was
done, and are counted then. So each repo is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evermirror.model.bulk import BulkAction, BulkOrder, BulkStatus, BulkWish
from evermirror.model.repo import RepoKey

CHUNK = 500  # repos that get a task together: a tenth of a second of the database
CONFIGURED = 2_000  # repos that are configured together: as long, and workers hear of many at once
SINGLY_MAX = 100  # repos of an order that each get an entry in the audit log of their own
CONFIGURING = frozenset({BulkAction.PAUSE, BulkAction.RESUME, BulkAction.PRIORITY})
ERROR_CHARS_MAX = 500
KEYS_KEPT = 20  # of those that an order named, once it has ended
MORE_NOW = "more match now than were confirmed: order again"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of some repos. ``unchanged`` of the ``done`` needed nothing; ``looks`` are tasks."""

    done: int = 0
    unchanged: int = 0
    failed: int = 0
    looks: int = 0
    first_error: str = ""

    def __add__(self, more: Outcome) -> Outcome:
        return Outcome(
            self.done + more.done,
            self.unchanged + more.unchanged,
            self.failed + more.failed,
            self.looks + more.looks,
            self.first_error or more.first_error,
        )


def refused(key: RepoKey, why: str) -> Outcome:
    return Outcome(failed=1, first_error=f"{key} {why}"[:ERROR_CHARS_MAX])


def next_named(wish: BulkWish, after: RepoKey | None) -> tuple[RepoKey, ...]:
    """The next of those that an order names, in the order of keys."""
    left = sorted(RepoKey(key) for key in set(wish.keys) if after is None or key > after)
    return tuple(left[:CHUNK])


def taken(order: BulkOrder, keys: Sequence[RepoKey], now: float) -> BulkOrder:
    """Of these the first are acted on next, never more in all than were confirmed; none: all was done."""
    if not keys:
        return ended(order, BulkStatus.DONE, now)
    room = order.matched - order.done - order.failed
    if room <= 0:
        return ended(order, BulkStatus.FAILED, now, MORE_NOW)
    return replace(order, working=tuple(keys[:room]), updated_at=now)


def handled(order: BulkOrder, outcome: Outcome) -> BulkOrder:
    """Those that it worked on were acted on."""
    return replace(
        order,
        done=order.done + outcome.done,
        unchanged=order.unchanged + outcome.unchanged,
        failed=order.failed + outcome.failed,
        looks=order.looks + outcome.looks,
        first_error=order.first_error or outcome.first_error,
        cursor=order.working[-1] if order.working else order.cursor,
        working=(),
    )


def ended(order: BulkOrder, status: BulkStatus, now: float, error: str = "") -> BulkOrder:
    """One that has ended stays as it is. ``error`` is told before that of a repo."""
    if order.has_ended:
        return order
    return replace(
        order,
        wish=replace(order.wish, keys=order.wish.keys[:KEYS_KEPT]),
        status=status,
        first_error="; ".join(filter(None, (error, order.first_error)))[:ERROR_CHARS_MAX],
        updated_at=now,
        working=(),
    )
