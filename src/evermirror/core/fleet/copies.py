"""Words for a repo's copies: what is really there, and why it is wanted there."""

from __future__ import annotations

from enum import IntEnum

NOBODY = 0xFFFF  # in place of a worker's id: none
UNWANTED = 0xFF  # in place of a rank: held, but not wanted there
PROOF = 0xFE  # in place of a rank: wanted beyond the replicas, as nobody trusted has one (proofs.py)


class CopyState(IntEnum):
    """What is really on the worker's disk, as far as it is known."""

    PLANNED = 0  # wanted there; not yet asked for
    ASKED = 1  # the command to hold it was sent; it takes one of its worker's places for first clones
    HELD = 2  # told complete
    STOPPING = 3  # no longer wanted before it was complete; told to stop
    LEAVING = 4  # told to delete it
    DEFERRED = 5  # asked for; the clone failed or must wait, and its worker tries again by itself


class Reason(IntEnum):
    """Why a copy is where it is."""

    HOME = 0  # first on its walk round the ring
    NEXT = 1  # workers before it on the walk were full or not allowed
    PINNED = 2
    KEPT = 3  # was held there already
    JOINED = 4  # a new worker's share
    LOST = 5  # its worker went down or left
    DRAINED = 6
    SHED = 7  # its worker was over its bound
    REHASHED = 8  # handed back
    OVERFULL = 9  # the bound was relaxed: nobody else could take it
    FOUND = 10  # told by a worker, never placed
    SLOW = 11  # another worker took too long to clone it
    PROOF = 12  # otherwise only untrusted workers would hold it
