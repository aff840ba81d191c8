"""Bounded waiting for what can be observed, in place of sleeping."""

from __future__ import annotations

import asyncio

import asyncpg

_WAITING_FOR_A_LOCK = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def until_somebody_waits(db: asyncpg.Connection) -> None:
    """Until a session of this database waits for a lock."""
    async with asyncio.timeout(30):
        while not await how_many_wait(db):
            pass


async def how_many_wait(db: asyncpg.Connection) -> int:
    """How many sessions of this database wait for a lock. Other tests may share the server, not the database."""
    return int(await db.fetchval(_WAITING_FOR_A_LOCK))
