"""An inline perspective is there when the append commits, or the append does not."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tests.conftest import Connect
from tests.scenario import S
from tests.shop import Noted, OrderChanged, OrderPlaced, Pool, Shop, Summary, checkpoints
from tests.waiting import until
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.errors import PerspectiveFailed
from whippletree.message.ids import StreamId
from whippletree.message.outcome import PerspectiveCheckpointCompletion
from whippletree.store.transaction import Transaction

WAITING = """
    SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database())
"""


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool)


async def test_it_is_seen_with_the_event_and_leaves_no_work(shop: Shop, db: asyncpg.Connection) -> None:
    rows = await shop.opens(inline=True)
    await shop.append(S, OrderPlaced(S, "Ada", 10))
    assert await rows.get(S) == Summary("Ada", 10)
    await shop.append(S, Noted(S), OrderChanged(S, 12))
    assert await rows.get(S) == Summary("Ada", 12, 1)
    assert await checkpoints(db) == [("Completed", 3, None, None)]
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 0


async def test_in_the_callers_transaction_it_is_seen_there_and_undone_with_it(
    shop: Shop, connect: Connect, db: asyncpg.Connection
) -> None:
    rows = await shop.opens(inline=True)
    writer = await connect()
    transaction = writer.transaction()
    await transaction.start()
    await shop.append(S, OrderPlaced(S, "Ada", 10), on=writer)
    assert await rows.get(S, on=writer) == Summary("Ada", 10)
    assert await rows.get(S) is None
    await transaction.rollback()
    assert await rows.get(S) is None
    assert await checkpoints(db) == []


async def test_a_fold_that_raises_undoes_the_append(shop: Shop, db: asyncpg.Connection) -> None:
    await shop.opens(inline=True)
    with pytest.raises(PerspectiveFailed, match=r"event 1 \(OrderChanged\): ValueError: a change of nothing"):
        await shop.append(S, OrderChanged(S, 10))
    assert await db.fetchval("SELECT count(*) FROM wh_event_store") == 0


async def test_history_is_worked_off_first_and_a_worker_that_had_it_is_refused(
    shop: Shop, pool: Pool, db: asyncpg.Connection
) -> None:
    await shop.append(S, OrderPlaced(S, "Ada", 10), OrderChanged(S, 11))
    rows = await shop.opens(inline=True)
    late = WorkCoordinator(pool, ServiceInstance(service_name="late"))
    batch = await late.process_work_batch(WorkReport(limits={"perspective/order_summary": 10}))
    assert [work.version for work in batch.claimed_perspective_work] == [2]
    await shop.append(S, OrderChanged(S, 12))
    assert await rows.get(S) == Summary("Ada", 12, 2)
    done = PerspectiveCheckpointCompletion(StreamId(S), "order_summary", 2)
    (rejection,) = await late.report_perspective_completion(done)
    assert rejection.reason == "lease lost"
    assert await checkpoints(db) == [("Completed", 3, None, None)]


async def test_what_another_program_appends_is_done_by_a_worker(shop: Shop, pool: Pool) -> None:
    rows = await shop.opens(inline=True)
    await Shop(pool).append(S, OrderPlaced(S, "Ada", 10))
    assert await rows.get(S) is None
    await shop.catches_up()
    assert await rows.get(S) == Summary("Ada", 10)


async def test_an_append_waits_for_a_worker_that_folds_its_stream_and_not_in_a_circle(
    shop: Shop, pool: Pool, db: asyncpg.Connection
) -> None:
    await db.execute("CREATE TABLE public.totals (order_id uuid PRIMARY KEY, total integer)")
    write = "INSERT INTO public.totals VALUES ($1, $2) ON CONFLICT (order_id) DO UPDATE SET total = EXCLUDED.total"
    written, appended = asyncio.Event(), asyncio.Event()

    async def totals(event: OrderPlaced | OrderChanged, tx: Transaction) -> None:
        await tx.execute(write, event.order_id, event.total)
        if isinstance(event, OrderPlaced):
            written.set()
            await appended.wait()

    await Shop(pool).append(S, OrderPlaced(S, "Ada", 10))
    await shop.opens(totals, inline=True)
    async with asyncio.timeout(60), shop.worker().running():
        await written.wait()
        appending = asyncio.create_task(shop.append(S, OrderChanged(S, 12)))
        await until(lambda: db.fetchval(WAITING))
        appended.set()
        await appending
    assert await db.fetchval("SELECT total FROM public.totals") == 12
    assert await checkpoints(db, "totals") == [("Completed", 2, None, None)]
