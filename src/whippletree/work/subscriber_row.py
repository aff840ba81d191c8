"""A subscriber's row: everything that its holder writes, each time under its epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import Enum
from typing import NamedTuple
from uuid import UUID

import asyncpg

from whippletree.dispatch.subscriber import Follower, InstanceMode, Start
from whippletree.errors import LeaseLost, StoreUnavailable
from whippletree.settings import valid_schema
from whippletree.store.database import is_gone, lent, translated
from whippletree.store.feed import Feed
from whippletree.store.statements import call
from whippletree.store.transaction import Connection, Transaction


class SubscriptionState(Enum):
    """What an instance does for a subscriber."""

    STANDBY = "standby"
    CATCHING_UP = "catching up"
    LIVE = "live"
    LOST = "lost"
    PARKED = "parked"


async def make_known(follower: Follower, feed: Feed, connections: asyncpg.Pool[asyncpg.Record], *, schema: str) -> None:
    """Give a follower its row, unless it has one, where it is to start."""
    start = await feed.last_number() if follower.start is Start.NOW else follower.start
    with translated():
        await connections.execute(
            call(schema, "register_subscriber", 4),
            follower.name,
            0 if start is Start.BEGINNING else start,
            follower.mode is InstanceMode.COORDINATED,
            list(follower.chosen.patterns or ()),
        )


class Position(NamedTuple):
    """Where a holder believes the subscriber to be: under an epoch, on the server that was started then."""

    checkpoint: int
    epoch: int
    server: datetime


class EffectsFailed(Exception):
    """What was to happen in a transaction raised."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class SubscriberRow:
    """Every call raises `LeaseLost` when the epoch is not the present one."""

    def __init__(self, name: str, connections: asyncpg.Pool[asyncpg.Record], *, schema: str) -> None:
        self._name = name
        self._connections = connections
        self._schema = valid_schema(schema)
        self._hold = call(schema, "hold_subscriber", 2)
        self._record = call(schema, "record_subscriber", 4)
        self._advance = call(schema, "advance_subscriber", 5)
        self._fail = call(schema, "fail_subscriber", 7)
        self._leave = call(schema, "leave_subscriber", 2)

    async def hold(self, instance_id: UUID) -> asyncpg.Record:
        """Begin under a new epoch; the row."""
        return await self._row(self._hold, self._name, instance_id)

    async def record(self, epoch: int, state: str, waiting: bool) -> asyncpg.Record:
        """Note what the holder does; the row."""
        return await self._row(self._record, self._name, epoch, state, waiting)

    async def advance(self, at: Position, through: int) -> None:
        """Move the checkpoint. Raises `CheckpointMoved` when it is not where the caller believes it to be."""
        await self._execute(self._advance, self._name, at.epoch, at.checkpoint, through, at.server)

    async def fail(self, at: Position, number: int, attempts: int, error: str, retry_seconds: float | None) -> None:
        """Note that an event failed; without a time it parks the subscriber."""
        await self._execute(self._fail, self._name, at.epoch, number, attempts, error, retry_seconds, at.server)

    async def leave(self, epoch: int) -> None:
        """Say that nobody follows; no attempt is counted against the next event."""
        await self._execute(self._leave, self._name, epoch)

    async def commit(self, at: Position, through: int, effects: Callable[[Transaction], Awaitable[None]]) -> None:
        """Effects and checkpoint in one transaction. Raises `EffectsFailed` when they do; then nothing happened."""
        moved = f"{at.epoch}, {at.checkpoint}, {through}, '{at.server.isoformat()}'"
        with translated():
            async with lent(self._connections) as connection:
                try:
                    await connection.execute(f"BEGIN; SELECT {self._at('enter_subscriber')}, {at.epoch})")
                    await self._effects(effects, connection)
                    # One message: a process that is stopped now cannot keep its row locked.
                    await connection.execute(f"SELECT {self._at('advance_subscriber')}, {moved}); COMMIT")
                except BaseException:
                    await _undo(connection)
                    raise

    async def _effects(self, effects: Callable[[Transaction], Awaitable[None]], connection: Connection) -> None:
        try:
            await effects(Transaction(connection))
        except Exception as error:
            if is_gone(connection):
                raise StoreUnavailable("the connection was lost in the middle of a transaction") from error
            raise EffectsFailed(error) from error

    async def _row(self, statement: str, *arguments: object) -> asyncpg.Record:
        with translated():
            row = await self._connections.fetchrow(statement, *arguments)
        if row is None:
            raise LeaseLost(f"there is no subscriber {self._name} any more")
        return row

    async def _execute(self, statement: str, *arguments: object) -> None:
        with translated():
            await self._connections.execute(statement, *arguments)

    def _at(self, function: str) -> str:
        """The beginning of a call. The name was validated when it was registered: it needs no escaping."""
        return f"\"{self._schema}\".{function}('{self._name}'"


async def _undo(connection: Connection) -> None:
    """End the transaction whatever state it is in, or the connection."""
    try:
        async with asyncio.timeout(5):
            await connection.execute("ROLLBACK")
    except BaseException:
        if not is_gone(connection):
            connection.terminate()
