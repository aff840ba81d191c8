"""What is particular to NATS JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from uuid import UUID, uuid4

import asyncpg
import nats
import pytest
from nats.js import api

from tests.transports.bus import TOPIC, NatsBus, run_receiver
from tests.transports.mail import claim, order, send, streams_of, until_there_are
from tests.transports.relay import coordinator_of, relaying
from tests.waiting import until
from whippletree.dispatch.transport import Delivery, PublishResult, Subscription
from whippletree.errors import InvalidSetting
from whippletree.message import wire
from whippletree.message.codec import encode
from whippletree.message.envelope import ClaimedMessage
from whippletree.transports.nats import NatsTransport


async def stored(url: str) -> list[nats.js.api.RawStreamMsg]:
    """What JetStream holds."""
    client = await nats.connect(url)
    jetstream = client.jsm()
    last = (await jetstream.stream_info("whippletree")).state.last_seq
    found = [await jetstream.get_msg("whippletree", seq) for seq in range(1, last + 1)]
    await client.close()
    return found


async def make_stream(url: str, **settings: object) -> None:
    client = await nats.connect(url)
    config = {"name": "whippletree", "subjects": ["whippletree.>"], **settings}
    await client.jsm().add_stream(api.StreamConfig(**config))  # type: ignore[arg-type] # as the tests give them
    await client.close()


async def claimed(pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection, count: int) -> Sequence[ClaimedMessage]:
    stream = uuid4()
    await send(db, *(order(stream) for _ in range(count)))
    return await claim(coordinator_of(pool))


def headers_of(message: nats.js.api.RawStreamMsg) -> dict[str, str]:
    return message.headers or {}


async def test_a_batch_is_stored_as_a_whole_where_the_stream_allows_it(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    messages = await claimed(pool, db, 20)
    outcomes = await nats_bus.shared.publish_batch(messages)
    assert {outcome.result for outcome in outcomes} == {PublishResult.PUBLISHED}
    found = await stored(nats_bus.address)
    assert len({headers_of(message)["Nats-Batch-Id"] for message in found}) == 1
    assert [headers_of(message)["Nats-Msg-Id"] for message in found] == [str(one.message_id) for one in messages]
    assert [wire.decode(message.data or b"").version for message in found] == list(range(1, 21))


async def test_a_few_messages_go_one_by_one_which_is_quicker(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    streams = [uuid4() for _ in range(10)]
    await send(db, *(order(stream) for stream in streams for _ in range(3)))
    messages = await claim(coordinator_of(pool))
    outcomes = await nats_bus.shared.publish_batch(messages)
    assert {outcome.result for outcome in outcomes} == {PublishResult.PUBLISHED}
    found = await stored(nats_bus.address)
    assert not any("Nats-Batch-Id" in headers_of(message) for message in found)
    arrived = [wire.decode(message.data or b"") for message in found]
    assert all([one.version for one in arrived if one.stream_id == stream] == [1, 2, 3] for stream in streams)


async def test_messages_go_one_by_one_when_one_of_them_is_stored_already(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    messages = await claimed(pool, db, 10)
    await nats_bus.shared.publish_batch(messages[:4])
    outcomes = await nats_bus.shared.publish_batch(messages)
    assert {outcome.result for outcome in outcomes} == {PublishResult.PUBLISHED}
    found = await stored(nats_bus.address)
    assert [headers_of(message)["Nats-Msg-Id"] for message in found] == [str(one.message_id) for one in messages]


async def test_messages_go_one_by_one_where_the_stream_does_not_allow_batches(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await make_stream(nats_bus.address)
    messages = await claimed(pool, db, 10)
    outcomes = await nats_bus.shared.publish_batch(messages)
    assert {outcome.result for outcome in outcomes} == {PublishResult.PUBLISHED}
    found = await stored(nats_bus.address)
    assert [headers_of(message)["Nats-Msg-Id"] for message in found] == [str(one.message_id) for one in messages]


async def test_a_message_that_the_server_refuses_stops_its_stream_and_no_other(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await make_stream(nats_bus.address, max_msg_size=2000, allow_atomic=True)
    sick, well = uuid4(), uuid4()
    large = encode({"text": "x" * 3000})
    await send(db, order(sick), order(well), order(sick, payload=large), order(well), order(sick), order(well))
    messages = await claim(coordinator_of(pool))
    outcomes = await nats_bus.shared.publish_batch(messages)
    results: dict[tuple[UUID, int], PublishResult] = {}
    for message, outcome in zip(messages, outcomes, strict=True):
        results[message.stream_id, message.version] = outcome.result
    assert [results[sick, v] for v in (1, 2, 3)] == [
        PublishResult.PUBLISHED,
        PublishResult.FAILED,
        PublishResult.NOT_SENT,
    ]
    assert [results[well, v] for v in (1, 2, 3)] == [PublishResult.PUBLISHED] * 3
    assert len(await stored(nats_bus.address)) == 4


async def test_a_message_too_large_for_the_server_is_refused_before_it_is_sent(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await db.execute("UPDATE wh_settings SET max_payload_bytes = 4000000")
    large = '"' + "x" * 1_100_000 + '"'
    await db.execute(
        "INSERT INTO wh_outbox (message_type, topic, payload) VALUES ('Large', $1, $2::text::json)", TOPIC, large
    )
    (outcome,) = await nats_bus.shared.publish_batch(await claim(coordinator_of(pool)))
    assert outcome.result is PublishResult.FAILED
    assert "bytes" in outcome.reason


async def test_a_trace_is_continued_in_the_headers_of_nats(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await db.execute(
        "INSERT INTO wh_outbox (message_type, topic, payload, headers) VALUES ('Traced', $1, '{}', $2)",
        TOPIC,
        '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a\\r\\nb: c"}',
    )
    await nats_bus.shared.publish_batch(await claim(coordinator_of(pool)))
    (found,) = await stored(nats_bus.address)
    assert headers_of(found)["traceparent"].startswith("00-0af7651916cd43dd")
    assert "tracestate" not in headers_of(found), "a line break would make another header"


async def test_what_a_dead_receiver_had_in_hand_comes_again_before_what_follows_it(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    messages = await claimed(pool, db, 30)
    await nats_bus.shared.publish_batch(messages)
    async with NatsTransport([nats_bus.address]) as dying, dying.subscribe([TOPIC], group="billing") as subscription:
        taken = await at_least(subscription, 10)
        await subscription.ack(taken[:4])
        # From here on it says nothing any more, not even that it leaves.
        await dying._link.close()
    async with nats_bus.receiving(batch_size=7):
        rows = await until_there_are(db, 26)
        await until(nats_bus.owes_nothing)
    assert streams_of(rows) == {messages[0].stream_id: [one.message_id for one in messages[4:]]}


async def test_one_instance_receives_and_another_stands_by(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    stream = uuid4()
    messages = [order(stream) for _ in range(200)]
    # However slow this machine is, nobody is taken for dead.
    async with (
        NatsTransport([nats_bus.address], takeover=100) as one,
        NatsTransport([nats_bus.address], takeover=100) as other,
        run_receiver(one, pool, batch_size=5) as first,
        run_receiver(other, pool, batch_size=5) as second,
        relaying(pool, nats_bus.transport),
    ):
        for start in range(0, 200, 20):
            await send(db, *messages[start : start + 20])
            await until_there_are(db, start + 20)
        rows = await until_there_are(db, 200)
    assert streams_of(rows) == {stream: [message.message_id for message in messages]}
    assert min(first.counters.deliveries_stored, second.counters.deliveries_stored) == 0, "one of them stood by"


async def test_a_standby_takes_over_in_order(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    stream = uuid4()
    messages = [order(stream) for _ in range(60)]
    async with (
        NatsTransport([nats_bus.address]) as leaving,
        relaying(pool, nats_bus.transport),
        leaving.subscribe([TOPIC], group="billing") as subscription,
    ):
        await send(db, *messages[:30])
        taken = await at_least(subscription, 5)
        await subscription.ack(taken[:2])
        async with nats_bus.receiving(batch_size=8):
            await send(db, *messages[30:])
            rows = await until_there_are(db, 58)
    assert streams_of(rows) == {stream: [message.message_id for message in messages[2:]]}


async def test_order_is_kept_while_receivers_come_and_go(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    streams = [uuid4() for _ in range(3)]
    messages = [order(streams[number % 3]) for number in range(240)]
    async with relaying(pool, nats_bus.transport, batch_size=10), AsyncExitStack() as stack:
        for turn in range(3):
            transport = await stack.enter_async_context(NatsTransport([nats_bus.address]))
            async with NatsBusBeside(pool, nats_bus, transport).receiving(batch_size=3):
                await send(db, *messages[80 * turn : 80 * turn + 80])
                # Ended in the middle of it, whatever it has in hand.
                await until_there_are(db, 80 * turn + 25)
        async with nats_bus.receiving():
            rows = await until_there_are(db, 240)
    assert streams_of(rows) == {
        stream: [message.message_id for message in messages if message.stream == stream] for stream in streams
    }


async def test_receiving_goes_on_after_an_outage(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    stream = uuid4()
    messages = [order(stream) for _ in range(40)]
    async with nats_bus.receiving(batch_size=3), relaying(pool, nats_bus.transport) as relay:
        await send(db, *messages[:20])
        await until_there_are(db, 5)
        async with nats_bus.outage():
            await send(db, *messages[20:])
            await until(lambda: relay.outage.ongoing)
        rows = await until_there_are(db, 40)
    assert streams_of(rows) == {stream: [message.message_id for message in messages]}


async def test_two_groups_get_every_message_each(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    messages = await claimed(pool, db, 5)
    await nats_bus.shared.publish_batch(messages)
    for group in ("billing", "shipping"):
        async with nats_bus.shared.subscribe([TOPIC], group=group) as subscription:
            taken = await at_least(subscription, 5)
            assert [wire.decode(one.body).message_id for one in taken] == [one.message_id for one in messages]


async def test_a_topic_that_is_added_later_is_received(
    nats_bus: NatsBus, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    coordinator = coordinator_of(pool)
    async with nats_bus.shared.subscribe([TOPIC], group="billing") as subscription:
        await send(db, order())
        await nats_bus.shared.publish_batch(await claim(coordinator))
        await subscription.ack(await at_least(subscription, 1))
    await send(db, order(topic="orders.shipped"))
    await nats_bus.shared.publish_batch(await claim(coordinator))
    async with nats_bus.shared.subscribe([TOPIC, "orders.shipped"], group="billing") as subscription:
        (shipped,) = await at_least(subscription, 1)
        assert shipped.topic == "orders.shipped"


def test_names_that_cannot_be_subjects_are_refused_at_once() -> None:
    transport = NatsTransport()
    for topic in ("", "a b", "a..b", "*", "orders.>", "\x07", "x" * 1001):
        with pytest.raises(InvalidSetting, match="cannot be a NATS subject"):
            transport.subscribe([topic], group="billing")
    with pytest.raises(InvalidSetting, match="consumer"):
        transport.subscribe([TOPIC], group="bill.ing")
    with pytest.raises(InvalidSetting, match="JetStream stream"):
        NatsTransport.at("nats://bus", stream="a b")
    with pytest.raises(InvalidSetting, match="takeover"):
        NatsTransport.at("nats://bus", takeover=0.1)


class NatsBusBeside(NatsBus):
    """Another instance of the receiving service, with a connection of its own."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], bus: NatsBus, transport: NatsTransport) -> None:
        self.pool, self.server, self.shared = pool, bus.server, transport


async def at_least(subscription: Subscription, count: int) -> list[Delivery]:
    taken: list[Delivery] = []
    async with asyncio.timeout(60):
        while len(taken) < count:
            taken += await subscription.receive(count - len(taken))
    return taken
