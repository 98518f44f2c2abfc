"""Which hooks were here before: a forge that got no answer sends the same hook again, and so may others.

A day is remembered, of a bounded number; what is older or too much leads to one look more, no harm. Where the
forge numbers nothing a hook is known by its body alone, and for a short time: a branch that is made, deleted
and made again may be told in the same words.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from evermirror.model.forge import Forge

DAY_S = 86_400.0
UNNUMBERED_S = 600.0  # forges that send again do so within minutes
DELIVERIES_MAX = 100_000
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one hook is known by."""

    digest: bytes
    kept_s: float = DAY_S


def delivery_of(forge: Forge, number: str, body: bytes) -> Delivery:
    """By its number and all that it says. The number comes in a header, which is not signed: alone it would
    let who saw one hook send something else under the number of the next."""
    known = hashlib.blake2b(f"{forge.value}\0{number}\0".encode(), digest_size=DIGEST_BYTES)
    known.update(body)
    return Delivery(known.digest(), DAY_S if number else UNNUMBERED_S)


class Deliveries:
    """``note`` what is stored: one that could not be is sent again, and then counts."""

    def __init__(self, most: int = DELIVERIES_MAX) -> None:
        self._most = most
        # When; oldest first. A plain dict whose first is taken away again and again looks for it ever longer.
        self._noted: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._noted)

    def seen(self, delivery: Delivery, now: float) -> bool:
        at = self._noted.get(delivery.digest)
        return at is not None and now - at < delivery.kept_s

    def note(self, delivery: Delivery, now: float) -> None:
        self._noted.pop(delivery.digest, None)
        self._noted[delivery.digest] = now
        while len(self._noted) > self._most or now - next(iter(self._noted.values())) >= DAY_S:
            self._noted.popitem(last=False)
