"""How many repos of which host each worker polls, counted from the tables.

Counted is what a worker polls or is about to: a copy that is held or asked for and was told to be the
primary, or, where no role was told yet, is wanted first; and one that is planned and wanted first. So a repo
counts for its worker from the moment it is placed, and shares do not move with every clone that is done.

Over all copies at once, in parts that stay small: below 0.1 s for a million, and no memory that lasts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.copies import NOBODY
from evermirror.core.fleet.handover import ASKED, DEFERRED, FOLLOWER, HELD, PLANNED, PRIMARY, UNTOLD
from evermirror.core.fleet.hostnames import HostNames
from evermirror.core.fleet.table import LIVE, REMOVED, TRUSTED_ONLY, FleetTable

PART = 1 << 16  # rows or copies looked at together

Counts = NDArray[np.int64]


def per_worker(
    table: FleetTable, names: HostNames, slot_of_host: NDArray[np.int32], slots: int, width: int
) -> tuple[Counts, NDArray[np.int64]]:
    """Repos by worker, and by slot and worker; a host without a slot has -1."""
    host = names.of_row
    everything = np.zeros(width, np.int64)
    by_slot = np.zeros(slots * width, np.int64)
    for start in range(0, table.copies, PART):
        part = slice(start, min(start + PART, table.copies))
        counted = np.flatnonzero(_polls(table, part)) + start
        workers = table.c_worker[counted].astype(np.int64)
        everything += np.bincount(workers, minlength=width)
        if slots:
            slot = slot_of_host[host[table.c_row[counted]]]
            has = slot >= 0
            by_slot += np.bincount(slot[has] * width + workers[has], minlength=slots * width)
    return everything, by_slot.reshape(slots, width)


def _polls(table: FleetTable, part: slice) -> NDArray[np.bool_]:
    state, role, first = table.c_state[part], table.c_primary[part], table.c_rank[part] == 0
    there = (state == HELD) | (state == ASKED) | (state == DEFERRED)
    polls = (there & ((role == PRIMARY) | ((role == UNTOLD) & first))) | ((state == PLANNED) & first)
    used: NDArray[np.bool_] = polls & (table.c_worker[part] != NOBODY)
    return used


def per_host(table: FleetTable, names: HostNames) -> Counts:
    """Repos of each host: of the catalog, or, where those are more, copies that somebody may be polling."""
    host = names.of_row
    hosts = len(names)
    listed = np.zeros(hosts, np.int64)
    for start in range(0, table.rows, PART):
        part = slice(start, min(start + PART, table.rows))
        known = (table.flags[part] & (LIVE | REMOVED)) == LIVE
        listed += np.bincount(host[part][known], minlength=hosts)
    polled = np.zeros(hosts, np.int64)
    for start in range(0, table.copies, PART):
        part = slice(start, min(start + PART, table.copies))
        maybe = (table.c_worker[part] != NOBODY) & _may_poll(table, part)
        polled += np.bincount(host[table.c_row[part][maybe]], minlength=hosts)
    return np.maximum(listed, polled)


def public_hosts(table: FleetTable, names: HostNames) -> NDArray[np.bool_]:
    """For each host, whether it has a repo of the catalog that every worker may know of."""
    host = names.of_row
    found = np.zeros(len(names), np.bool_)
    for start in range(0, table.rows, PART):
        part = slice(start, min(start + PART, table.rows))
        public = (table.flags[part] & (LIVE | REMOVED | TRUSTED_ONLY)) == LIVE
        found[host[part][public]] = True
    return found


def on_worker(table: FleetTable, names: HostNames, worker: int) -> Counts:
    """The most that it may be polling now, by host: also what it should not hold any more."""
    host = names.of_row
    on = table.copies_on(worker)
    maybe = on[(table.c_state[on] != PLANNED) & (table.c_primary[on] != FOLLOWER)]
    return np.bincount(host[table.c_row[maybe]], minlength=len(names))


def of_host(table: FleetTable, names: HostNames, wanted: int, width: int) -> Counts:
    """The same of one host, by worker."""
    host = names.of_row
    found = np.zeros(width, np.int64)
    for start in range(0, table.copies, PART):
        part = slice(start, min(start + PART, table.copies))
        maybe = np.flatnonzero((table.c_worker[part] != NOBODY) & _may_poll(table, part)) + start
        maybe = maybe[host[table.c_row[maybe]] == wanted]
        found += np.bincount(table.c_worker[maybe], minlength=width)
    return found


def _may_poll(table: FleetTable, part: slice) -> NDArray[np.bool_]:
    may: NDArray[np.bool_] = (table.c_state[part] != PLANNED) & (table.c_primary[part] != FOLLOWER)
    return may
