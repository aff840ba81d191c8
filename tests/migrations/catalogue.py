"""What a schema consists of, in words that can be compared."""

from __future__ import annotations

import asyncpg

_QUERIES = (
    """SELECT 'column', c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod),
         a.attnotnull::text || ' ' || COALESCE(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || a.attgenerated::text
           || ' ' || a.attidentity::text || ' ' || a.attcollation::regcollation::text || ' ' || a.attnum
       FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
       LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
       WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v', 'c')""",
    """SELECT c.relkind::text, c.relname, COALESCE(c.reloptions::text, ''), c.relpersistence::text FROM pg_class c
       WHERE c.relnamespace = $1::text::regnamespace""",
    """SELECT 'constraint', conname, COALESCE(conrelid::regclass::text, ''), pg_get_constraintdef(oid)
       FROM pg_constraint WHERE connamespace = $1::text::regnamespace AND contype <> 'n'""",
    """SELECT 'index', indexrelid::regclass::text, '', pg_get_indexdef(indexrelid)
       FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relnamespace = $1::text::regnamespace""",
    """SELECT 'function', oid::regprocedure::text, COALESCE(proacl::text, ''), pg_get_functiondef(oid)
       FROM pg_proc WHERE pronamespace = $1::text::regnamespace""",
    """SELECT 'view', viewname, '', definition FROM pg_views WHERE schemaname = $1""",
    """SELECT 'trigger', tgname, tgrelid::regclass::text, pg_get_triggerdef(t.oid) FROM pg_trigger t
       JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = $1::text::regnamespace AND NOT tgisinternal""",
)


async def catalogue(connection: asyncpg.Connection, schema: str) -> set[tuple[str, str, str, str]]:
    """Every table, column, constraint, index, function, view and trigger of the schema."""
    await connection.execute(f'SET search_path = "{schema}"')
    found: set[tuple[str, str, str, str]] = set()
    for query in _QUERIES:
        found.update(tuple(row) for row in await connection.fetch(query, schema))
    await connection.execute("RESET search_path")
    return found
