"""How a command asks the database: one SQL function, one connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from whippletree.settings import Settings

if TYPE_CHECKING:
    import asyncpg

PLACE = ("dsn", "direct_dsn", "schema", "data_directory")
"""The settings that say where the installation is."""


def rows(settings: Settings, function: str, *arguments: Any) -> list[asyncpg.Record]:
    """The rows that a SQL function answers."""
    return asyncio.run(_rows(settings, function, arguments))


def value(settings: Settings, function: str, *arguments: Any) -> Any:
    """The one value that a SQL function answers."""
    return rows(settings, function, *arguments)[0][0]


async def _rows(settings: Settings, function: str, arguments: tuple[Any, ...]) -> list[asyncpg.Record]:
    from whippletree.store import database
    from whippletree.store.statements import call

    async with database.connect(settings) as connection:
        with database.translated():
            return await connection.fetch(call(settings.schema, function, len(arguments)), *arguments)
