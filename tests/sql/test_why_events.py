"""Why an event has not reached a perspective, a receptor or a subscriber: every common cause is made to happen."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

import asyncpg
import pytest

from tests.scenario import T0, RowsWorker, S, seconds
from tests.shop import OrderPlaced, Shop, Summary
from tests.sql.asking import Ask
from tests.waiting import until
from tests.work.following import Diary, append, make_effects, row, running
from whippletree.claim.batch import WorkReport
from whippletree.message.event import NewEvent
from whippletree.message.ids import StreamId
from whippletree.message.outcome import PerspectiveCheckpointFailure
from whippletree.settings import Dsn
from whippletree.store.event_store import EventStore
from whippletree.work.subscriber_row import SubscriptionState

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
SUMMARY = WorkReport(limits={"perspective/summary": 10})


@pytest.fixture
def alice(pool: Pool) -> RowsWorker:
    return RowsWorker(pool, "orders", lease_seconds=300, max_attempts=3)


@pytest.fixture
def ask(db: asyncpg.Connection) -> Ask:
    return Ask(db)


async def placed(pool: Pool, stream: str = "order-17") -> UUID:
    receipt = await EventStore(pool).append(stream, [NewEvent(event_type="OrderPlaced", payload="{}")])
    return receipt.event_ids[0]


async def test_an_event_says_who_has_it_and_who_does_not(
    pool: Pool, db: asyncpg.Connection, alice: RowsWorker, ask: Ask
) -> None:
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    await db.execute("SELECT register_receptor('mail', '{OrderPlaced}')")
    receipt = await EventStore(pool).append("order-17", [NewEvent(event_type="OrderPlaced", payload="{}")])
    report = WorkReport(limits={"perspective/summary": 10})
    await alice.coordinator.process_work_batch(report, as_of=T0)
    failed = PerspectiveCheckpointFailure(StreamId(receipt.stream_id), "summary", "KeyError: 'total'", retry_seconds=41)
    await alice.coordinator.process_work_batch(WorkReport(outcomes=[failed], limits={}), as_of=T0)
    told = await ask(receipt.event_ids[0])
    assert "(OrderPlaced) is version 1 of stream order-17" in told
    assert "perspective/summary does not have it yet" in told
    assert "  its head, version 1, failed 1 time and is retried in 41 s: KeyError: 'total'" in told
    assert "receptor/mail does not have it yet" in told
    assert "no live instance works receptor/mail" in told
    assert "stream order-17: its head, version 1, failed 1 time" in await ask("summary")


async def test_no_worker_runs(pool: Pool, db: asyncpg.Connection, ask: Ask) -> None:
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    event = await placed(pool)
    assert "no live instance works perspective/summary; start one" in await ask.now(event)
    assert "no live instance works perspective/summary; start one" in await ask.now("summary")


async def test_the_workers_that_run_do_not_have_the_perspective(
    pool: Pool, db: asyncpg.Connection, alice: RowsWorker, ask: Ask
) -> None:
    for name in ("summary", "orphan"):
        await db.execute("SELECT register_perspective($1, '{OrderPlaced}')", name)
    await alice.coordinator.process_work_batch(SUMMARY, as_of=T0)
    event = await placed(pool)
    told = await ask.now(event)
    assert "perspective/summary does not have it yet\n  version 1 has been ready for" in told
    assert "  it is for orders on test:1" in told
    assert "no live instance works perspective/orphan; start one" in told


async def test_nobody_is_registered_for_its_type(pool: Pool, ask: Ask) -> None:
    assert "no perspective and no receptor is registered for OrderPlaced" in await ask.now(await placed(pool))


async def test_it_was_stored_before_the_receptor_was_registered(pool: Pool, db: asyncpg.Connection, ask: Ask) -> None:
    event = await placed(pool)
    await db.execute("SELECT register_receptor('mail', '{OrderPlaced}')")
    assert "receptor/mail never gets it: it was stored before the receptor was registered" in await ask.now(event)
    assert "receptor/mail does not have it yet" in await ask.now(await placed(pool))


async def test_the_receptor_is_at_a_later_version_than_the_next_of_the_stream(
    pool: Pool, db: asyncpg.Connection, ask: Ask
) -> None:
    await db.execute("SELECT register_receptor('mail', '{OrderPlaced}')")
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    await append(pool, "Noted", "Noted", "OrderPlaced", stream="order-17")
    assert "version 3 has been ready for" in await ask.now("order-17")


async def test_its_fold_raises(pool: Pool, db: asyncpg.Connection, ask: Ask) -> None:
    def broken(row: Summary | None, event: OrderPlaced) -> Summary:
        raise ValueError("no such customer")

    shop = Shop(pool)
    await shop.opens(broken)
    receipt = await shop.append(S, OrderPlaced(S, "ada", 10))
    await shop.catches_up()
    told = await ask.now(receipt.event_ids[0])
    assert "its head, version 1, failed 1 time and is retried in" in told
    assert "ValueError: no such customer" in told


async def test_its_data_is_invalid(pool: Pool, ask: Ask) -> None:
    shop = Shop(pool)
    await shop.opens()
    receipt = await shop.store.append(S, [NewEvent(event_type="OrderPlaced", payload='{"order_id": 17}')])
    await shop.catches_up()
    told = await ask.now(receipt.event_ids[0])
    assert "perspective/order_summary does not have it yet\n  its head, version 1, is parked after 1 attempt:" in told


async def test_whoever_applied_it_took_longer_than_its_lease_or_lost_its_connection(
    pool: Pool, db: asyncpg.Connection, alice: RowsWorker, ask: Ask
) -> None:
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    event = await placed(pool)
    await db.execute("UPDATE wh_active_streams SET ready_at = $1", T0)
    await alice.coordinator.process_work_batch(SUMMARY, as_of=T0)
    assert "  version 1 is leased to orders on test:1, which last beat 5 min ago; the lease ends in 1 s" in (
        await ask(event, later=299)
    )
    assert "  its lease has ended, and any instance may take it; attempt 1 was left to orders on test:1" in (
        await ask(event, later=301)
    )


async def test_all_services_that_work_it_are_named(pool: Pool, db: asyncpg.Connection, ask: Ask) -> None:
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    for name in ("inventory", "billing"):
        await RowsWorker(pool, name).coordinator.process_work_batch(SUMMARY, as_of=T0)
    told = await ask("summary")
    assert "perspective/summary is worked by inventory on test:1" in told
    assert "perspective/summary is worked by billing on test:1" in told


async def test_it_was_passed_over(pool: Pool, db: asyncpg.Connection, alice: RowsWorker, ask: Ask) -> None:
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    event = await placed(pool)
    await db.execute("SELECT skip_head('perspective/summary', stream_id_of('order-17'), 'bad data', 1)")
    told = await ask.now(event)
    assert "was given up in perspective/summary" in told
    assert "perspective/summary passed over it" in told


async def test_a_subscriber_has_stopped_at_it_or_has_not_come_to_it_or_passed_over_it(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection, ask: Ask
) -> None:
    await make_effects(db)
    await append(pool, "Good", "Bad", "Better")
    good, bad, better = [r[0] for r in await db.fetch("SELECT event_id FROM wh_event_store ORDER BY version")]
    assert "number in the feed" not in await ask.now(bad)

    def spoil(name: str) -> None:
        if name == "Bad":
            raise ValueError("spoilt")

    async with running(dsn, Diary(before=spoil)) as follower:
        await until(lambda: follower.state() is SubscriptionState.PARKED)
        told = await ask.now(bad)
        assert "its number in the feed is 2" in told
        assert "subscriber diary has stopped at it" in told
        assert "subscriber diary has gone past it" in await ask.now(good)
        assert "subscriber diary is at 1 and has not come to it" in await ask.now(better)
        await db.execute("SELECT skip_subscriber('diary', 2, 'no address')")
        assert "subscriber diary passed over it: no address" in await ask.now(bad)


async def test_a_subscriber_that_nobody_follows_is_behind_though_nobody_numbers(
    dsn: Dsn, pool: Pool, db: asyncpg.Connection, ask: Ask
) -> None:
    await make_effects(db)
    await append(pool, "First")
    async with running(dsn, Diary()) as follower:
        await until(lambda: follower.state() is SubscriptionState.LIVE)
    await append(pool, "Second", "Third")
    assert (await row(db))["behind"] == 0
    told = await ask.now("diary")
    assert "subscriber diary is at number 1 of the feed, 2 behind, the first for" in told
    assert "nobody follows it; start one with `whippletree run`" in told
    second = await db.fetchval("SELECT event_id FROM wh_event_store WHERE version = 2")
    assert "it has no number in the feed yet" in await ask.now(second)


async def test_a_claim_of_events_hands_out_exactly_what_is_said_to_be_ready_for_the_instance(
    pool: Pool, db: asyncpg.Connection, alice: RowsWorker
) -> None:
    """As for messages: the sentences and the claim agree, stream by stream."""
    bob = RowsWorker(pool, "bob", lease_seconds=300, max_attempts=3)
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    for number in range(40):
        await placed(pool, f"order-{number}")
    await db.execute("UPDATE wh_active_streams SET ready_at = $1", T0)
    for worker in (alice, bob, alice, bob):
        await worker.coordinator.process_work_batch(WorkReport(limits={"perspective/summary": 0}), as_of=T0)
    batch = await alice.coordinator.process_work_batch(WorkReport(limits={"perspective/summary": 5}), as_of=T0)
    first = batch.claimed_perspective_work[0].stream_id
    failed = PerspectiveCheckpointFailure(first, "summary", "KeyError: 'total'", retry_seconds=30)
    await alice.coordinator.process_work_batch(WorkReport(outcomes=[failed], limits={}), as_of=T0)
    everything = WorkReport(limits={"perspective/summary": 100})
    for later in (1, 31, 360):
        for worker in (bob, alice):
            said = await db.fetch(
                """SELECT s.stream_id FROM wh_active_streams s
                   CROSS JOIN LATERAL (SELECT array_agg(w) AS told FROM why_stream(s.queue, s.stream_id, $1) w) w
                   WHERE EXISTS (SELECT FROM unnest(told) t WHERE t LIKE '%has been ready for%')
                     AND EXISTS (SELECT FROM unnest(told) t WHERE t LIKE 'it is for ' || $2 || ' on%')""",
                T0 + seconds(later),
                worker.instance.service_name,
            )
            batch = await worker.coordinator.process_work_batch(everything, as_of=T0 + seconds(later))
            assert {work.stream_id for work in batch.claimed_perspective_work} == {row[0] for row in said}
