"""The part of the store that is about event hooks: how far each is, and letters that were laid aside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from evermirror.core.deliver.decisions import Decision
from evermirror.edge.store import deliveries
from evermirror.edge.store.part import StorePart
from evermirror.edge.store.whole import whole
from evermirror.model.delivery import DeadLetter, HookProgress, LetterId
from evermirror.model.event import EventId


class DeliveryStore(StorePart):
    async def load_event_hooks(self) -> dict[str, HookProgress]:
        """How far each is, by its name."""
        return await whole(deliveries.load(self._db))

    async def begin_event_hooks(self, new: Mapping[str, HookProgress], known: Collection[str]) -> None:
        """``new`` start here; of those that are not ``known`` the place is forgotten, their letters stay."""
        await whole(deliveries.begin(self._db, new, known))

    async def save_delivery(self, hook: str, decision: Decision) -> None:
        """One step; the same again changes nothing. Of more letters than are kept the oldest go."""
        await whole(deliveries.save(self._db, hook, decision, self._clock()))

    async def letters(
        self, hook: str | None, limit: int, before: LetterId | None = None
    ) -> tuple[DeadLetter, ...]:
        """Newest first; at most 1,000."""
        return await whole(deliveries.letters(self._db, hook, limit, before))

    async def next_letter_again(self, hook: str) -> DeadLetter | None:
        """The oldest that a person wants to be tried once more."""
        return await whole(deliveries.next_again(self._db, hook))

    async def letter_counts(self) -> dict[str, int]:
        """Of hooks that have any."""
        return await whole(deliveries.letter_counts(self._db))

    async def events_waiting(self, after: EventId) -> int:
        """How many come after this one; at most 10,000 are counted."""
        return await whole(deliveries.waiting(self._db, after))

    async def send_letters_again(self, hook: str, ids: Sequence[LetterId] | None) -> int:
        """These, or all; returns how many."""
        return await whole(deliveries.mark_again(self._db, hook, ids))

    async def forget_letters(self, hook: str, ids: Sequence[LetterId] | None) -> int:
        return await whole(deliveries.forget(self._db, hook, ids))

    async def clean_letters(self, before: float) -> int:
        """Removes those laid aside before this time (UTC seconds)."""
        return await whole(deliveries.clean(self._db, before))
