"""Whether a repo is to be fetched, and since when it waits for that: its place in the queue.

In full mode everything is wanted that was reported and is not here; in pull-through mode what is here,
and what a client waits for (``waits``).
"""

from __future__ import annotations

from dataclasses import replace

from evermirror.core.collect.events import End
from evermirror.core.collect.queue import place_of
from evermirror.core.collect.rows import Charge, Row
from evermirror.core.collect.settings import CollectMode, CollectSettings
from evermirror.core.collect.verdict import Verdict, is_open, needs

SAMPLE_TRIES = 8  # of a repo that nobody waits for; then an audit has to find it again


def placed(row: Row, now: float, waits: bool, settings: CollectSettings) -> Row:
    """With its place: as it had, a new one, or none."""
    if row.place is not None:
        return row if is_open(row) else _unplaced(row)
    wanted = settings.mode is CollectMode.FULL or not row.first or waits
    return _at_the_end(row, now, settings) if wanted and needs(row) else row


def judged_place(verdict: Verdict, end: End, now: float, waits: bool, settings: CollectSettings) -> Row:
    """The row after an attempt, with its place and the time of the next one."""
    row = verdict.row
    match end:
        case End.DONE:
            return placed(replace(row, place=None), now, waits, settings)
        case End.LOOKED:
            moved = verdict.fetch and row.place is None
            return _at_the_end(row, now, settings) if moved else row
        case _:
            unwanted = row.first and settings.mode is CollectMode.PULL_THROUGH and not waits
            if unwanted and row.place is not None and _gives_nothing(row):
                # Somebody reports it and gives nothing: tried again until that is certain.
                again_at = now + max(verdict.wait_s, settings.doubt_wait_s)
                return replace(_at_the_end(row, now, settings), retry_at=again_at)
            if row.place is None or unwanted:
                return _unplaced(row)
            # To the end: what fails again and again does not go before what was never tried.
            return replace(_at_the_end(row, now, settings), retry_at=now + verdict.wait_s)


def _gives_nothing(row: Row) -> bool:
    suspicions = row.doubt.suspicions if row.doubt is not None else ()
    return row.failures <= SAMPLE_TRIES and any(
        s.charge in (Charge.LACKS, Charge.REFUSES) for s in suspicions
    )


def _at_the_end(row: Row, now: float, settings: CollectSettings) -> Row:
    return replace(row, place=place_of(now, row.spec.priority, settings.class_step_s))


def _unplaced(row: Row) -> Row:
    return replace(row, place=None, failures=0, retry_at=0.0)
