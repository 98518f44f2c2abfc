"""The coordinator's epoch: which of its lives this is, so that workers notice that it began anew.

It counts up, and is never below the clock: a database put back from a backup has an old count, and workers
have seen higher ones since. The clock has gone on meanwhile.
"""

from __future__ import annotations

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import settings

KEY = "fleet.epoch"


async def take(db: Database, now: float) -> int:
    """The next one, committed."""
    async with db.write() as c:
        last = (
            await c.execute(sa.select(settings.c.value).where(settings.c.key == KEY))
        ).scalar_one_or_none()
        epoch = max(0 if last is None else int(rows.json_out(last)) + 1, int(now))
        insert = db.insert(settings)
        put = insert.on_conflict_do_update(index_elements=["key"], set_={"value": insert.excluded.value})
        await c.execute(put, {"key": KEY, "value": rows.json_in(epoch)})
    return epoch
