"""What an instance tidies up every few minutes, beside its work."""

from __future__ import annotations

import asyncio
import random

import asyncpg

from whippletree.store.deduplication import forget_messages
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
