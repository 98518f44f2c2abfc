"""What Alembic runs: the steps, on the connection and in the transaction that migrate.py opened."""

from __future__ import annotations

from alembic import context

from evermirror.edge.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
