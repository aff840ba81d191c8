"""One stream folded from its first event on: the row as it was, and the row made anew."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import asyncpg
import pytest

from tests.scenario import S
from tests.shop import Noted, OrderChanged, OrderPlaced, OrderRemoved, Pool, Shop, Summary, checkpoints
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.dispatch.perspective_runner import PerspectiveRunner
from whippletree.dispatch.rebuild import Rebuilds
from whippletree.dispatch.replay import Replays
from whippletree.errors import InvalidSetting, PerspectiveFailed, UnknownName, UsageError
from whippletree.message.event import NewEvent
from whippletree.store.transaction import Transaction

NAME = "order_summary"
OTHER = UUID(int=S.int + 1)


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool)


async def test_the_state_of_a_stream_at_a_version_or_a_time_is_what_it_was_then(
    shop: Shop, db: asyncpg.Connection
) -> None:
    await shop.opens()
    replays = Replays(shop.folder, shop.pool)
    await shop.append("order-17", OrderPlaced(S, "Ada", 0), Noted(S), *(OrderChanged(S, n) for n in range(1, 2500)))
    between = await db.fetchval("SELECT clock_timestamp()")
    await shop.append("order-17", OrderRemoved(S))
    assert await replays.state_at(NAME, "order-17") is None
    assert await replays.state_at(NAME, "order-17", version=10_000) is None
    assert await replays.state_at(NAME, "order-17", version=2) == Summary("Ada", 0)
    assert await replays.state_at(NAME, "order-17", version=2001) == Summary("Ada", 1999, 1999)
    assert await replays.state_at(NAME, "order-17", time=between) == Summary("Ada", 2499, 2499)
    assert await replays.state_at(NAME, "order-17", time=datetime.fromisoformat("2001-01-01T00:00:00+00:00")) is None
    assert await checkpoints(db) == [("Pending", 0, None, False)]


async def test_a_state_that_cannot_be_known_is_an_error(shop: Shop) -> None:
    async def written(event: OrderPlaced, tx: Transaction) -> None:
        pass

    await shop.opens()
    await shop.opens(written)
    await shop.append(S, OrderPlaced(S, "Ada", 1), OrderChanged(S, -1))
    replays = Replays(shop.folder, shop.pool)
    assert await replays.state_at(NAME, S, version=1) == Summary("Ada", 1)
    with pytest.raises(PerspectiveFailed, match=r"event 2 \(OrderChanged\): ValueError"):
        await replays.state_at(NAME, S)
    with pytest.raises(UsageError, match="writes its own tables"):
        await replays.state_at("written", S)
    with pytest.raises(UnknownName, match="it has order_summary, written"):
        await replays.state_at("orders", S)
    with pytest.raises(InvalidSetting, match="no time zone"):
        await replays.state_at(NAME, S, time=datetime.fromisoformat("2001-01-01"))


async def test_the_row_of_one_stream_is_made_anew_and_the_others_are_left(shop: Shop, db: asyncpg.Connection) -> None:
    rows = await shop.opens()
    for stream in (S, OTHER):
        await shop.append(stream, OrderPlaced(stream, "Ada", 1), OrderChanged(stream, 2))
    await shop.catches_up()
    await db.execute(f"""UPDATE wh_rows_{NAME}_g1 SET row = row || '{{"total": 9}}'""")
    await shop.append(S, OrderChanged(S, 3))
    replays = Replays(shop.folder, shop.pool)
    await replays.rebuild_stream(NAME, S)
    assert await rows.get(S) == Summary("Ada", 3, 2)
    assert await rows.get(OTHER) == Summary("Ada", 9, 1)
    assert await checkpoints(db) == [("Completed", 2, None, None), ("Completed", 3, None, None)]
    with pytest.raises(UnknownName, match="has no events"):
        await replays.rebuild_stream(NAME, "unheard-of")


async def test_whoever_was_folding_the_stream_is_refused(shop: Shop) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    alice = WorkCoordinator(shop.pool, ServiceInstance(service_name="alice"))
    runner = PerspectiveRunner(shop.folder, shop.pool, alice)
    batch = await alice.process_work_batch(WorkReport(limits={f"perspective/{NAME}": 10}))
    folded = await runner.fold(batch.claimed_perspective_work, 100)
    await shop.append(S, OrderChanged(S, 2))
    await Replays(shop.folder, shop.pool).rebuild_stream(NAME, S)
    assert await runner.commit(folded) == folded
    assert await rows.get(S) == Summary("Ada", 2, 1)


async def test_rebuilding_a_stream_while_it_is_written_and_worked_loses_nothing(
    shop: Shop, db: asyncpg.Connection
) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 0))
    replays = Replays(shop.folder, shop.pool)
    await shop.changes_while(NAME, lambda: replays.rebuild_stream(NAME, S))
    assert await rows.get(S) == Summary("Ada", 40, 40)


async def test_a_stream_that_cannot_be_rebuilt_is_left_as_it_was(shop: Shop, db: asyncpg.Connection) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await shop.store.append(S, [NewEvent(event_type="OrderChanged", payload='{"total": "none"}')])
    await shop.catches_up()
    before = await checkpoints(db)
    with pytest.raises(PerspectiveFailed, match="event 2"):
        await Replays(shop.folder, shop.pool).rebuild_stream(NAME, S)
    assert await rows.get(S) == Summary("Ada", 1)
    assert await checkpoints(db) == before


async def test_no_replay_of_any_kind_makes_work_for_a_receptor(shop: Shop, db: asyncpg.Connection) -> None:
    await shop.opens()
    await db.execute("SELECT register_receptor('ship', ARRAY['OrderPlaced'])")
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    await shop.catches_up()
    looks = "SELECT (SELECT array_agg(l) FROM wh_receptor_log l), array_agg(s) FROM wh_active_streams s"
    before = await db.fetchrow(looks)
    rebuilds, replays = Rebuilds(shop.pool), Replays(shop.folder, shop.pool)
    await replays.state_at(NAME, S)
    await replays.rebuild_stream(NAME, S)
    await rebuilds.start(NAME)
    await shop.catches_up()
    await rebuilds.swap(NAME)
    await rebuilds.undo(NAME)
    await shop.catches_up()
    assert await db.fetchrow(looks) == before
