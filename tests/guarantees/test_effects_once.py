"""A worker's own writes and the end of its work commit in one transaction, or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import asyncpg
import pytest

from tests.scenario import T0, Given, Message, RowsWorker, release, renewal, seconds
from whippletree.claim.held import LEASE_LOST
from whippletree.message.outcome import MessageCompletion
from whippletree.settings import Dsn

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture
async def effects(db: asyncpg.Connection) -> None:
    await db.execute("CREATE TABLE effects (message_id uuid)")


@pytest.fixture
def alice(pool: Pool) -> RowsWorker:
    return RowsWorker(pool, "alice", lease_seconds=30)


@pytest.fixture
def bob(pool: Pool) -> RowsWorker:
    return RowsWorker(pool, "bob", lease_seconds=30)


async def test_effects_and_completion_commit_together(
    given: Given, alice: RowsWorker, pool: Pool, db: asyncpg.Connection, effects: None
) -> None:
    (message,) = await given.outbox()
    assert await alice.claims() == [message]

    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("INSERT INTO effects VALUES ($1)", message.message_id)
        handed_in = await alice.coordinator.report([MessageCompletion(message.message_id)], on=connection, as_of=T0)
        assert not handed_in.rejected
        assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 1
    handed_in.settle()

    assert await counts(db) == (1, 0)
    assert len(alice.coordinator.held) == 0


async def test_a_transaction_that_is_rolled_back_leaves_the_work_in_hand(
    given: Given, alice: RowsWorker, pool: Pool, db: asyncpg.Connection, effects: None
) -> None:
    (message,) = await given.outbox()
    await alice.claims()

    with pytest.raises(ZeroDivisionError):
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("INSERT INTO effects VALUES ($1)", message.message_id)
            await alice.coordinator.report([MessageCompletion(message.message_id)], on=connection, as_of=T0)
            raise ZeroDivisionError

    assert await counts(db) == (0, 1)
    async with pool.acquire() as connection, connection.transaction():
        handed_in = await alice.coordinator.report([MessageCompletion(message.message_id)], on=connection, as_of=T0)
    assert not handed_in.rejected


async def test_a_holder_that_lost_its_lease_is_told_before_its_effects_commit(
    given: Given, alice: RowsWorker, bob: RowsWorker, pool: Pool, db: asyncpg.Connection, effects: None
) -> None:
    (message,) = await given.outbox()
    await alice.claims()
    assert await bob.claims(as_of=T0 + seconds(31)) == [Message(message.message_id)]

    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("INSERT INTO effects VALUES ($1)", message.message_id)
        handed_in = await alice.coordinator.report(
            [MessageCompletion(message.message_id)], on=connection, as_of=T0 + seconds(31)
        )
        assert [rejection.message_id for rejection in handed_in.rejected] == [message.message_id]
        await transaction.rollback()

    assert await counts(db) == (0, 1)


class SlowlyRead(asyncpg.Connection):
    """A connection whose answers lie there for a while before anybody reads them."""

    meanwhile: Callable[[], Awaitable[None]]

    async def fetch(self, *arguments: Any, **options: Any) -> Any:
        rows = await super().fetch(*arguments, **options)
        await self.meanwhile()
        return rows


@pytest.mark.parametrize("comes_again", [False, True], ids=["it is heard elsewhere", "the message comes again"])
async def test_a_refusal_holds_though_the_lease_is_known_to_be_lost_by_the_time_that_it_is_read(
    given: Given, alice: RowsWorker, bob: RowsWorker, dsn: Dsn, comes_again: bool
) -> None:
    (message,) = await given.outbox()
    await alice.claims()
    as_of = T0 + seconds(31)
    assert await bob.claims(as_of=as_of) == [message]

    async def loop_goes_on() -> None:
        if comes_again:
            await bob.reports(release(message), as_of=as_of)
            assert await alice.claims(as_of=as_of) == [message]
        else:
            await alice.reports(renewal(message), as_of=as_of)
            assert alice.rejected == [(message.message_id, LEASE_LOST)]

    connection = await asyncpg.connect(dsn.reveal(), connection_class=SlowlyRead)
    try:
        async with connection.transaction():
            connection.meanwhile = loop_goes_on
            done = MessageCompletion(message.message_id)
            handed_in = await alice.coordinator.report([done], on=connection, as_of=as_of)
            assert [rejection.message_id for rejection in handed_in.rejected] == [message.message_id]
    finally:
        await connection.close()
    handed_in.forget()
    assert len(alice.coordinator.held) == comes_again, "what came again is in hand"


async def counts(db: asyncpg.Connection) -> tuple[int, int]:
    """Effects, and messages that are not finished."""
    return await db.fetchval("SELECT count(*) FROM effects"), await db.fetchval("SELECT count(*) FROM wh_outbox")
