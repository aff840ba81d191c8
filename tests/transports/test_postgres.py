"""What is particular to publishing straight into the inboxes of the same database."""

from __future__ import annotations

from uuid import uuid4

import asyncpg

from tests.transports.bus import RECEIVER, TOPIC
from tests.transports.mail import arrived, claim, order, send, streams_of, waiting
from tests.transports.relay import coordinator_of
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.dispatch.transport import PublishResult
from whippletree.message.codec import encode
from whippletree.message.envelope import ClaimedMessage
from whippletree.store.schema import migrate
from whippletree.transports.postgres import PostgresTransport

Results = dict[tuple[object, int], PublishResult]


async def publish(
    transport: PostgresTransport, coordinator: WorkCoordinator, messages: list[ClaimedMessage] | None = None
) -> Results:
    batch = messages or await claim(coordinator)
    outcomes = await transport.publish_batch(batch)
    return {(m.stream_id, m.version): o.result for m, o in zip(batch, outcomes, strict=True)}


async def test_a_stream_whose_lease_is_lost_is_not_stored_and_the_others_are(
    receiver_schema: str, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    lost, held = uuid4(), uuid4()
    await send(db, *(order(stream) for stream in (lost, held) for _ in range(3)))
    coordinator = coordinator_of(pool)
    transport = PostgresTransport(pool, coordinator.report, {TOPIC: [receiver_schema]})
    messages = list(await claim(coordinator))
    await db.execute("UPDATE wh_active_streams SET lease_token = lease_token + 1000 WHERE stream_id = $1", lost)
    results = await publish(transport, coordinator, messages)
    assert {results[lost, version] for version in (1, 2, 3)} == {PublishResult.NOT_SENT}
    assert {results[held, version] for version in (1, 2, 3)} == {PublishResult.COMPLETED}
    assert set(streams_of(await arrived(db))) == {held}
    assert await waiting(db) == 3


async def test_nothing_is_stored_once_another_instance_has_taken_over(
    receiver_schema: str, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await send(db, order(), order())
    coordinator = coordinator_of(pool)
    transport = PostgresTransport(pool, coordinator.report, {TOPIC: [receiver_schema]})
    messages = list(await claim(coordinator))
    await db.execute("SELECT leave($1)", coordinator.instance.instance_id)
    assert len(await claim(coordinator_of(pool))) == 2
    assert set((await publish(transport, coordinator, messages)).values()) == {PublishResult.NOT_SENT}
    assert await arrived(db) == []
    assert await waiting(db) == 2


async def test_a_message_that_an_inbox_does_not_take_stops_its_stream_and_no_other(
    receiver_schema: str, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    sick, well = uuid4(), uuid4()
    await db.execute(f"UPDATE {RECEIVER}.wh_settings SET max_payload_bytes = 2000")
    large = encode({"text": "x" * 3000})
    await send(db, order(sick), order(well), order(sick, payload=large), order(well), order(sick))
    coordinator = coordinator_of(pool)
    transport = PostgresTransport(pool, coordinator.report, {TOPIC: [receiver_schema]})
    results = await publish(transport, coordinator)
    assert [results[sick, version] for version in (1, 2, 3)] == [
        PublishResult.COMPLETED,
        PublishResult.FAILED,
        PublishResult.NOT_SENT,
    ]
    assert [results[well, version] for version in (1, 2)] == [PublishResult.COMPLETED] * 2
    assert {stream: len(ids) for stream, ids in streams_of(await arrived(db)).items()} == {sick: 1, well: 2}


async def test_a_topic_goes_to_every_inbox_that_takes_it_or_to_none(
    receiver_schema: str, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await migrate(db, "shipping")
    coordinator = coordinator_of(pool)
    inboxes = {TOPIC: ["shipping", receiver_schema], "audit": []}
    transport = PostgresTransport(pool, coordinator.report, inboxes)
    await send(db, order(), order(topic="audit"))
    assert set((await publish(transport, coordinator)).values()) == {PublishResult.COMPLETED}
    assert len(await arrived(db)) == 1
    assert await db.fetchval("SELECT count(*) FROM shipping.wh_inbox") == 1
    assert await waiting(db) == 0
    assert len(coordinator.held) == 0
