"""Waiting for something that can be seen, never for time to pass."""

from __future__ import annotations

import asyncio

import asyncpg

_SOMEBODY_WAITS = """
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')
"""


async def until_somebody_waits(db: asyncpg.Connection) -> None:
    """Return once a session of this database waits for another's lock."""
    async with asyncio.timeout(10):
        while not await db.fetchval(_SOMEBODY_WAITS):
            pass
