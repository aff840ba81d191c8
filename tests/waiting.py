"""Bounded waiting for what can be observed, in place of sleeping."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg

_WAITING_FOR_A_LOCK = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def until(condition: Callable[[], Awaitable[Any] | Any], *, seconds: float = 60) -> Any:
    """The first true value of a condition, looked at a hundred times a second."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if found := await found if inspect.isawaitable(found) else found:
                return found
            # A condition that does not wait itself would otherwise keep everybody from their turn, the limit too.
            await _a_moment()


async def until_somebody_waits(db: asyncpg.Connection) -> None:
    """Until a session of this database waits for a lock."""
    await until(lambda: how_many_wait(db))


async def how_many_wait(db: asyncpg.Connection) -> int:
    """How many sessions of this database wait for a lock. Other tests may share the server, not the database."""
    return int(await db.fetchval(_WAITING_FOR_A_LOCK))


async def _a_moment() -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
