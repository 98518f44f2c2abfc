"""Events that belong to nothing else that is written."""

from __future__ import annotations

from collections.abc import Sequence

from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import EventWritten
from evermirror.model.event import NewEvent


async def put_events(store: Store, news: Sequence[NewEvent]) -> None:
    await store.apply([EventWritten(new) for new in news])
