"""A message is published in the caller's own transaction, whatever its driver, and goes where it belongs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

import whippletree as wt
from tests.conftest import Connect
from tests.store.callers import ALL, SYNC, Caller, calling
from tests.waiting import until_somebody_waits
from whippletree.errors import InvalidMessage, SchemaMismatch, UnknownName, UsageError, WrongVersion
from whippletree.message.ids import StreamId
from whippletree.settings import Dsn
from whippletree.store.event_store import EventStore

ORDER = UUID("5eed0000-0000-4000-8000-000000000001")


@dataclass(frozen=True)
class OrderPlaced:
    order_id: UUID
    total: int


@dataclass(frozen=True)
class OrderShipped:
    order_id: UUID


@dataclass(frozen=True)
class CancelOrder:
    order_id: UUID


@dataclass(frozen=True)
class ChargeCard:
    amount: int


@dataclass(frozen=True)
class Orphan:
    amount: int


@pytest.fixture
def app(dsn: Dsn) -> wt.App:
    app = wt.App("orders", dsn=dsn.reveal())
    app.event(stream="order_id")(OrderPlaced)
    app.event(stream="order_id", topic="shipping", shape=2)(OrderShipped)
    app.command(stream="order_id")(CancelOrder)
    app.command(topic="payments")(ChargeCard)
    app.command()(Orphan)

    @app.receptor
    async def cancel_order(command: CancelOrder) -> None: ...

    return app


@pytest.fixture
async def caller(driver: str, dsn: Dsn) -> AsyncIterator[Caller]:
    async with calling(driver, dsn) as caller:
        yield caller


@pytest.fixture
async def connected(app: wt.App) -> AsyncIterator[wt.App]:
    async with app.connected():
        yield app


async def published(app: wt.App, caller: Caller, message: object, **options: Any) -> wt.Receipt:
    if caller.driver in SYNC:
        return await asyncio.to_thread(app.publish_sync, message, on=caller.connection, **options)
    return await app.publish(message, on=caller.connection, **options)


@pytest.mark.parametrize("driver", ALL)
async def test_events_and_commands_commit_with_the_callers_own_work(
    app: wt.App, caller: Caller, db: asyncpg.Connection
) -> None:
    placed = await published(app, caller, OrderPlaced(ORDER, 5))
    shipped = await published(app, caller, OrderShipped(ORDER), expected_version=1)
    await published(app, caller, CancelOrder(ORDER))
    await published(app, caller, ChargeCard(5))
    later = await published(app, caller, CancelOrder(ORDER), after=3600, key="give up")

    assert (placed.stream_id, placed.version, shipped.version, later.version) == (ORDER, 1, 2, None)
    assert await db.fetchval("SELECT count(*) FROM wh_event_store") == 0
    await caller.commit()

    events = await db.fetch("SELECT event_id, event_type, version, shape FROM wh_event_store ORDER BY version")
    assert [tuple(event) for event in events] == [
        (placed.message_id, "OrderPlaced", 1, 1),
        (shipped.message_id, "OrderShipped", 2, 2),
    ]
    outbox = await db.fetch("SELECT message_type, topic, stream_id, message_id FROM wh_outbox ORDER BY message_type")
    assert [tuple(row)[:3] for row in outbox] == [
        ("ChargeCard", "payments", None),
        ("OrderShipped", "shipping", ORDER),
    ]
    assert outbox[1]["message_id"] == shipped.message_id
    assert await db.fetchval("SELECT message_type FROM wh_inbox") == "CancelOrder"
    assert await db.fetchval("SELECT schedule_key FROM wh_scheduled_messages") == "give up"


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg_async", "psycopg", "sqlalchemy_session", "django"])
async def test_a_rollback_takes_everything_with_it(app: wt.App, caller: Caller, db: asyncpg.Connection) -> None:
    await published(app, caller, OrderShipped(ORDER))
    await published(app, caller, CancelOrder(ORDER))
    await caller.rollback()
    for table in ("wh_event_store", "wh_messages", "wh_active_streams"):
        assert await db.fetchval(f"SELECT count(*) FROM {table}") == 0


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "sqlalchemy_async"])
async def test_a_stream_that_has_moved_on_refuses_the_event(app: wt.App, caller: Caller) -> None:
    await published(app, caller, OrderPlaced(ORDER, 5))
    with pytest.raises(WrongVersion):
        await published(app, caller, OrderPlaced(ORDER, 5), expected_version=7)


async def test_even_where_every_statement_commits_an_event_and_its_copy_for_outside_are_one(
    app: wt.App, dsn: Dsn, db: asyncpg.Connection
) -> None:
    await db.execute("ALTER TABLE wh_messages ADD CONSTRAINT full_up CHECK (false)")
    async with calling("asyncpg", dsn, autocommit=True) as caller:
        with pytest.raises(asyncpg.CheckViolationError):
            await published(app, caller, OrderShipped(ORDER))
    assert await db.fetchval("SELECT count(*) FROM wh_event_store") == 0


async def test_without_on_the_app_uses_connections_of_its_own(connected: wt.App, db: asyncpg.Connection) -> None:
    receipts = await connected.publish_all([OrderPlaced(ORDER, 1), CancelOrder(ORDER), OrderShipped(ORDER)])
    assert [receipt.version for receipt in receipts] == [1, None, 2]
    assert await db.fetchval("SELECT count(*) FROM wh_event_store") == 2


async def test_a_caller_that_does_not_await_needs_no_connection_either(app: wt.App, db: asyncpg.Connection) -> None:
    try:
        receipt = await asyncio.to_thread(app.publish_sync, OrderPlaced(ORDER, 1))
        assert receipt.version == 1
        await asyncio.to_thread(app.publish_sync, CancelOrder(ORDER), after=60, key="k")
        assert await asyncio.to_thread(app.cancel_sync, "k")
    finally:
        await asyncio.to_thread(app.close)
    assert await db.fetchval("SELECT count(*) FROM wh_event_store") == 1


async def test_without_any_connection_the_error_says_how_to_open_one(app: wt.App) -> None:
    with pytest.raises(UsageError, match=r"app\.connected\(\)"):
        await app.publish(OrderPlaced(ORDER, 1))


async def test_a_database_without_the_schema_is_refused_with_the_command_to_type(server: str) -> None:
    app = wt.App("orders", dsn=server, schema="nothing_here")
    with pytest.raises(SchemaMismatch, match="whippletree migrate --schema nothing_here"):
        async with app.connected():
            pass


@pytest.mark.parametrize(
    ("message", "options", "error", "advice"),
    [
        (Orphan(1), {}, UnknownName, "register a receptor for it, or give it the topic"),
        (object(), {}, UnknownName, "decorate it with @app.event"),
        (OrderPlaced(ORDER, 1), {"after": 5}, InvalidMessage, "schedule a command"),
        (CancelOrder(ORDER), {"after": 5, "at": datetime.now(UTC)}, InvalidMessage, "not both"),
        (CancelOrder(ORDER), {"at": datetime(2040, 1, 1)}, InvalidMessage, "no time zone"),
        (CancelOrder(ORDER), {"key": "k"}, InvalidMessage, "give at= or after= too"),
        (CancelOrder(ORDER), {"expected_version": 1}, InvalidMessage, "is for events"),
        (OrderPlaced(ORDER, 2**80), {}, InvalidMessage, "send it as a string"),
        (OrderPlaced(UUID(int=0), 1), {}, InvalidMessage, "all zeros"),
    ],
)
async def test_what_cannot_be_published_is_refused_before_anything_is_sent(
    connected: wt.App, message: object, options: dict[str, Any], error: type[Exception], advice: str
) -> None:
    with pytest.raises(error, match=advice):
        await connected.publish(message, **options)


async def test_what_follows_from_a_message_says_so(connected: wt.App, db: asyncpg.Connection) -> None:
    cause = wt.Context(
        message_id=uuid4(),
        message_type="X",
        stream_id=StreamId(ORDER),
        version=1,
        attempts=1,
        created_at=datetime.now(UTC),
    )
    first = await connected.publish(OrderPlaced(ORDER, 1), cause=cause)
    (event,) = await EventStore(connected._own_connections()).read(ORDER)
    assert event.event_id == UUID(int=first.message_id.int)
    assert event.correlation_id == event.causation_id == cause.message_id


async def due(db: asyncpg.Connection, later: timedelta = timedelta()) -> Any:
    return await db.fetchval("SELECT store_due_messages(500, $1)", datetime.now(UTC) + later)


async def test_a_scheduled_command_holds_nobody_back_and_comes_when_it_is_due(
    connected: wt.App, db: asyncpg.Connection
) -> None:
    late = await connected.publish(CancelOrder(ORDER), after=timedelta(hours=1))
    soon = await connected.publish(CancelOrder(ORDER), after=60)
    now = await connected.publish(CancelOrder(ORDER))

    assert 0 < await due(db) <= 60
    assert await db.fetchval("SELECT array_agg(message_id) FROM wh_inbox") == [now.message_id]
    assert await due(db, timedelta(hours=2)) is None
    rows = await db.fetch("SELECT message_id, version FROM wh_inbox ORDER BY version")
    assert [tuple(row) for row in rows] == [(now.message_id, 1), (soon.message_id, 2), (late.message_id, 3)]


async def test_a_cancelled_command_leaves_no_hole_in_its_stream(connected: wt.App, db: asyncpg.Connection) -> None:
    await connected.publish(CancelOrder(ORDER))
    await connected.publish(CancelOrder(ORDER), after=60, key="first")
    await connected.publish(CancelOrder(ORDER), after=120, key="second")

    assert await connected.cancel("first")
    assert not await connected.cancel("first")
    await due(db, timedelta(hours=1))
    assert [row[0] for row in await db.fetch("SELECT version FROM wh_inbox ORDER BY 1")] == [1, 2]
    assert not await connected.cancel("second"), "it has gone its way"


async def test_a_key_is_used_once_at_a_time_and_again_after_it_was_cancelled(connected: wt.App) -> None:
    await connected.publish(CancelOrder(ORDER), after=60, key="k")
    with pytest.raises(InvalidMessage, match="cancel it first"):
        await connected.publish(CancelOrder(ORDER), after=60, key="k")
    await connected.cancel("k")
    await connected.publish(CancelOrder(ORDER), after=60, key="k")


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg_async", "sqlalchemy_async_session"])
async def test_a_cancellation_that_is_rolled_back_was_none(
    connected: wt.App, caller: Caller, db: asyncpg.Connection
) -> None:
    await connected.publish(CancelOrder(ORDER), after=60, key="k")
    assert await connected.cancel("k", on=caller.connection)
    # Whoever looks for due messages meanwhile is not kept waiting.
    await due(db, timedelta(hours=1))
    assert await db.fetchval("SELECT count(*) FROM wh_inbox") == 0
    await caller.rollback()
    await due(db, timedelta(hours=1))
    assert await db.fetchval("SELECT count(*) FROM wh_inbox") == 1


async def test_messages_of_several_kinds_lock_their_streams_in_one_order(
    app: wt.App, connect: Connect, db: asyncpg.Connection
) -> None:
    """Or two who publish crosswise would wait for each other."""
    first, second = ORDER, UUID("5eed0000-0000-4000-8000-000000000002")
    publisher, holder = await connect(), await connect()
    await app.publish_all([OrderPlaced(first, 1), OrderPlaced(second, 1)], on=db)
    held = "SELECT FROM wh_streams WHERE stream_id = $1 FOR UPDATE NOWAIT"
    async with holder.transaction():
        await holder.execute(held, first)
        publishing = asyncio.create_task(app.publish_all([OrderPlaced(second, 2), CancelOrder(first)], on=publisher))
        await until_somebody_waits(db)
        # It waits for the first before it has the second, though the message for the second was named first.
        await db.execute(held, second)
    assert [receipt.version for receipt in await publishing] == [2, None]
