"""The diagnostic queries of the specification run as printed, and answer what they ask.

Only what stands in <angle brackets> is replaced.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.guarantees.storing import as_claimed, outgoing, received, stores
from tests.scenario import Given, RowsWorker, S, completion, failure, minutes, release, seconds
from whippletree.message.envelope import Queue

INSTANCE_HEARTBEAT = """
   SELECT instance_id, last_heartbeat_at,
          now() - last_heartbeat_at AS age
   FROM wh_service_instances;
"""
PARTITION_OWNERSHIP = """
   SELECT partition_number, instance_id, last_heartbeat
   FROM wh_partition_assignments
   WHERE partition_number = <stuck_message_partition>;
"""
STREAM_ORDERING = """
   SELECT message_id, created_at, instance_id, lease_expiry,
          scheduled_for, status
   FROM wh_outbox
   WHERE stream_id = <stream_id>
   ORDER BY created_at;
"""
LEASE_STATUS = """
   SELECT message_id, instance_id,
          lease_expiry,
          lease_expiry < now() AS is_expired
   FROM wh_outbox
   WHERE message_id = <stuck_message_id>;
"""
STREAM_IDS = """
   SELECT message_id, stream_id, created_at
   FROM wh_outbox
   ORDER BY stream_id, created_at;
"""
OUT_OF_ORDER = """
   -- Find messages processed out of order
   SELECT later.message_id AS later_msg,
          later.processed_at AS later_processed,
          earlier.message_id AS earlier_msg,
          earlier.processed_at AS earlier_processed
   FROM wh_outbox later
   JOIN wh_outbox earlier
     ON later.stream_id = earlier.stream_id
     AND later.created_at > earlier.created_at
   WHERE later.processed_at < earlier.processed_at;
"""
WORKER_HEALTH = """
SELECT
  instance_id,
  service_name,
  last_heartbeat,
  NOW() - last_heartbeat AS time_since_heartbeat
FROM wh_service_instances
WHERE service_name = 'PerspectiveWorker'
ORDER BY last_heartbeat DESC;
"""
BOTH_SERVICES = """
-- Check that both services are active
SELECT
  instance_id,
  service_name,
  last_heartbeat
FROM wh_service_instances
WHERE service_name IN ('InventoryWorker', 'BFF.API')
ORDER BY service_name;

-- Should show TWO distinct instance_id values (one per service)
"""


@pytest.fixture
async def now(db: asyncpg.Connection) -> datetime:
    """The server's own time, because the queries ask for it."""
    await db.execute("SELECT change_partition_count(64)")
    clock: datetime = await db.fetchval("SELECT clock_timestamp()")
    return clock


@pytest.fixture
def alice(pool: asyncpg.Pool[asyncpg.Record]) -> RowsWorker:
    return RowsWorker(pool, "PerspectiveWorker")


async def _asked(db: asyncpg.Connection, query: str, **values: object) -> list[dict[str, Any]]:
    for name, value in values.items():
        query = query.replace(f"<{name}>", str(value) if isinstance(value, int) else f"'{value}'")
    assert "<" not in query.replace(" < ", "")
    return [dict(row) for row in await db.fetch(query)]


async def test_the_heartbeat_of_every_instance_can_be_asked(
    db: asyncpg.Connection, alice: RowsWorker, now: datetime
) -> None:
    await alice.polls(as_of=now - minutes(5))
    (row,) = await _asked(db, INSTANCE_HEARTBEAT)
    assert (row["instance_id"], row["last_heartbeat_at"]) == (alice.instance_id, now - minutes(5))
    assert minutes(5) <= row["age"] < minutes(6)


async def test_the_owner_of_a_stuck_messages_partition_can_be_asked(
    db: asyncpg.Connection, given: Given, alice: RowsWorker, now: datetime
) -> None:
    await given.outbox(as_of=now)
    partition = await db.fetchval("SELECT partition_number FROM wh_outbox")
    assert await _asked(db, PARTITION_OWNERSHIP, stuck_message_partition=partition) == []
    await alice.polls(as_of=now)
    owned = {"partition_number": partition, "instance_id": alice.instance_id, "last_heartbeat": now}
    assert await _asked(db, PARTITION_OWNERSHIP, stuck_message_partition=partition) == [owned]
    # The heartbeat that counts is the owner's: one for all its partitions.
    await alice.polls(as_of=now + seconds(5))
    owned["last_heartbeat"] = now + seconds(5)
    assert await _asked(db, PARTITION_OWNERSHIP, stuck_message_partition=partition) == [owned]
    await db.execute("SELECT leave($1)", alice.instance_id)
    assert await _asked(db, PARTITION_OWNERSHIP, stuck_message_partition=partition) == []


async def test_what_holds_a_stream_can_be_asked(
    db: asyncpg.Connection, given: Given, alice: RowsWorker, now: datetime
) -> None:
    first, second = await given.outbox(count=1, as_of=now) + await given.outbox(count=1, as_of=now + seconds(1))
    waiting = {"instance_id": None, "lease_expiry": None, "scheduled_for": None, "status": 1}
    one: dict[str, Any] = {"message_id": first.message_id, "created_at": now, **waiting}
    two: dict[str, Any] = {"message_id": second.message_id, "created_at": now + seconds(1), **waiting}
    assert await _asked(db, STREAM_ORDERING, stream_id=S) == [one, two]

    await alice.claims(as_of=now + seconds(2), limit=1)
    leased = {"instance_id": alice.instance_id, "lease_expiry": now + seconds(302)}
    assert await _asked(db, STREAM_ORDERING, stream_id=S) == [{**one, **leased}, two]

    await alice.reports(failure(first, retry_at=now + minutes(7)), as_of=now + seconds(2))
    failed = {"scheduled_for": now + minutes(7), "status": 9}
    assert await _asked(db, STREAM_ORDERING, stream_id=S) == [{**one, **failed}, two]

    await alice.claims(as_of=now + minutes(7))
    leased = {"instance_id": alice.instance_id, "lease_expiry": now + minutes(12), "status": 9}
    assert await _asked(db, STREAM_ORDERING, stream_id=S) == [{**one, **leased}, two]
    await alice.reports(completion(first), as_of=now + minutes(7))
    assert await _asked(db, STREAM_ORDERING, stream_id=S) == [two]


async def test_a_message_scheduled_by_its_producer_shows_its_time(
    db: asyncpg.Connection, alice: RowsWorker, now: datetime
) -> None:
    await stores(alice, outgoing(scheduled_for=now + minutes(9)), outgoing(), as_of=now)
    times = [row["scheduled_for"] for row in await _asked(db, STREAM_ORDERING, stream_id=S)]
    assert sorted(times, key=str) == sorted([now + minutes(9), None], key=str)


async def test_whether_a_lease_has_expired_can_be_asked(
    db: asyncpg.Connection, given: Given, alice: RowsWorker, now: datetime
) -> None:
    (first,) = await given.outbox(as_of=now - minutes(20))
    lease: dict[str, Any] = {"message_id": first.message_id}
    free = {**lease, "instance_id": None, "lease_expiry": None, "is_expired": None}
    assert await _asked(db, LEASE_STATUS, stuck_message_id=first.message_id) == [free]

    await alice.claims(as_of=now - minutes(10))
    lease["instance_id"] = alice.instance_id
    expired = {**lease, "lease_expiry": now - minutes(5), "is_expired": True}
    assert await _asked(db, LEASE_STATUS, stuck_message_id=first.message_id) == [expired]

    await alice.claims(as_of=now)
    active = {**lease, "lease_expiry": now + minutes(5), "is_expired": False}
    assert await _asked(db, LEASE_STATUS, stuck_message_id=first.message_id) == [active]

    await alice.reports(release(first), as_of=now)
    assert await _asked(db, LEASE_STATUS, stuck_message_id=first.message_id) == [free]


async def test_messages_without_a_stream_show_none(db: asyncpg.Connection, given: Given, now: datetime) -> None:
    (loose,) = await given.outbox(stream=None, as_of=now)
    one, two = await given.outbox(as_of=now) + await given.outbox(as_of=now + seconds(1))
    other = UUID(int=S.int + 1)
    (three,) = await given.outbox(stream=other, as_of=now)
    rows = await _asked(db, STREAM_IDS)
    assert [(row["message_id"], row["stream_id"]) for row in rows] == [
        (one.message_id, S), (two.message_id, S), (three.message_id, other), (loose.message_id, None),
    ]  # fmt: skip


async def test_no_message_was_processed_out_of_order(
    db: asyncpg.Connection, given: Given, alice: RowsWorker, now: datetime
) -> None:
    for second in range(4):
        await given.outbox(as_of=now + seconds(second))
        await given.outbox(stream=None, as_of=now + seconds(second))
    for minute in range(1, 9):
        claimed = await alice.claims(as_of=now + minutes(minute), limit=3)
        await alice.reports(*map(completion, claimed), as_of=now + minutes(minute), debug=True)
    assert await db.fetchval("SELECT count(*) FROM wh_outbox WHERE processed_at IS NOT NULL") == 8
    assert await _asked(db, OUT_OF_ORDER) == []


async def test_a_message_processed_out_of_order_would_be_found(
    db: asyncpg.Connection, given: Given, alice: RowsWorker, now: datetime
) -> None:
    """The coordinator cannot be made to do this, so the history is forged."""
    first, second = await given.outbox(as_of=now) + await given.outbox(as_of=now + seconds(1))
    await alice.reports(*map(completion, await alice.claims(as_of=now + seconds(1))), as_of=now, debug=True)
    forged = now + minutes(5)
    await db.execute(
        "UPDATE wh_finished_messages SET processed_at = $1 WHERE message_id = $2", forged, first.message_id
    )
    assert await _asked(db, OUT_OF_ORDER) == [
        {
            "later_msg": second.message_id,
            "later_processed": now,
            "earlier_msg": first.message_id,
            "earlier_processed": forged,
        }
    ]


async def test_the_health_of_a_services_workers_can_be_asked(
    db: asyncpg.Connection, alice: RowsWorker, pool: asyncpg.Pool[asyncpg.Record], now: datetime
) -> None:
    second, other = RowsWorker(pool, "PerspectiveWorker"), RowsWorker(pool, "BFF.API")
    for worker, heartbeat in ((alice, now - minutes(3)), (second, now - minutes(1)), (other, now)):
        await worker.polls(as_of=heartbeat)
    rows = await _asked(db, WORKER_HEALTH)
    assert [row["instance_id"] for row in rows] == [second.instance_id, alice.instance_id]
    assert [row["last_heartbeat"] for row in rows] == [now - minutes(1), now - minutes(3)]
    assert minutes(3) <= rows[1]["time_since_heartbeat"] < minutes(4)


async def test_two_services_show_two_instances(
    db: asyncpg.Connection, pool: asyncpg.Pool[asyncpg.Record], now: datetime
) -> None:
    workers = [RowsWorker(pool, name) for name in ("InventoryWorker", "BFF.API")]
    for worker in workers:
        await worker.polls(as_of=now)
    rows = await _asked(db, BOTH_SERVICES)
    assert [row["service_name"] for row in rows] == ["BFF.API", "InventoryWorker"]
    assert {row["instance_id"] for row in rows} == {worker.instance_id for worker in workers}


METRICS = {
    "OutboxStoredCount": "SELECT count(*) FROM wh_outbox WHERE processed_at IS NULL",
    "OutboxPublishedCount": "SELECT count(*) FROM wh_outbox WHERE status & 2 = 2",
    "OutboxFailedCount": "SELECT count(*) FROM wh_outbox WHERE status & 8 = 8",
    "InboxReceivedCount": "SELECT count(*) FROM wh_message_deduplication",
    "InboxCompletedCount": "SELECT count(*) FROM wh_inbox WHERE status & 4 = 4",
    "InboxFailedCount": "SELECT count(*) FROM wh_inbox WHERE status & 8 = 8",
    "ActiveLeases": "SELECT count(*) FROM wh_outbox WHERE lease_expiry > now()",
    "StaleLeases": "SELECT count(*) FROM wh_outbox WHERE lease_expiry <= now()",
}
"""The counters of the specification, each in one line over the same tables."""


async def test_the_counters_of_the_specification_can_be_read(
    db: asyncpg.Connection, given: Given, alice: RowsWorker, now: datetime
) -> None:
    """One lease has run out, one is active, one message failed, one is published; one of two received is done."""
    long_ago = now - minutes(20)
    stored = {name: (await given.outbox(stream=name, as_of=long_ago))[0] for name in ("stale", "failed", "published")}
    assert set(await alice.claims(as_of=now - minutes(10))) == set(stored.values())
    await alice.reports(
        completion(stored["published"]), failure(stored["failed"], retry_at=now + minutes(1)), as_of=now, debug=True
    )
    await db.execute("UPDATE wh_active_streams SET ready_at = $1 WHERE lease_expiry < now()", now + minutes(1))
    await given.outbox(stream="active", as_of=now)
    assert len(await alice.claims(as_of=now)) == 1
    done, failed = received(stream="done"), received(stream="failed")
    await stores(alice, done, failed, as_of=now)
    assert len(await alice.claims(as_of=now, queue=Queue.INBOX)) == 2
    await alice.reports(completion(as_claimed(done)), failure(as_claimed(failed)), as_of=now, debug=True)
    assert {name: await db.fetchval(query) for name, query in METRICS.items()} == {
        "OutboxStoredCount": 3, "OutboxPublishedCount": 1, "OutboxFailedCount": 1, "InboxReceivedCount": 2,
        "InboxCompletedCount": 1, "InboxFailedCount": 1, "ActiveLeases": 1, "StaleLeases": 1,
    }  # fmt: skip
