"""Building a perspective's rows again, beside the live ones, by the ordinary workers."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import Connect
from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, OrderRemoved, Pool, Shop, Summary, checkpoints, order_summary
from tests.waiting import until, until_somebody_waits
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.complete.strategy import InstantCompletionStrategy, PerspectiveReports
from whippletree.dispatch.perspective_runner import PerspectiveRunner
from whippletree.dispatch.policy import Retry
from whippletree.dispatch.rebuild import Rebuilds
from whippletree.errors import InvalidSetting, NotApplied, StoreUnavailable, UnknownName
from whippletree.message.outcome import PerspectiveCheckpointCompletion
from whippletree.store.transaction import Transaction

NAME = "order_summary"


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool)


@pytest.fixture
def rebuilds(pool: Pool) -> Rebuilds:
    return Rebuilds(pool)


def stream(number: int) -> UUID:
    return UUID(int=S.int + number)


async def kinds(rebuilds: Rebuilds) -> dict[str, int]:
    return {difference.kind: difference.count for difference in await rebuilds.compare(NAME)}


async def spoils(db: asyncpg.Connection) -> None:
    """Rows as an older fold might have left them: one wrong, one missing, one too many."""
    table = f"wh_rows_{NAME}_g1"
    await db.execute(f"UPDATE {table} SET row = row || '{{\"total\": 999}}' WHERE key = $1", stream(0))
    await db.execute(f"DELETE FROM {table} WHERE key = $1", stream(1))
    await db.execute(f"INSERT INTO {table} SELECT $1, row, version, updated_at FROM {table} LIMIT 1", stream(99))


class Told(InstantCompletionStrategy):
    """Remembers for which rows its instance folded."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def report_completion(
        self, completion: PerspectiveCheckpointCompletion, coordinator: PerspectiveReports
    ) -> None:
        await super().report_completion(completion, coordinator)
        self.names.add(completion.perspective_name)


async def test_two_instances_share_a_rebuild_while_events_reach_both_generations(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    rows = await shop.opens()
    for number in range(60):
        await shop.append(stream(number), OrderPlaced(stream(number), "Ada", number))
    told = Told(), Told()
    alice = shop.worker("alice", completion_strategy=told[0], max_checkpoints=5)
    bob = shop.worker("bob", completion_strategy=told[1], max_checkpoints=5)
    async with alice.running(), bob.running():
        await until(lambda: all(NAME in strategy.names for strategy in told))
        assert await rebuilds.start(NAME) == 2
        for number in range(80):
            receipt = await shop.append(stream(number), OrderPlaced(stream(number), "Bob", 0))
            if number < 60:
                receipt = await shop.append(stream(number), OrderChanged(stream(number), 7))
            # The live rows are served all the while.
            await receipt.applied(NAME, timeout=60)
        await until_built(rebuilds)
        assert await kinds(rebuilds) == {"equal": 80, "changed": 0, "added": 0, "gone": 0}
        assert all(strategy.names == {NAME, f"{NAME}@2"} for strategy in told)
        assert await rebuilds.swap(NAME) == 2
        assert await rows.get(stream(3)) == Summary("Bob", 7, 1)
    assert await db.fetchval("SELECT sum(version) FROM wh_checkpoints WHERE perspective_name = $1", NAME) == 200
    assert await db.fetch("SELECT * FROM verify_events()") == []


async def until_built(rebuilds: Rebuilds) -> None:
    async with asyncio.timeout(60):
        while (await rebuilds.progress(NAME)).rebuild_waiting:
            pass


async def test_swaps_and_undos_while_events_flow_lose_nothing_and_fold_nothing_twice(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    rows = await shop.opens()
    for number in range(10):
        await shop.append(stream(number), OrderPlaced(stream(number), "Ada", 0))
    changes = 0
    over = asyncio.Event()

    async def append() -> None:
        nonlocal changes
        while not over.is_set():
            changes += 1
            for number in range(10):
                await shop.append(stream(number), OrderChanged(stream(number), changes))

    async with (
        shop.worker("alice", max_checkpoints=4).running(),
        shop.worker("bob", perspective_batch_size=3).running(),
    ):
        appending = asyncio.create_task(append())
        for _ in range(4):
            await rebuilds.start(NAME)
            await rebuilds.swap(NAME, behind=10)
            await rebuilds.undo(NAME)
        over.set()
        await appending
        for number in range(10):
            receipt = await shop.append(stream(number), OrderChanged(stream(number), changes + 1))
            await receipt.applied(NAME, timeout=60)
    assert changes > 0
    assert [await rows.get(stream(number)) for number in range(10)] == [Summary("Ada", changes + 1, changes + 1)] * 10
    assert await db.fetch("SELECT * FROM verify_events()") == []
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 0


async def test_compare_counts_and_shows_what_differs(shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection) -> None:
    await shop.opens()
    for number in range(5):
        await shop.append(stream(number), OrderPlaced(stream(number), "Ada", number))
    await shop.catches_up()
    await spoils(db)
    await rebuilds.start(NAME)
    await shop.catches_up()
    found = {difference.kind: difference for difference in await rebuilds.compare(NAME)}
    assert {kind: difference.count for kind, difference in found.items()} == {
        "equal": 3,
        "changed": 1,
        "added": 1,
        "gone": 1,
    }
    (changed,) = found["changed"].samples
    assert (changed["key"], changed["live"]["total"], changed["built"]["total"]) == (str(stream(0)), 999, 0)
    assert found["added"].samples[0]["live"] is None
    assert found["gone"].samples[0]["key"] == str(stream(99))


async def test_a_swap_shows_the_rebuilt_rows_and_undo_the_old_ones_with_what_came_since(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    rows = await shop.opens(columns=["customer"], indexes=["customer"])
    for number in range(3):
        await shop.append(stream(number), OrderPlaced(stream(number), "Ada", number))
    await shop.catches_up()
    await spoils(db)
    await rebuilds.start(NAME)
    await shop.catches_up()
    await rebuilds.swap(NAME)
    assert [row.total for row in await rows.find(customer="Ada")] == [0, 1, 2]
    assert await checkpoints(db) == [("Completed", 1, None, None)] * 3

    await shop.append(stream(2), OrderChanged(stream(2), 20))
    await shop.append(stream(3), OrderPlaced(stream(3), "Eve", 3))
    await shop.catches_up()
    assert await rows.get(stream(2)) == Summary("Ada", 20, 1)

    assert await rebuilds.undo(NAME) == 1
    assert await rows.get(stream(0)) == Summary("Ada", 999)
    assert await rows.get(stream(2)) == Summary("Ada", 2)
    await shop.catches_up()
    assert await rows.get(stream(2)) == Summary("Ada", 20, 1)
    assert await rows.get(stream(3)) == Summary("Eve", 3)
    assert await rows.get(stream(1)) is None

    assert await rebuilds.undo(NAME) == 2
    assert await rows.get(stream(0)) == Summary("Ada", 0)
    assert await db.fetch("SELECT * FROM verify_events()") == []


async def test_what_was_folded_onto_old_rows_is_refused_after_a_swap_and_folded_again(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await shop.catches_up()
    await rebuilds.start(NAME)
    await shop.catches_up()
    await shop.append(S, OrderChanged(S, 2), OrderChanged(S, 3))
    alice = WorkCoordinator(shop.pool, ServiceInstance(service_name="alice"))
    runner = PerspectiveRunner(shop.folder, shop.pool, alice)
    batch = await alice.process_work_batch(WorkReport(limits={f"perspective/{NAME}": 10}))
    assert [work.queue for work in batch.claimed_perspective_work] == [f"perspective/{NAME}", f"perspective/{NAME}@2"]
    folded = [await runner.fold([work], 100) for work in batch.claimed_perspective_work]
    await rebuilds.swap(NAME)
    for one in folded:
        assert await runner.commit(one) == one
    assert len(alice.held) == 0
    await alice.leave()
    assert await rows.get(S) == Summary("Ada", 1)
    await shop.catches_up()
    assert await rows.get(S) == Summary("Ada", 3, 2)
    assert await db.fetchval(f"SELECT row ->> 'total' FROM wh_rows_{NAME}_g1") == "1"


async def test_rows_of_a_generation_that_nobody_works_on_are_not_written(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    """Those kept for undo and those that were never made: whoever was told to fold onto them is refused."""
    await shop.opens()
    await shop.append(S, OrderPlaced(S, "ada", 10))
    await shop.catches_up()
    await rebuilds.start(NAME)
    await shop.catches_up()
    write = "SELECT write_rows($1, $2, ARRAY[$3], ARRAY['{}'::jsonb], ARRAY[99::bigint])"
    assert await db.fetchval(write, NAME, 1, str(stream(7)))
    assert await db.fetchval(write, NAME, 2, str(stream(7)))
    await rebuilds.swap(NAME)
    for generation in (1, 3):
        assert not await db.fetchval(write, NAME, generation, str(stream(8)))
    assert await db.fetchval(f"SELECT count(*) FROM wh_rows_{NAME}_g1") == 2


async def test_a_swap_waits_for_a_fold_that_is_being_committed(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await rebuilds.start(NAME)
    await shop.catches_up()
    await shop.append(S, OrderChanged(S, 2))
    alice = WorkCoordinator(shop.pool, ServiceInstance(service_name="alice"))
    batch = await alice.process_work_batch(WorkReport(limits={f"perspective/{NAME}": 10}))
    (live, _) = batch.claimed_perspective_work
    async with shop.pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        (folded,) = await shop.folder.fold([live], 100, connection)
        assert await shop.folder.write([folded], connection) == []
        swapping = asyncio.create_task(rebuilds.swap(NAME, behind=1))
        await until_waiting(db)
        handed_in = await alice.report(folded.outcomes(), on=connection)
        assert not handed_in.rejected
        await transaction.commit()
    assert await swapping == 2
    await alice.leave()
    assert await rows.get(S) == Summary("Ada", 1)
    await shop.catches_up()
    assert await rows.get(S) == Summary("Ada", 2, 1)


async def until_waiting(db: asyncpg.Connection) -> None:
    async with asyncio.timeout(60):
        while not await db.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"):
            pass


async def test_a_swap_and_its_undo_leave_every_checkpoint_where_it_is(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    await shop.opens()
    for number in range(5):
        await shop.append(stream(number), OrderPlaced(stream(number), "Ada", number))
    await rebuilds.start(NAME)
    await shop.catches_up()
    stored = "SELECT array_agg((ctid, xmin)::text ORDER BY ctid) FROM wh_checkpoints"
    before = await db.fetchval(stored)
    await rebuilds.swap(NAME)
    await rebuilds.undo(NAME)
    # Appends wait for a swap, so it must not take the longer the more streams there are.
    assert await db.fetchval(stored) == before
    assert len(before) == 10


async def test_a_swap_that_waits_for_a_long_reader_keeps_no_append_waiting(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection, connect: Connect
) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await rebuilds.start(NAME)
    await shop.catches_up()
    reader = await connect()
    async with reader.transaction():
        await reader.fetch(f"SELECT * FROM wh_rows_{NAME}")
        swapping = asyncio.create_task(rebuilds.swap(NAME))
        await until_somebody_waits(db)
        async with shop.pool.acquire() as connection, connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = '200ms'")
            await shop.append(stream(1), OrderPlaced(stream(1), "Bob", 2), on=connection)
        assert not swapping.done()
    assert await swapping == 2
    await shop.catches_up()
    assert await rows.get(stream(1)) == Summary("Bob", 2)


async def test_a_rebuild_that_is_behind_is_not_swapped_and_says_what_is_missing(
    shop: Shop, pool: Pool, db: asyncpg.Connection
) -> None:
    rebuilds = Rebuilds(pool, patience=0)
    rows = await shop.opens(retry=Retry(attempts=1))
    await shop.append(S, OrderPlaced(S, "Ada", 1), OrderChanged(S, -1), OrderChanged(S, 3))
    await shop.catches_up()
    assert await db.fetchval("SELECT skip_head($1, $2, 'bad')", f"perspective/{NAME}", S) == 2
    await shop.catches_up()
    assert await rows.get(S) == Summary("Ada", 3, 1)
    await rebuilds.start(NAME)
    await shop.catches_up()
    with pytest.raises(
        NotApplied, match=r"behind the live rows in 1 streams; .* version 1, they have version 3\..*event 2"
    ):
        await rebuilds.swap(NAME)
    assert await db.fetchval("SELECT skip_head($1, $2, 'bad')", f"perspective/{NAME}@2", S) == 2
    await shop.catches_up()
    assert await rebuilds.swap(NAME) == 2
    assert await rows.get(S) == Summary("Ada", 3, 1)


async def test_a_stream_that_the_live_rows_are_stuck_in_as_well_holds_no_swap_up_and_stays_parked(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1), OrderChanged(S, -1))
    await shop.catches_up()
    await rebuilds.start(NAME)
    await shop.catches_up()
    await db.execute("UPDATE wh_active_streams SET ready_at = 'infinity'")
    await rebuilds.swap(NAME)
    ((status, version, error, parked),) = await checkpoints(db)
    assert (status, version, parked) == ("Failed", 1, True)
    assert error.startswith("event 2")


async def test_an_abandoned_rebuild_leaves_nothing_and_its_number_is_not_used_again(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await rebuilds.start(NAME)
    alice = WorkCoordinator(shop.pool, ServiceInstance(service_name="alice"))
    runner = PerspectiveRunner(shop.folder, shop.pool, alice)
    batch = await alice.process_work_batch(WorkReport(limits={f"perspective/{NAME}": 10}))
    assert await rebuilds.abandon(NAME) == 2
    live, rebuild = batch.claimed_perspective_work
    folded = await runner.fold([rebuild], 100)
    assert await runner.commit(folded) == folded
    assert await runner.commit(await runner.fold([live], 100)) == []
    await alice.leave()
    assert await rows.get(S) == Summary("Ada", 1)
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 0
    assert await db.fetchval(f"SELECT to_regclass('wh_rows_{NAME}_g2')") is None
    await shop.append(S, OrderChanged(S, 2))
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 1
    assert await rebuilds.abandon(NAME) is None
    assert await rebuilds.start(NAME) == 3


async def test_columns_and_events_that_are_declared_during_a_rebuild_are_in_the_rebuilt_rows(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    def before(row: Summary | None, event: OrderPlaced) -> Summary:
        return order_summary(row, event) or Summary("", 0)

    await shop.opens(before, name=NAME, columns=["customer"], indexes=["customer"])
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await shop.append(stream(1), OrderChanged(stream(1), 1))
    await rebuilds.start(NAME)
    shop.perspectives.clear()
    rows = await shop.opens(columns=["customer", "total"], indexes=["customer", "total"])
    await shop.append(S, OrderChanged(S, 2))
    await shop.append(stream(1), OrderPlaced(stream(1), "Bob", 2), OrderRemoved(stream(1)))
    await shop.catches_up()
    await db.execute("UPDATE wh_active_streams SET ready_at = 'infinity' WHERE stream_id = $1", stream(1))
    await rebuilds.swap(NAME)
    assert await rows.find(total=2) == [Summary("Ada", 2, 1)]
    indexes = await db.fetchval("SELECT count(*) FROM pg_indexes WHERE tablename = $1", f"wh_rows_{NAME}_g2")
    assert indexes == 3
    assert await rebuilds.undo(NAME) == 1
    assert await rows.find(total=2) == [Summary("Ada", 2, 1)]


async def test_an_inline_perspective_is_rebuilt_by_workers_and_folded_inline_before_and_after_the_swap(
    shop: Shop, rebuilds: Rebuilds
) -> None:
    rows = await shop.opens(inline=True)
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await rebuilds.start(NAME)
    await shop.append(S, OrderChanged(S, 2))
    assert await rows.get(S) == Summary("Ada", 2, 1)
    await shop.catches_up()
    assert await rebuilds.swap(NAME) == 2
    await shop.append(S, OrderChanged(S, 3))
    assert await rows.get(S) == Summary("Ada", 3, 2)


async def test_an_append_that_stays_open_is_not_waited_for_for_ever(shop: Shop, pool: Pool) -> None:
    await shop.opens()
    async with pool.acquire() as connection, connection.transaction():
        await shop.append(S, OrderPlaced(S, "Ada", 1), on=connection)
        with pytest.raises(StoreUnavailable, match="an append, a fold or a reader stays open"):
            await Rebuilds(pool, patience=0).start(NAME)


async def test_a_lost_claim_brings_the_work_of_the_rebuild_again(
    shop: Shop, rebuilds: Rebuilds, db: asyncpg.Connection
) -> None:
    await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await rebuilds.start(NAME)
    alice = WorkCoordinator(shop.pool, ServiceInstance(service_name="alice"))
    queue = f"perspective/{NAME}"
    batch = await alice.process_work_batch(WorkReport(limits={queue: 10}))
    resume = "SELECT queue FROM resume_claims($1, $2, $3) ORDER BY queue"
    last = max(work.lease_token for work in batch.claimed_perspective_work)
    again = [row[0] for row in await db.fetch(resume, alice.instance.instance_id, queue, 0)]
    assert again == [queue, f"{queue}@2"]
    assert await db.fetch(resume, alice.instance.instance_id, queue, last) == []


async def test_what_cannot_be_rebuilt_is_refused(shop: Shop, rebuilds: Rebuilds) -> None:
    async def written(event: OrderPlaced, tx: Transaction) -> None:
        pass

    await shop.opens(written)
    for name in ("nothing", "written"):
        with pytest.raises(UnknownName, match=r"keeps rows\. .*tables="):
            await rebuilds.start(name)
    await shop.opens()
    await rebuilds.start(NAME)
    with pytest.raises(InvalidSetting, match="is being rebuilt already, as generation 2"):
        await rebuilds.start(NAME)
    with pytest.raises(InvalidSetting, match="has no rows from before a swap"):
        await rebuilds.undo(NAME)
    await rebuilds.abandon(NAME)
    with pytest.raises(InvalidSetting, match="is not being rebuilt"):
        await rebuilds.swap(NAME)
    with pytest.raises(InvalidSetting, match="is not being rebuilt"):
        await rebuilds.compare(NAME)
