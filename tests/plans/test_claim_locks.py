"""A claim locks what it returns: whatever else is ready stays free for the others."""

from __future__ import annotations

import asyncpg

from tests.conftest import Connect
from tests.scenario import T0, Given
from whippletree.message.ids import new_instance_id, new_message_id

_CLAIM = "SELECT * FROM claim_messages($1, 'outbox', $2, 300, 100, 16777216, 10, '-infinity', $3)"
_FREE = "SELECT count(*) FROM (SELECT FROM wh_active_streams FOR NO KEY UPDATE SKIP LOCKED) s"


async def test_a_claim_locks_no_stream_that_it_does_not_return(
    given: Given, db: asyncpg.Connection, connect: Connect
) -> None:
    instance_id = await _joined(db)
    for _ in range(30):
        await given.outbox(stream=new_message_id(), count=2)
    other = await connect()

    async with db.transaction():
        claimed = await db.fetch(_CLAIM, instance_id, 20, T0)
        # The last run is known to be full only when one message has been looked at after it.
        assert 30 - await other.fetchval(_FREE) in (
            len({row["stream_id"] for row in claimed}) + ahead for ahead in (0, 1)
        )
        assert len(claimed) == 20


async def test_a_claim_that_reaches_its_limit_within_a_stream_locks_that_stream_alone(
    given: Given, db: asyncpg.Connection, connect: Connect
) -> None:
    instance_id = await _joined(db)
    await given.outbox(count=50)
    for _ in range(10):
        await given.outbox(stream=new_message_id(), as_of=T0)
    other = await connect()

    async with db.transaction():
        claimed = await db.fetch(_CLAIM, instance_id, 20, T0)
        assert len(claimed) == 20
        assert await other.fetchval(_FREE) == 10


async def _joined(db: asyncpg.Connection) -> object:
    """An instance that owns every partition."""
    instance_id = new_instance_id()
    await db.execute("SELECT record_heartbeat($1, 'locks', 'test', 1, '{}', false, $2)", instance_id, T0)
    await db.execute("SELECT own_partitions($1, NULL, $2)", instance_id, T0)
    return instance_id
