"""Whether the database can be worked with: it answers, and its schema is the one that this program knows."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import asyncpg

from whippletree.errors import Error
from whippletree.store.database import translated
from whippletree.store.schema import require_schema
from whippletree.work import log


class DatabaseReadiness(Protocol):
    """Asked before work is claimed, until the first call has succeeded and after every one that failed."""

    async def is_ready(self) -> bool:
        """Whether work can be claimed now. Never raises."""


class SchemaReadiness:
    """The database is ready when the schema is installed and as new as this program."""

    def __init__(
        self, connections: asyncpg.Pool[asyncpg.Record], *, schema: str = "whippletree", patience: float = 5
    ) -> None:
        self._connections = connections
        self._schema = schema
        self._patience = patience

    async def is_ready(self) -> bool:
        try:
            async with asyncio.timeout(self._patience):
                with translated():
                    async with self._connections.acquire() as connection:
                        await require_schema(cast(asyncpg.Connection, connection), self._schema)
        except (Error, TimeoutError) as error:
            log.not_ready(error)
            return False
        return True
