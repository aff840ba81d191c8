"""Forgets message ids that the inbox need not know any more. For maintenance: claims and polls do not pay for it."""

from __future__ import annotations

import asyncpg

from whippletree.store.database import translated
from whippletree.store.statements import call

_BATCH = 5_000


async def forget_messages(
    connections: asyncpg.Pool[asyncpg.Record], *, schema: str = "whippletree", batch: int = _BATCH
) -> int:
    """Forget all message ids older than the retention of the installation; return how many. Without one, none.

    Works in batches, each in a transaction of its own, so that nobody waits long and a crash loses at most one batch.
    Any number of processes may do it at once; one of them works. Call it every few minutes.
    """
    statement = call(schema, "forget_messages", 1)
    forgotten = 0
    while True:
        with translated():
            count: int = await connections.fetchval(statement, batch)
        forgotten += count
        if count < batch:
            return forgotten
