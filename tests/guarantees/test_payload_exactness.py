"""A payload is kept to the letter: numbers as they were written, keys in their order."""

from __future__ import annotations

import asyncpg
import pytest

from tests.guarantees.storing import outgoing, received, stores
from tests.scenario import T0, RowsWorker, Worker
from whippletree.claim.batch import WorkReport
from whippletree.message.envelope import Queue

PAYLOADS = [
    '{"total": 1.10}',
    '{"zebra":1,"ant":2,"bee":3}',
    '{"big":9007199254740993,"small":1e-7,"zero":-0.0}',
    '{ "spaces" : [ 1,2 ,  3 ] }',
    '{"twice":1,"twice":2}',
    '"ünïcode \\u00e9 🐴 \\ud83d\\ude00 \\n \\\\u0000"',
    "null",
    "0",
    '""',
    "[]",
]


async def _claimed(worker: RowsWorker, queue: Queue) -> list[str]:
    batch = await worker.coordinator.process_work_batch(WorkReport(limits={queue: 100}), as_of=T0)
    return [m.payload for m in (*batch.claimed_outbox_messages, *batch.claimed_inbox_messages)]


@pytest.mark.parametrize("queue", list(Queue))
async def test_a_payload_stored_with_a_batch_comes_back_to_the_letter(
    alice: Worker, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection, queue: Queue
) -> None:
    make = outgoing if queue is Queue.OUTBOX else received
    stored = await stores(alice, *(make(payload=payload) for payload in PAYLOADS))
    assert stored.outcomes == ["stored"] * len(PAYLOADS)
    rows = await db.fetch(f"SELECT payload FROM wh_{queue} ORDER BY version")
    assert [row["payload"] for row in rows] == PAYLOADS
    if isinstance(alice, RowsWorker):
        assert await _claimed(alice, queue) == PAYLOADS


@pytest.mark.parametrize("queue", list(Queue))
async def test_a_payload_that_was_inserted_comes_back_to_the_letter(
    pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection, queue: Queue
) -> None:
    for payload in PAYLOADS:
        await db.execute(
            f"INSERT INTO wh_{queue} (stream_key, message_type, payload) VALUES ('a', 'Happened', $1)", payload
        )
    assert await _claimed(RowsWorker(pool, "alice"), queue) == PAYLOADS


async def test_a_payload_that_was_copied_comes_back_to_the_letter(
    pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await db.copy_records_to_table(
        "wh_outbox",
        columns=["stream_key", "message_type", "payload"],
        records=[("a", "Happened", payload) for payload in PAYLOADS],
    )
    assert await _claimed(RowsWorker(pool, "alice"), Queue.OUTBOX) == PAYLOADS


async def test_a_payload_that_jsonb_cannot_hold_keeps_nothing_else_from_being_claimed(
    alice: Worker, db: asyncpg.Connection
) -> None:
    insert = "INSERT INTO wh_outbox (message_type, payload, headers) VALUES ('Happened', $1, $2) RETURNING message_id"
    odd = '{"n": 1e400000}'
    sent = [await db.fetchval(insert, *pair) for pair in (("{}", None), (odd, None), ("{}", odd), ("{}", "{}"))]
    assert {message.message_id for message in await alice.claims(as_of=T0)} == set(sent)


async def test_a_payload_in_debug_history_and_dead_letters_is_kept_to_the_letter(
    pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await db.execute(
        "INSERT INTO wh_outbox (stream_key, message_type, payload) VALUES ('a', 'Happened', $1)", PAYLOADS[2]
    )
    await db.execute("SELECT skip_message('outbox', stream_id, 1, 'why') FROM wh_streams")
    assert await db.fetchval("SELECT payload FROM wh_dead_letters") == PAYLOADS[2]


async def test_a_payload_that_a_reader_would_refuse_or_change_is_refused_by_the_producer(
    pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    for payload in ('{"n": NaN}', '"a\\u0000"', "{", "", '"\\ud800"', str(2**70), "[" * 70 + "]" * 70):
        assert (await stores(RowsWorker(pool, "alice"), outgoing(payload=payload))).outcomes == ["refused"]
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 0
