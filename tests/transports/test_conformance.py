"""What every transport keeps to, on its real server: from one service's outbox to another service's inbox."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.conftest import Connect
from tests.transports.bus import RECEIVER, TOPIC, Bus
from tests.transports.mail import (
    arrived,
    claim,
    dead_letters,
    order,
    send,
    streams_of,
    until_all_have_left,
    until_there_are,
    waiting,
)
from tests.transports.relay import QUICK, coordinator_of, relaying
from tests.waiting import until, until_somebody_waits
from whippletree.dispatch.transport import PublishResult
from whippletree.message.envelope import InboxMessage, OutboxMessage, Queue
from whippletree.settings import Dsn
from whippletree.store.inbox import store_inbox
from whippletree.store.outbox import store_outbox

ROOT = Path(__file__).parents[2]


async def test_every_stream_arrives_in_the_order_of_its_commits(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection, connect: Connect
) -> None:
    streams = [uuid4() for _ in range(25)]
    sent: dict[UUID, dict[int, UUID]] = {stream: {} for stream in streams}

    async def produce(seed: int) -> None:
        connection, chance = await connect(), random.Random(seed)
        for _ in range(25):
            batch = [order(chance.choice(streams)) for _ in range(chance.randint(1, 8))]
            versions = await store_outbox(batch, on=connection)
            for message, version in zip(batch, versions, strict=True):
                assert isinstance(message.stream, UUID)
                sent[message.stream][version] = message.message_id

    async with bus.receiving(), relaying(pool, bus.transport), relaying(pool, bus.transport, batch_size=7):
        await asyncio.gather(*(produce(seed) for seed in range(4)))
        await until_all_have_left(db)
        rows = await until_there_are(db, sum(map(len, sent.values())))
    expected = {stream: [ids[version] for version in sorted(ids)] for stream, ids in sent.items() if ids}
    assert streams_of(rows) == expected


async def test_a_message_arrives_to_the_letter_with_all_that_belongs_to_it(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    payload = '{"z": 1.10,  "a":\t[1e2, -0.0, 12345678901234567],\n "ü": "\\u00e9\\ud83d\\ude00 é", "a2": {"b": null}}'
    headers = '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",  "tenant": "süd"}'
    stream, correlation, causation = uuid4(), uuid4(), uuid4()
    first = order(stream)
    second = OutboxMessage(
        message_type="OrderPlaced",
        payload=payload,
        topic=TOPIC,
        stream=stream,
        headers=headers,
        correlation_id=correlation,
        causation_id=causation,
    )
    alone = OutboxMessage(message_type="Ping", payload="null", topic=TOPIC)
    async with bus.receiving(), relaying(pool, bus.transport):
        await send(db, first, second, alone)
        rows = {row["message_id"]: row for row in await until_there_are(db, 3)}
    row = rows[second.message_id]
    assert (row["payload"], row["headers"], row["topic"]) == (payload, headers, TOPIC)
    assert (row["correlation_id"], row["causation_id"]) == (correlation, causation)
    assert (row["stream_id"], row["version"], row["message_type"]) == (stream, 2, "OrderPlaced")
    assert rows[alone.message_id]["stream_id"] is None


async def test_what_is_published_twice_is_accepted_once(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    stream = uuid4()
    await send(db, *(order(stream) for _ in range(5)), order())
    coordinator = coordinator_of(pool)
    transport = bus.transport(coordinator)
    messages = await claim(coordinator)
    async with bus.receiving():
        await transport.publish_batch(messages[:3])
        await transport.publish_batch(messages[3:])
        await transport.publish_batch(messages)
        rows = await until_there_are(db, 6)
    assert sorted(row["message_id"] for row in rows) == sorted(message.message_id for message in messages)
    assert streams_of(rows)[stream] == [message.message_id for message in messages if message.stream_id == stream]


async def test_a_relay_killed_between_publishing_and_completing_loses_and_doubles_nothing(
    bus: Bus, kind: str, dsn: Dsn, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    streams = [uuid4() for _ in range(4)]
    messages = [order(stream) for stream in streams for _ in range(5)]
    await send(db, *messages)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.transports.relay_process", dsn.reveal(), kind, bus.address),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"published\n"
    finally:
        process.kill()
        await process.wait()
    if kind == "postgres":
        assert await waiting(db) == 0, "published and completed are one"
    else:
        assert await waiting(db) == len(messages)
    # What its free session lock would tell the others.
    await db.execute("SELECT leave(instance_id) FROM wh_service_instances")

    async with bus.receiving(), relaying(pool, bus.transport):
        await until_all_have_left(db)
        rows = await until_there_are(db, len(messages))
    assert streams_of(rows) == {
        stream: [message.message_id for message in messages if message.stream == stream] for stream in streams
    }
    assert await dead_letters(db) == []


async def test_an_outage_costs_neither_messages_nor_attempts_nor_a_hot_loop(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    streams = [uuid4() for _ in range(3)]
    messages = [order(stream) for stream in streams for _ in range(4)]
    began = time.monotonic()
    async with relaying(pool, bus.transport) as relay:
        async with bus.outage():
            await send(db, *messages)
            await until(lambda: relay.outage.probes >= 3)
            assert relay.wants({}) == {Queue.OUTBOX: 0}
            assert relay.counters.outbox_published == 0
            rows = await db.fetch("SELECT attempts, error, instance_id FROM wh_outbox")
            assert [tuple(row) for row in rows] == [(0, None, None)] * len(messages)
        async with bus.receiving():
            await until_all_have_left(db)
            rows = await until_there_are(db, len(messages))
        least_pause = QUICK.first_pause / 2
        assert relay.outage.probes <= (time.monotonic() - began) / least_pause
    assert streams_of(rows) == {
        stream: [message.message_id for message in messages if message.stream == stream] for stream in streams
    }


async def test_a_bad_message_stops_only_its_own_stream(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    sick, well = uuid4(), uuid4()
    before, bad, after = order(sick), order(sick, topic="no such topic"), order(sick)
    good = [order(well) for _ in range(3)]
    async with bus.receiving(), relaying(pool, bus.transport) as relay:
        await send(db, before, good[0], bad, good[1], after, good[2])
        rows = await until_there_are(db, 4)
        assert not relay.outage.ongoing

    assert streams_of(rows) == {sick: [before.message_id], well: [message.message_id for message in good]}
    left = await db.fetch("SELECT message_id, attempts, error FROM wh_outbox ORDER BY version")
    assert [row["message_id"] for row in left] == [bad.message_id, after.message_id]
    assert left[0]["attempts"] == 1
    assert "no such topic" in left[0]["error"]


async def test_what_follows_a_bad_message_in_one_batch_is_not_sent(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    stream = uuid4()
    await send(db, order(stream), order(stream, topic="no such topic"), order(stream), order())
    coordinator = coordinator_of(pool)
    transport = bus.transport(coordinator)
    messages = await claim(coordinator)
    async with bus.receiving():
        outcomes = await transport.publish_batch(messages)
    results = {
        message.version: outcome.result
        for message, outcome in zip(messages, outcomes, strict=True)
        if message.stream_id == stream
    }
    assert results[1] in (PublishResult.PUBLISHED, PublishResult.COMPLETED)
    assert (results[2], results[3]) == (PublishResult.FAILED, PublishResult.NOT_SENT)


async def test_an_id_that_comes_with_another_body_is_kept_where_an_operator_sees_it(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    message = order()
    earlier = InboxMessage(message_id=message.message_id, message_type="OrderPlaced", payload='"another"')
    await store_inbox([earlier], on=db, schema=RECEIVER)
    async with bus.receiving(), relaying(pool, bus.transport):
        await send(db, message, order())
        await until_all_have_left(db)
        await until_there_are(db, 2)
    (letter,) = await dead_letters(db)
    assert (letter["message_id"], letter["reason"]) == (message.message_id, "conflict")
    assert letter["payload"] == message.payload
    assert len(await arrived(db)) == 2


async def test_a_relay_that_is_stopped_gives_back_what_it_has_not_published(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    async with bus.outage(), relaying(pool, bus.transport) as relay:
        await send(db, *(order() for _ in range(10)))
        await until(lambda: relay.outage.ongoing)
    rows = await db.fetch("SELECT attempts, instance_id FROM wh_outbox")
    if bus.address:
        assert relay.counters.outbox_published == 0
    assert all(tuple(row) == (0, None) for row in rows)


@pytest.mark.parametrize("kind", ["in_process", "nats"])
async def test_a_receiver_that_loses_its_database_stores_what_it_has_in_hand_when_it_is_back(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection, connect: Connect
) -> None:
    messages = [order(stream) for stream in (uuid4(), uuid4()) for _ in range(3)]
    blocker = await connect()
    async with bus.receiving(), relaying(pool, bus.transport):
        async with blocker.transaction():
            await blocker.execute(f"LOCK TABLE {RECEIVER}.wh_messages IN ACCESS EXCLUSIVE MODE")
            await send(db, *messages)
            await until_somebody_waits(db)
            await db.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'"""
            )
        rows = await until_there_are(db, len(messages))
        await until_all_have_left(db)
    assert sorted(streams_of(rows).values()) == sorted(
        [message.message_id for message in half] for half in (messages[:3], messages[3:])
    )
