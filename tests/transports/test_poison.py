"""Deliveries that cannot be handled are kept where an operator sees them, and do not come again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import uuid4

import asyncpg
import pytest

import whippletree as wt
from tests.transports.bus import RECEIVER, TOPIC, Bus, NatsBus, run_receiver
from tests.transports.mail import (
    arrived,
    dead_letters,
    order,
    send,
    streams_of,
    until_all_have_left,
    until_there_are,
)
from tests.transports.relay import relaying
from tests.waiting import until
from tests.work.shop import running
from whippletree.errors import InvalidSetting
from whippletree.message.codec import encode
from whippletree.message.envelope import OutboxMessage
from whippletree.service import Service
from whippletree.settings import Dsn
from whippletree.transports.nats import NatsTransport

_ENVELOPE = f'"message_id": "{uuid4()}", "message_type": "OrderPlaced", "topic": "{TOPIC}", "version": 1'
NO_MESSAGES = {
    "no text": b"\xff\x00 garbage",
    "nothing": b"",
    "no envelope": b"{}",
    "no payload": f"{{{_ENVELOPE}}}".encode(),
    "a wrong id": b'{"message_id": "no"}',
    "a wrong stream id": f'{{{_ENVELOPE}, "stream_id": "order-17", "payload": 1}}'.encode(),
    "a payload that is no JSON": f'{{{_ENVELOPE}, "payload": nonsense}}'.encode(),
}


@pytest.mark.parametrize("kind", ["in_process", "nats"])
async def test_a_delivery_that_is_no_message_is_parked_once_and_holds_up_nothing(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    async with bus.receiving(), relaying(pool, bus.transport):
        await send(db, order())
        await until_there_are(db, 1)
        for body in [*NO_MESSAGES.values()] * 2:
            await bus.deliver(body)
        await send(db, order())
        await until_there_are(db, 2)
        await until(bus.owes_nothing)
    letters = await dead_letters(db)
    assert len(letters) == len(NO_MESSAGES)
    assert {(letter["queue"], letter["topic"], letter["reason"]) for letter in letters} == {
        ("inbox", TOPIC, "not storable")
    }
    assert all(letter["error"].startswith("the delivery is not a message") for letter in letters)


@pytest.mark.parametrize("kind", ["in_process", "nats"])
async def test_a_message_too_large_for_the_inbox_keeps_its_place_in_its_stream(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    stream, payload = uuid4(), encode({"text": "x" * 5000})
    first, large, last = order(stream), order(stream, payload=payload), order(stream)
    alone = OutboxMessage(message_type="OrderPlaced", payload=payload, topic=TOPIC)
    await db.execute(f"UPDATE {RECEIVER}.wh_settings SET max_payload_bytes = 2000")
    async with bus.receiving(), relaying(pool, bus.transport):
        await send(db, first, large, last, alone)
        rows = await until_there_are(db, 3)
        await until_all_have_left(db)
        await until(bus.owes_nothing)
    assert [row["message_id"] for row in rows] == [first.message_id, large.message_id, last.message_id]
    assert rows[1]["message_type"] == "whippletree/unstorable"
    letters = await dead_letters(db)
    assert len(letters) == 2, "one without a stream needs nothing in its place"
    assert any(str(letter["message_id"]) in rows[1]["payload"] for letter in letters)
    assert all("x" * 5000 in letter["payload"] for letter in letters)


@pytest.mark.parametrize("kind", ["postgres"])
async def test_a_message_too_large_for_an_inbox_of_the_same_database_waits_in_the_outbox(
    bus: Bus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    sick, well = uuid4(), uuid4()
    large = order(sick, payload=encode({"text": "x" * 5000}))
    await db.execute(f"UPDATE {RECEIVER}.wh_settings SET max_payload_bytes = 2000")
    async with relaying(pool, bus.transport) as relay:
        await send(db, order(sick), large, order(sick), order(well))
        rows = await until_there_are(db, 2)
        await until(lambda: relay.counters.outbox_failed)
        assert not relay.outage.ongoing
    assert {stream: len(ids) for stream, ids in streams_of(rows).items()} == {sick: 1, well: 1}
    head, _ = await db.fetch("SELECT message_id, attempts, error FROM wh_outbox ORDER BY version")
    assert (head["message_id"], head["attempts"]) == (large.message_id, 1)
    assert "bytes" in head["error"]


@dataclass(frozen=True)
class OrderPlaced:
    total: int


async def test_a_message_that_nobody_handles_is_parked_and_stops_only_its_stream(
    bus: Bus, dsn: Dsn, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    app = wt.App("billing", dsn=dsn.reveal(), schema=RECEIVER)
    app.command()(OrderPlaced)
    seen: list[int] = []

    @app.receptor
    async def bill(command: OrderPlaced) -> None:
        seen.append(command.total)

    sick, well = uuid4(), uuid4()
    unheard = OutboxMessage(message_type="Unheard", payload="{}", topic=TOPIC, stream=sick)
    async with bus.receiving(), relaying(pool, bus.transport), running(app):
        await send(db, unheard, order(sick), order(well), order(well))
        await until_all_have_left(db)
        await until(lambda: db.fetchval(f"SELECT bool_or(parked) FROM {RECEIVER}.wh_inbox"))
        await until(lambda: len(seen) == 2)
        await until(bus.owes_nothing)
    head, behind = await arrived(db)
    assert (head["message_id"], head["parked"], head["attempts"]) == (unheard.message_id, True, 1)
    assert "Unheard" in head["error"]
    assert (behind["stream_id"], behind["attempts"]) == (sick, 0)


async def test_a_bus_that_keeps_messages_for_longer_than_the_inbox_knows_them_is_refused(
    nats_bus: NatsBus, dsn: Dsn, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    app = wt.App("billing", dsn=dsn.reveal(), schema=RECEIVER)
    app.transport(NatsTransport.at(nats_bus.address), receives=[TOPIC])
    await db.execute(f"SELECT {RECEIVER}.change_deduplication_retention('7 days')")
    with pytest.raises(InvalidSetting, match=r"keeps messages for ever.*after 7 days"):
        async with asyncio.timeout(60):
            await Service(app).run()


async def test_a_bus_that_forgets_before_the_inbox_does_is_received_from(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await db.execute(f"SELECT {RECEIVER}.change_deduplication_retention('7 days')")
    async with (
        NatsTransport([nats_bus.address], max_age=7 * 86400) as transport,
        run_receiver(transport, pool),
        relaying(pool, lambda _: transport),
    ):
        await send(db, order())
        await until_there_are(db, 1)
