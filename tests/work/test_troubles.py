"""The troubles that the specification lists, and what becomes of them here."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import Connect
from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, Pool, Shop, Summary, checkpoints
from tests.waiting import until
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.errors import InvalidSetting
from whippletree.message.ids import StreamId
from whippletree.message.outcome import PerspectiveCheckpointCompletion, PerspectiveCheckpointFailure
from whippletree.store.schema import migrate
from whippletree.store.transaction import Transaction


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool)


async def test_a_perspective_that_nobody_runs_waits_and_is_named(
    shop: Shop, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await db.execute("SELECT register_perspective('orphan', '{OrderPlaced}')")
    await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 10))
    with caplog.at_level(logging.WARNING, "whippletree.perspectives"):
        await shop.catches_up()
    assert await checkpoints(db, "orphan") == [("Pending", 0, None, False)]
    assert "No perspective runner found for perspective orphan" in caplog.text
    assert "for perspective order_summary" not in caplog.text


async def test_nothing_is_folded_twice_however_many_instances_there_are(shop: Shop, db: asyncpg.Connection) -> None:
    await db.execute("CREATE TABLE folded (stream_id uuid, version bigint)")

    async def ledger(event: OrderPlaced | OrderChanged, tx: Transaction) -> None:
        await tx.execute("INSERT INTO whippletree.folded VALUES ($1, $2)", event.order_id, event.total)

    await shop.opens(ledger)
    streams = [UUID(int=S.int + number) for number in range(12)]
    instances = [shop.worker(f"worker {number}", perspective_batch_size=3, max_checkpoints=2) for number in range(3)]
    async with instances[0].running(), instances[1].running(), instances[2].running():
        for total in range(1, 20, 3):
            changes = [[OrderChanged(stream, total + n) for n in range(3)] for stream in streams]
            await asyncio.gather(*(shop.append(c[0].order_id, *c) for c in changes))
        async with asyncio.timeout(60):
            while await db.fetchval("SELECT count(*) FROM folded") < 12 * 21:
                pass
    rows = await db.fetch("SELECT stream_id, array_agg(version ORDER BY ctid) AS seen FROM folded GROUP BY stream_id")
    assert len(rows) == 12
    assert all(sorted(row["seen"]) == list(range(1, 22)) for row in rows)


async def test_a_holder_whose_lease_ran_out_writes_nothing(shop: Shop, db: asyncpg.Connection) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 10))
    slow, quick = shop.worker("slow"), shop.worker("quick")
    batch = await slow.coordinator.process_work_batch(WorkReport(limits={"perspective/order_summary": 1}))
    folded = await slow.worker._runner.fold(batch.claimed_perspective_work, 100)
    await db.execute("UPDATE wh_active_streams SET lease_expiry = now(), ready_at = now()")
    async with quick.running():
        await quick.idle()
    written = await db.fetchval("SELECT xmin::text FROM wh_rows_order_summary_g1")
    assert await slow.worker._runner.commit(folded) == folded
    assert await rows.get(S) == Summary("Ada", 10)
    assert await db.fetchval("SELECT xmin::text FROM wh_rows_order_summary_g1") == written
    assert len(slow.coordinator.held) == 0


async def test_failed_checkpoints_are_retried_with_back_off_parked_and_can_be_redriven(
    shop: Shop, db: asyncpg.Connection
) -> None:
    broken = True

    def fragile(row: Summary | None, event: OrderPlaced) -> Summary | None:
        if broken:
            raise RuntimeError("customer is missing")
        return Summary(event.customer, event.total)

    rows = await shop.opens(fragile)
    await shop.append(S, OrderPlaced(S, "Ada", 10))
    instance = shop.worker()
    async with instance.running():
        async with asyncio.timeout(60):
            while not await db.fetchval("SELECT parked FROM wh_perspective_checkpoints"):
                await db.execute(_DUE)
        assert await db.fetchval("SELECT attempts FROM wh_perspective_checkpoints") == 10
        assert await checkpoints(db, "fragile") == [
            ("Failed", 0, "event 1 (OrderPlaced): RuntimeError: customer is missing", True)
        ]
        frequent = await db.fetch(
            """
            SELECT
              error,
              COUNT(*) AS count
            FROM wh_perspective_checkpoints
            WHERE status = 'Failed'
            GROUP BY error
            ORDER BY count DESC;
            """
        )
        assert [row["count"] for row in frequent] == [1]
        broken = False
        await db.execute(
            """
            UPDATE wh_perspective_checkpoints
            SET status = 'Pending', error = NULL
            WHERE status = 'Failed';
            """
        )
        await until(lambda: instance.worker.consecutive_empty_polls == 0)
        await instance.idle()
    assert await rows.get(S) == Summary("Ada", 10)
    assert await checkpoints(db, "fragile") == [("Completed", 1, None, None)]


_DUE = "UPDATE wh_active_streams SET ready_at = now() WHERE instance_id IS NULL AND ready_at < 'infinity'"


async def test_two_services_with_one_instance_id_are_refused(shop: Shop, pool: Pool) -> None:
    await shop.opens()
    shared = ServiceInstance(service_name="InventoryWorker")
    clash = ServiceInstance(service_name="BFF.API", instance_id=shared.instance_id)
    async with shop.worker(coordinator=WorkCoordinator(pool, shared)).running() as first:
        await first.idle()
        second = shop.worker(coordinator=WorkCoordinator(pool, clash))
        with pytest.raises(InvalidSetting, match=r"in use by InventoryWorker .* Give every process an id of its own"):
            await asyncio.wait_for(second.worker.run(), 30)


async def test_two_services_in_one_database_each_work_the_same_streams(
    shop: Shop, pool: Pool, connect: Connect, db: asyncpg.Connection
) -> None:
    """Each service has a schema of its own; and in one schema, each has its own perspectives."""
    await migrate(await connect(), "bff")
    rows = await shop.opens()
    bff = Shop(pool)

    def order_count(row: Summary | None, event: OrderPlaced) -> Summary | None:
        return Summary(event.customer, 1)

    counts = await bff.opens(order_count)
    await shop.append(S, OrderPlaced(S, "Ada", 10))
    async with shop.worker("InventoryWorker").running() as one, bff.worker("BFF.API").running() as two:
        await one.idle()
        await two.idle()
        names = await db.fetch("SELECT service_name FROM wh_service_instances ORDER BY 1")
        assert [row[0] for row in names] == ["BFF.API", "InventoryWorker"]
    assert await rows.get(S) == Summary("Ada", 10)
    assert await counts.get(S) == Summary("Ada", 1)
    assert await db.fetchval("SELECT count(*) FROM bff.wh_active_streams") == 0


async def test_outcomes_can_be_reported_out_of_band(shop: Shop, pool: Pool, db: asyncpg.Connection) -> None:
    await shop.opens()
    coordinator = WorkCoordinator(pool, ServiceInstance(service_name="alone"))
    limits = {"perspective/order_summary": 5}
    await shop.append(S, OrderPlaced(S, "Ada", 10), OrderChanged(S, 11), OrderChanged(S, 12))
    await coordinator.process_work_batch(WorkReport(limits=limits))
    done = PerspectiveCheckpointCompletion(StreamId(S), "order_summary", 2)
    assert await coordinator.report_perspective_completion(done) == []
    failed = PerspectiveCheckpointFailure(StreamId(S), "order_summary", "boom")
    assert await coordinator.report_perspective_failure(failed) == []
    assert await checkpoints(db) == [("Failed", 2, "boom", False)]
    (rejection,) = await coordinator.report_perspective_failure(failed)
    assert rejection.reason == "lease lost"
