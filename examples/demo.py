"""Starts the embedded PostgreSQL (or uses WHIPPLETREE_DSN), installs the schema, and shows what is there."""

from __future__ import annotations

import asyncio
import sys
from time import perf_counter

from whippletree.cli import console
from whippletree.errors import Error
from whippletree.settings import Settings
from whippletree.store import database, schema

CONTENT = """
SELECT c.relname::text, string_agg(a.attname, ' ' ORDER BY a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
GROUP BY c.oid, c.relname ORDER BY c.relname
"""
FUNCTIONS = "SELECT count(*) FROM pg_proc WHERE pronamespace = $1::text::regnamespace"


async def main() -> None:
    settings = Settings.load()
    started = perf_counter()
    async with database.connect(settings) as connection:
        where = str(settings.dsn) if settings.dsn else "embedded"
        version = await connection.fetchval("SHOW server_version")
        print(f"PostgreSQL {version} ({where}), ready in {perf_counter() - started:.1f} s")
        steps = await schema.migrate(connection, settings.schema)
        for step in steps or (f"schema {settings.schema} is up to date",):
            print(step)
        rows = await connection.fetch(CONTENT, settings.schema)
        console.show_table(("table", "columns"), [tuple(row) for row in rows])
        functions = await connection.fetchval(FUNCTIONS, settings.schema)
        print(f"{len(rows)} tables and views, {functions} functions in schema {settings.schema}")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except Error as error:
        console.show_error(error, sys.argv)
        sys.exit(1)
