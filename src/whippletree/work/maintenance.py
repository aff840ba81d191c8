"""What an instance tidies up beside its work."""

from __future__ import annotations

import asyncio
import random

import asyncpg

from whippletree.store.deduplication import forget_messages
from whippletree.store.statements import call
from whippletree.work import log


async def maintain(connections: asyncpg.Pool[asyncpg.Record], *, schema: str, interval: float) -> None:
    """Forget the message ids that are older than the retention of the installation, again and again, until cancelled.

    Every instance may do so: one at a time works, and without a retention there is nothing to do.
    """
    while True:
        try:
            if forgotten := await forget_messages(connections, schema=schema):
                log.forgotten(forgotten)
        except Exception as error:
            # Whatever it is: without this task ids would be kept for ever, silently.
            log.not_forgotten(error)
        await asyncio.sleep(random.uniform(interval / 2, interval))  # noqa: S311 - jitter


async def end_silent_transactions(
    connections: asyncpg.Pool[asyncpg.Record], lease_seconds: float, *, schema: str
) -> None:
    """End what other instances left open when they were stopped or cut off, again and again, until cancelled.

    Their leases run out by themselves, but a transaction keeps what it has locked, and who takes over would wait.
    """
    statement = call(schema, "end_silent_transactions", 1)
    while True:
        try:
            if ended := await connections.fetchval(statement, lease_seconds):
                log.ended_silent_transactions(ended)
        except Exception as error:
            # Whatever it is: without this task whoever takes over might wait for ever, silently.
            log.silent_transactions_not_ended(error)
        await asyncio.sleep(random.uniform(lease_seconds / 4, lease_seconds / 2))  # noqa: S311 - jitter
