"""Whether a pooler stands between us and the server. Then nothing that belongs to a session can be relied on."""

from __future__ import annotations

import secrets

import asyncpg


async def sharing(connection: asyncpg.Connection) -> str | None:
    """How it shows that a pooler stands between us and the server; None when the session is ours alone.

    The first sign works even on a quiet pooler, which gives back the same server connection every time: it greets its
    clients with process ids of its own making. A pooler in session mode is refused along with the others.
    """
    canary = secrets.token_hex(8)
    try:
        await connection.execute(f"SET whippletree.canary = '{canary}'")
        # Two texts, so that the second is not a statement that the driver has prepared on another server connection.
        first = await connection.fetchval("SELECT pg_backend_pid() AS first")
        second = await connection.fetchval("SELECT pg_backend_pid() AS second")
        seen = await connection.fetchval("SELECT current_setting('whippletree.canary', true)")
    except (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError):
        return "a pooler is in between: a prepared statement was gone by the time it was to run"
    if first != second:
        return "a pooler is in between: two calls in a row were answered by two server processes"
    if seen != canary:
        return "a pooler is in between: a session setting was gone at the next call"
    if first != connection.get_server_pid():
        return "a pooler is in between: another server process answers than the one that greeted us"
    return None
