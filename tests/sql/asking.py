"""How tests ask why."""

from __future__ import annotations

import asyncpg

from tests.scenario import T0, seconds


class Ask:
    """What `why` says, at a time after T0, or now."""

    def __init__(self, db: asyncpg.Connection) -> None:
        self._db = db

    async def __call__(self, thing: object, later: float = 0) -> str:
        rows = await self._db.fetch("SELECT why($1, $2)", str(thing), T0 + seconds(later))
        return "\n".join(row[0] for row in rows)

    async def now(self, thing: object) -> str:
        return "\n".join(row[0] for row in await self._db.fetch("SELECT why($1)", str(thing)))
