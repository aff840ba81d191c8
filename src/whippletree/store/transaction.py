"""The transaction that a user's function works in. What it writes commits together with the end of its message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import asyncpg
    import asyncpg.pool

Connection: TypeAlias = "asyncpg.Connection | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"


class Transaction:
    """Runs SQL in the transaction at hand. It is committed for you, or rolled back when your function raises.

    `connection` is the asyncpg connection itself, for whatever is not offered here; never commit on it.
    """

    __slots__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def execute(self, query: str, *arguments: object) -> str:
        """Run a statement; the answer is its tag, such as `UPDATE 1`."""
        return await self.connection.execute(query, *arguments)

    async def executemany(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement once for each row."""
        await self.connection.executemany(query, rows)

    async def fetch(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        """All rows."""
        return await self.connection.fetch(query, *arguments)

    async def fetchrow(self, query: str, *arguments: object) -> asyncpg.Record | None:
        """The first row."""
        return await self.connection.fetchrow(query, *arguments)

    async def fetchval(self, query: str, *arguments: object) -> Any:
        """The first column of the first row."""
        return await self.connection.fetchval(query, *arguments)
