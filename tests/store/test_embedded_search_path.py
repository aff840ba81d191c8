"""On the embedded server, where user and schema share a name, a user's tables are the user's."""

from __future__ import annotations

import asyncpg

from tests.conftest import blank_database
from whippletree.store.schema import migrate


async def test_a_table_made_without_a_schema_is_not_among_ours(server: str, template: str) -> None:
    async with blank_database(server, "a table of the user's", template) as dsn:
        connection = await asyncpg.connect(dsn.reveal())
        try:
            await connection.execute("CREATE TABLE invoices (total integer)")
            assert await connection.fetchval("SELECT 'invoices'::regclass::text") == "invoices"
            assert await connection.fetchval("SELECT to_regclass('public.invoices') IS NOT NULL")
            # What is ours is found without its schema all the same, and migrating again leaves the user's alone.
            assert await connection.fetchval("SELECT count(*) FROM wh_outbox") == 0
            await migrate(connection, "whippletree")
            assert await connection.fetchval("SELECT to_regclass('public.invoices') IS NOT NULL")
        finally:
            await connection.close()
