"""A producer and a worker do their whole work with the rights of their kind, whoever owns the schema."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import uuid4

import asyncpg
import psycopg
import pytest

from tests.claim.wire import Cut, wire
from tests.conftest import SCHEMA, blank_database
from tests.roles import a_role, login
from tests.scenario import S
from tests.shop import OrderPlaced, Shop, Summary
from tests.waiting import until
from tests.work.following import Diary, running
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.claim.session import InstanceSession
from whippletree.dispatch.rebuild import Rebuilds
from whippletree.errors import StoreError, StoreUnavailable, UnknownName
from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.message.event import NewEvent
from whippletree.message.ids import new_message_id
from whippletree.message.outcome import MessageCompletion, MessageFailure, Outcome
from whippletree.settings import Dsn
from whippletree.store.deduplication import forget_messages
from whippletree.store.event_store import EventStore
from whippletree.store.inbox import StoreOutcome, store_inbox
from whippletree.store.new_messages import stream_id_of
from whippletree.store.outbox import store_outbox, store_outbox_sync
from whippletree.store.roles import RoleKind, grant
from whippletree.store.schema import migrate, require_schema
from whippletree.store.transaction import Transaction
from whippletree.work.subscriber_row import SubscriptionState


@dataclass(frozen=True)
class Place:
    """A database whose schema belongs to a role without any rights of its own on the server."""

    owner: Dsn
    producer: Dsn
    worker: Dsn


@pytest.fixture
async def place(server: str, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with (
        blank_database(server, request.node.nodeid) as dsn,
        a_role(dsn) as owner,
        a_role(dsn) as producer,
        a_role(dsn) as worker,
    ):
        superuser = await asyncpg.connect(dsn.reveal())
        database = await superuser.fetchval("SELECT current_database()")
        await superuser.execute(f'GRANT CREATE ON DATABASE "{database}" TO {owner}')
        await superuser.close()
        connection = await asyncpg.connect(login(dsn, owner).reveal())
        await migrate(connection, SCHEMA)
        await grant(connection, SCHEMA, RoleKind.PRODUCER, producer)
        await grant(connection, SCHEMA, RoleKind.WORKER, worker)
        await connection.close()
        yield Place(login(dsn, owner), login(dsn, producer), login(dsn, worker))


def message(stream: str | None = "order-17") -> OutboxMessage:
    return OutboxMessage(message_type="Placed", topic="orders", payload="{}", stream=stream)


def arrival() -> InboxMessage:
    return InboxMessage(message_id=new_message_id(), message_type="Placed", payload="{}", stream="s")


async def test_a_producer_stores_in_every_way(place: Place) -> None:
    connection = await asyncpg.connect(place.producer.reveal(), server_settings={"search_path": SCHEMA})
    await require_schema(connection, SCHEMA)
    assert await store_outbox([message()], on=connection) == (1,)
    assert await store_outbox([message(), message(), message(None)], on=connection) == (2, 3, 1)
    received = arrival()
    assert await store_inbox([received, received], on=connection) == (StoreOutcome.STORED, StoreOutcome.DUPLICATE)
    assert await store_inbox([arrival()], on=connection) == (StoreOutcome.STORED,)
    assert await connection.fetchval("SELECT stream_id_of('order-17')") == stream_id_of("order-17")
    with psycopg.connect(place.producer.reveal()) as sync:
        assert store_outbox_sync([message()], on=sync) == (4,)
    await connection.execute("INSERT INTO wh_outbox (stream_key, message_type, payload) VALUES ('order-17', 'P', '{}')")
    await connection.execute(
        "INSERT INTO wh_inbox (message_id, message_type, payload) VALUES ($1, 'P', '{}')", new_message_id()
    )
    await connection.copy_records_to_table(
        "wh_outbox",
        schema_name=SCHEMA,
        columns=["stream_key", "message_type", "payload"],
        records=[("order-17", "P", "{}"), ("order-17", "P", "{}")],
    )
    async with asyncpg.create_pool(place.producer.reveal(), min_size=1, max_size=1) as pool:
        receipt = await EventStore(pool).append("order-17", [NewEvent(event_type="Placed", payload="{}")])
        assert receipt.versions == (1,)
        with pytest.raises(UnknownName, match="no perspective of the name summary"):
            await receipt.applied("summary")
    await connection.close()

    owner = await asyncpg.connect(place.owner.reveal(), server_settings={"search_path": SCHEMA})
    stored = await owner.fetchval(
        "SELECT array_agg(version ORDER BY version) FROM wh_outbox WHERE stream_key = 'order-17'"
    )
    assert stored == [1, 2, 3, 4, 5, 6, 7]
    assert await owner.fetchval("SELECT count(*) FROM wh_inbox") == 3
    await owner.close()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT payload FROM wh_outbox",
        "INSERT INTO wh_outbox (message_type, payload) VALUES ('P', '{}') RETURNING payload",
        "UPDATE wh_perspective_checkpoints SET status = 'Pending', error = NULL",
        "DELETE FROM wh_dead_letters",
        "TRUNCATE wh_messages",
        "INSERT INTO wh_messages SELECT",
        "SELECT nextval('wh_lease_tokens')",
        "SELECT * FROM wh_event_store",
        "SELECT * FROM read_events(gen_random_uuid())",
        "SELECT * FROM process_work_batch(gen_random_uuid(), 'thief', 'host', 1)",
        "SELECT store_messages('outbox', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', now())",
        "SELECT forget_messages()",
        "CREATE TABLE whippletree.mine ()",
    ],
)
async def test_a_producer_does_nothing_else(place: Place, statement: str) -> None:
    connection = await asyncpg.connect(place.producer.reveal(), server_settings={"search_path": SCHEMA})
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
    await connection.close()


async def test_a_worker_does_its_whole_work(place: Place) -> None:
    async with asyncpg.create_pool(place.worker.reveal(), min_size=1, max_size=2) as pool:
        coordinator = WorkCoordinator(
            pool, ServiceInstance(service_name="shop"), CoordinatorSettings(partition_count=10_000)
        )
        async with pool.acquire() as connection:
            await connection.execute("SELECT whippletree.register_receptor('mail', '{Placed}')")
            await connection.execute("SELECT whippletree.register_perspective('summary', '{Placed}')")
        async with InstanceSession(place.worker, coordinator) as session:
            assert session.held.is_set()
            await EventStore(pool).append("order-17", [NewEvent(event_type="Placed", payload="{}")])
            batch = await coordinator.process_work_batch(
                WorkReport(
                    new_outbox_messages=[message(), message()],
                    new_inbox_messages=[arrival()],
                    limits=dict.fromkeys(["outbox", "inbox", "receptor/*", "perspective/*"], 10),
                )
            )
            first, second = batch.claimed_outbox_messages
            (received,) = batch.claimed_inbox_messages
            assert len(batch.claimed_receptor_work) == len(batch.claimed_perspective_work) == 1
            assert len(await EventStore(pool).read("order-17")) == 1
            outcomes: list[Outcome] = [
                MessageCompletion(first.message_id),
                MessageFailure(second.message_id, "boom"),
                MessageCompletion(received.message_id),
            ]
            batch = await coordinator.process_work_batch(WorkReport(outcomes=outcomes, wait=True))
            assert not batch.rejected
            # Told twice that nothing is there, it waits; then whoever stores tells it, through the owner's eyes.
            await coordinator.process_work_batch(WorkReport(wait=True))
            await session.wake.wait(0)
            async with pool.acquire() as connection:
                await store_outbox([message(None)], on=connection)
            assert await session.wake.wait(30)
            assert session.wake.notifications == 1
        await coordinator.leave()
        assert await forget_messages(pool) == 0


async def test_a_worker_finds_out_what_became_of_a_lost_call(place: Place) -> None:
    async with (
        wire(place.worker) as (line, address),
        asyncpg.create_pool(address.reveal(), min_size=0, max_size=1) as pool,
    ):
        coordinator = WorkCoordinator(pool, ServiceInstance(service_name="shop"))
        await coordinator.process_work_batch(WorkReport(new_outbox_messages=[message()], limits={}))
        line.cut_next_call(Cut(0, "answer"))
        with pytest.raises(StoreUnavailable, match="the connection was lost"):
            await coordinator.process_work_batch(WorkReport())
        (claimed,) = (await coordinator.process_work_batch(WorkReport())).claimed_outbox_messages
        done = WorkReport(outcomes=[MessageCompletion(claimed.message_id)])
        line.cut_next_call(Cut(0, "answer"))
        with pytest.raises(StoreUnavailable, match="the connection was lost"):
            await coordinator.process_work_batch(done)
        assert not (await coordinator.process_work_batch(done)).rejected


async def test_a_worker_takes_over_the_session_lock_of_its_former_session(place: Place) -> None:
    first = await asyncpg.connect(place.worker.reveal(), server_settings={"search_path": SCHEMA})
    second = await asyncpg.connect(place.worker.reveal(), server_settings={"search_path": SCHEMA})
    instance = uuid4()
    take = "SELECT take_session_lock($1, $2)"
    assert await first.fetchval(take, instance, None)
    assert not await second.fetchval(take, instance, None)
    assert await second.fetchval(take, instance, first.get_server_pid())
    assert await second.fetchval("SELECT holds_session_lock($1)", instance)
    await first.close(timeout=5)
    await second.close()


async def test_a_worker_cannot_end_the_sessions_of_others(place: Place) -> None:
    """The function that ends lost calls runs with the caller's rights, not with the owner's."""
    owner = await asyncpg.connect(place.owner.reveal(), server_settings={"search_path": SCHEMA})
    worker = await asyncpg.connect(place.worker.reveal(), server_settings={"search_path": SCHEMA})
    await worker.execute("SELECT end_lost_calls($1, $2)", uuid4(), [owner.get_server_pid()])
    assert await owner.fetchval("SELECT 1") == 1
    await owner.close()
    await worker.close()


@pytest.mark.parametrize("inline", [False, True], ids=["worked", "inline"])
async def test_a_worker_keeps_the_rows_of_its_perspectives(place: Place, inline: bool) -> None:
    async with asyncpg.create_pool(place.worker.reveal(), min_size=0, max_size=4) as pool:
        shop = Shop(pool)
        rows = await shop.opens(columns=["customer"], inline=inline)
        await shop.append(S, OrderPlaced(S, "Ada", 10))
        await shop.catches_up()
        assert await rows.get(S) == Summary("Ada", 10)
        assert await rows.find(customer="Ada") == [Summary("Ada", 10)]
        column = '{"x": {"path": ["x"], "type": "text; DROP TABLE wh_streams"}}'
        with pytest.raises(asyncpg.PostgresError, match="has a type that no column can have"):
            await pool.execute("SELECT whippletree.register_perspective_rows('evil', 'uuid', $1, '[]')", column)


async def test_a_worker_follows_the_feed(place: Place) -> None:
    owner = await asyncpg.connect(place.owner.reveal(), server_settings={"search_path": SCHEMA})
    async with asyncpg.create_pool(place.producer.reveal(), min_size=0, max_size=1) as producer:
        await EventStore(producer).append("a", [NewEvent(event_type="Placed", payload="{}")])
    diary = Diary(transactional=False)
    async with running(place.worker, diary) as alice:
        await until(lambda: diary.seen == ["Placed"])
        await until(lambda: alice.state() is SubscriptionState.LIVE)
    assert await owner.fetchval("SELECT checkpoint FROM wh_subscriptions") == 1
    await owner.close()


async def written(event: OrderPlaced, tx: Transaction) -> None:
    await tx.execute("INSERT INTO report (customer) VALUES ($1)", event.customer)


async def test_a_worker_fills_the_tables_that_the_owner_rebuilds(place: Place) -> None:
    async with (
        asyncpg.create_pool(place.worker.reveal(), min_size=0, server_settings={"search_path": "reports"}) as pool,
        asyncpg.create_pool(place.owner.reveal(), min_size=0) as owner,
    ):
        worker = place.worker.reveal().split("//")[1].split(":")[0].split("@")[0]
        await owner.execute(
            "CREATE SCHEMA reports; CREATE TABLE reports.report (id bigint GENERATED ALWAYS AS IDENTITY, customer text)"
        )
        await owner.execute(f"GRANT USAGE ON SCHEMA reports TO {worker}")
        shop = Shop(pool)
        statement = "SELECT whippletree.register_perspective_tables('written', ARRAY[$1])"
        for stolen in (
            "reports.report",
            "whippletree.wh_outbox",
            "pg_catalog.pg_class",
            "reports.report; DROP TABLE x",
        ):
            with pytest.raises(asyncpg.PostgresError, match=r"not yours to write|invalid name syntax"):
                await pool.execute(statement, stolen)
        await owner.execute(f"GRANT INSERT ON reports.report TO {worker}")
        await shop.opens(written, tables=["report"])
        await shop.append(S, OrderPlaced(S, "Ada", 1))
        await shop.catches_up()
        rebuilds = Rebuilds(owner)
        with pytest.raises(StoreError, match="permission denied"):
            await Rebuilds(pool).start("written")
        await rebuilds.start("written")
        await shop.catches_up()
        assert [found.count for found in await rebuilds.compare("written")] == [1, 0, 0, 0]
        await rebuilds.swap("written")
        await shop.append(S, OrderPlaced(S, "Bob", 1))
        await shop.catches_up()
        assert [row[0] for row in await owner.fetch("SELECT customer FROM reports.report ORDER BY id")] == [
            "Ada",
            "Bob",
        ]
