"""The perspective worker: at once on start-up, in order, alone with its failures."""

from __future__ import annotations

import logging
from uuid import UUID

import asyncpg
import msgspec
import pytest

from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, OrderRemoved, Pool, Shop, Summary, checkpoints
from tests.waiting import until
from whippletree.message.event import NewEvent
from whippletree.message.ids import new_event_id
from whippletree.store.feed import Feed

OTHER = UUID(int=S.int + 1)


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool)


async def test_what_is_pending_is_worked_off_at_once(shop: Shop, db: asyncpg.Connection) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 10), OrderChanged(S, 12))
    await shop.append("order-17", OrderPlaced(S, "Bob", 5))
    async with shop.worker(polling_interval_milliseconds=600_000).running() as instance:
        await until(lambda: instance.worker.consecutive_empty_polls > 0)
        assert await rows.get(S) == Summary("Ada", 12, 1)
        assert await rows.get("order-17") == Summary("Bob", 5)
    assert await checkpoints(db) == [("Completed", 1, None, None), ("Completed", 2, None, None)]
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 0


async def test_an_event_with_an_older_id_is_folded_after_what_came_before_it(
    shop: Shop, pool: Pool, db: asyncpg.Connection
) -> None:
    """As from a producer whose clock is behind: an id says nothing of the order, and no reader goes on from one."""
    rows, feed = await shop.opens(), Feed(pool)
    ids = sorted((new_event_id() for _ in range(3)), reverse=True)
    for number, event in enumerate((OrderPlaced(S, "Ada", 10), OrderChanged(S, 12), OrderChanged(S, 14))):
        await shop.store.append(S, [msgspec.structs.replace(shop.event(event), event_id=ids[number])])
        await shop.catches_up()
        assert [read.event.event_id for read in await feed.read_all(after=number)] == [ids[number]]
    assert await rows.get(S) == Summary("Ada", 14, 2)
    assert [event.event_id for event in await shop.store.read(S)] == ids
    read_at_once = "SELECT version FROM read_perspective_events('perspective/order_summary', $1, '{0}', '{3}', $2)"
    for with_context in (False, True):
        assert [row["version"] for row in await db.fetch(read_at_once, [S], with_context)] == [1, 2, 3]


async def test_a_fold_that_raises_keeps_what_came_before_and_stops_only_its_stream(
    shop: Shop, db: asyncpg.Connection
) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 10), OrderChanged(S, 12), OrderChanged(S, -1), OrderChanged(S, 14))
    await shop.append(OTHER, OrderPlaced(OTHER, "Bob", 5))
    await shop.catches_up()
    assert await rows.get(S) == Summary("Ada", 12, 1)
    assert await rows.get(OTHER) == Summary("Bob", 5)
    error = "event 3 (OrderChanged): ValueError: a change of nothing"
    assert await checkpoints(db) == [("Completed", 1, None, None), ("Failed", 2, error, False)]


async def test_an_event_that_nobody_can_read_parks_its_stream_and_no_other(shop: Shop, db: asyncpg.Connection) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 10))
    await shop.store.append(S, [NewEvent(event_type="OrderChanged", payload='{"total": "secret"}')])
    await shop.append(OTHER, OrderPlaced(OTHER, "Bob", 5))
    await shop.catches_up()
    assert await rows.get(S) == Summary("Ada", 10)
    (done, parked) = await checkpoints(db)
    assert done == ("Completed", 1, None, None)
    assert (parked[0], parked[1], parked[3]) == ("Failed", 1, True)
    assert "this is no OrderChanged" in parked[2]
    assert "secret" not in parked[2]


async def test_a_type_from_another_namespace_is_folded_as_the_type_that_it_ends_in(shop: Shop) -> None:
    rows = await shop.opens()
    payload = f'{{"order_id": "{S}", "customer": "Ada", "total": 3}}'
    await shop.store.append(S, [NewEvent(event_type="MyApp.Events.OrderPlaced", payload=payload)])
    await shop.catches_up()
    assert await rows.get(S) == Summary("Ada", 3)


async def test_none_removes_the_row_and_it_can_come_again(shop: Shop, db: asyncpg.Connection) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 10))
    await shop.catches_up()
    await shop.append(S, OrderRemoved(S))
    await shop.catches_up()
    assert await rows.get(S) is None
    assert await checkpoints(db) == [("Completed", 2, None, None)]
    await shop.append(S, OrderPlaced(S, "Eve", 1))
    await shop.catches_up()
    assert await rows.get(S) == Summary("Eve", 1)


async def test_a_long_stream_is_saved_piece_by_piece(shop: Shop, db: asyncpg.Connection) -> None:
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 0), *(OrderChanged(S, total) for total in range(1, 25)))
    await shop.catches_up(perspective_batch_size=4)
    assert await rows.get(S) == Summary("Ada", 24, 24)
    assert await checkpoints(db) == [("Completed", 25, None, None)]


async def test_a_row_that_the_database_refuses_fails_its_stream_alone_and_tells_nothing_of_it(
    shop: Shop, db: asyncpg.Connection
) -> None:
    rows = await shop.opens(columns=["customer"])
    await db.execute("ALTER TABLE wh_rows_order_summary_g1 ADD CONSTRAINT no_eve CHECK (customer <> 'Eve')")
    await shop.append(S, OrderPlaced(S, "Eve", 10))
    await shop.append(OTHER, OrderPlaced(OTHER, "Bob", 5))
    await shop.catches_up()
    assert await rows.find(customer="Bob") == [Summary("Bob", 5)]
    (done, failed) = await checkpoints(db)
    assert done[0] == "Completed"
    assert failed[2] == (
        "its row cannot be written: CheckViolationError: SQLSTATE 23514, table wh_rows_order_summary_g1, "
        "constraint no_eve"
    )


async def test_started_and_idle_are_told_once_each(shop: Shop) -> None:
    await shop.opens()
    told: list[str] = []
    instance = shop.worker(idle_threshold_polls=2)
    instance.worker.on_work_processing_started.append(lambda: told.append("started"))
    instance.worker.on_work_processing_idle.append(lambda: told.append("idle"))
    assert instance.worker.is_idle
    async with instance.running():
        await until(lambda: instance.worker.consecutive_empty_polls > 3)
        assert told == []
        for number in range(1, 3):
            await shop.append(S, OrderPlaced(S, "Ada", 10))
            await until(lambda: told[-2:] == ["started", "idle"] and len(told) == 2 * number)  # noqa: B023 - at once
            assert instance.worker.is_idle
            assert instance.worker.consecutive_empty_polls >= 2


class Readiness:
    def __init__(self) -> None:
        self.ready = False

    async def is_ready(self) -> bool:
        return self.ready


async def test_a_database_that_is_not_ready_is_waited_for_counted_and_warned_of(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "whippletree.perspectives")
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 10))
    readiness = Readiness()
    instance = shop.worker(readiness=readiness, polling_interval_milliseconds=1)
    async with instance.running():
        await until(lambda: instance.worker.consecutive_database_not_ready_checks >= 10)
        await until(lambda: any(record.levelno == logging.WARNING for record in caplog.records))
        warning = next(record.message for record in caplog.records if record.levelno == logging.WARNING)
        assert warning == "Database not ready for 11 consecutive polling cycles. Perspective worker is paused."
        assert await rows.get(S) is None
        readiness.ready = True
        await until(lambda: instance.worker.consecutive_database_not_ready_checks == 0)
        await instance.idle()
        assert await rows.get(S) == Summary("Ada", 10)
    assert "Perspective worker starting: Instance" in caplog.text
