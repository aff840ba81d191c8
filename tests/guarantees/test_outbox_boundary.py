"""The outbox is part of the caller's transaction: stored with it, in order, or not at all."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable
from uuid import UUID

import asyncpg
import pytest

from tests.guarantees.storing import as_claimed, outgoing, stores
from tests.scenario import T0, JsonWorker, Message, S, Worker, completion
from whippletree.message.envelope import Queue
from whippletree.message.ids import MessageId, new_message_id

Connect = Callable[[], Awaitable[asyncpg.Connection]]
COLUMNS = ["message_id", "stream_id", "message_type", "payload"]
QUEUES = pytest.mark.parametrize("queue", list(Queue))


def _rows(count: int, stream: UUID | None = S) -> list[tuple[MessageId, UUID | None, str, str]]:
    return [(new_message_id(), stream, "Happened", "{}") for _ in range(count)]


async def _insert(db: asyncpg.Connection, queue: Queue, rows: list[tuple[MessageId, UUID | None, str, str]]) -> None:
    for row in rows:
        await db.execute(f"INSERT INTO wh_{queue} ({', '.join(COLUMNS)}) VALUES ($1, $2, $3, $4)", *row)


async def _copy(db: asyncpg.Connection, queue: Queue, rows: list[tuple[MessageId, UUID | None, str, str]]) -> None:
    await db.copy_records_to_table(f"wh_{queue}", columns=COLUMNS, records=rows)


Store = Callable[[asyncpg.Connection, Queue, list[tuple[MessageId, UUID | None, str, str]]], Awaitable[None]]
WAYS = pytest.mark.parametrize("store", [_insert, _copy], ids=["INSERT", "COPY"])


@QUEUES
@WAYS
async def test_plain_sql_keeps_the_order_of_the_callers_statements(
    db: asyncpg.Connection, alice: Worker, queue: Queue, store: Store
) -> None:
    first, second, third = _rows(3), _rows(2), _rows(1)
    async with db.transaction():
        await store(db, queue, first)
        await store(db, queue, second)
    await store(db, queue, third)
    claimed = await alice.claims(queue=queue)
    assert claimed == [Message(row[0]) for row in (*first, *second, *third)]


@QUEUES
@WAYS
async def test_plain_sql_is_undone_with_the_callers_transaction(
    db: asyncpg.Connection, alice: Worker, queue: Queue, store: Store
) -> None:
    await db.execute("CREATE TABLE orders (total integer)")
    transaction = db.transaction()
    await transaction.start()
    await db.execute("INSERT INTO orders VALUES (1)")
    await store(db, queue, _rows(2))
    await transaction.rollback()
    assert await alice.claims(queue=queue) == []
    assert await db.fetchval(f"SELECT count(*) FROM wh_{queue}") == 0
    kept = _rows(1)
    await store(db, queue, kept)
    assert await db.fetchval(f"SELECT array_agg(version) FROM wh_{queue}") == [1]
    assert await alice.claims(queue=queue) == [Message(kept[0][0])]


@QUEUES
async def test_a_message_cannot_be_claimed_before_its_transaction_commits(
    db: asyncpg.Connection, connect: Connect, alice: Worker, queue: Queue
) -> None:
    other = await connect()
    rows = _rows(1)
    async with other.transaction():
        await _insert(other, queue, rows)
        assert await alice.claims(queue=queue) == []
    assert await alice.claims(queue=queue, as_of=T0) == [Message(rows[0][0])]


async def test_the_outbox_does_not_deduplicate(alice: Worker, db: asyncpg.Connection) -> None:
    """Once it is published, the same id is a new message: the caller's transaction is what prevents duplicates."""
    message = outgoing()
    assert (await stores(alice, message)).outcomes == ["stored"]
    (claimed,) = await alice.claims()
    await alice.reports(completion(claimed))
    assert (await stores(alice, message)).outcomes == ["stored"]
    assert await db.fetchval("SELECT count(*) FROM wh_message_deduplication") == 0


async def test_an_id_that_still_waits_in_the_outbox_is_refused_and_the_others_are_stored(
    alice: Worker, db: asyncpg.Connection
) -> None:
    message, other = outgoing(), outgoing()
    await stores(alice, message)
    assert (await stores(alice, message, other)).outcomes == ["refused", "stored"]
    assert await db.fetchval("SELECT array_agg(version ORDER BY version) FROM wh_outbox") == [1, 2]


async def test_the_same_id_twice_in_one_call_is_stored_once(alice: Worker, db: asyncpg.Connection) -> None:
    message = outgoing()
    assert (await stores(alice, message, message)).outcomes == ["stored", "refused"]
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 1


async def test_an_insert_of_several_rows_returns_their_versions(db: asyncpg.Connection) -> None:
    insert = """
    INSERT INTO wh_outbox (stream_key, message_type, payload)
    SELECT stream, 'Happened', json_build_object('n', n)
    FROM unnest(ARRAY['a', 'b', 'a', NULL]) WITH ORDINALITY AS s(stream, n)
    RETURNING stream_key, version, message_id
    """
    rows = await db.fetch(insert)
    assert [(row["stream_key"], row["version"]) for row in rows] == [("a", 1), ("b", 1), ("a", 2), (None, 1)]
    assert len({row["message_id"] for row in rows}) == 4


async def test_copy_in_text_works_too(db: asyncpg.Connection, pool: asyncpg.Pool[asyncpg.Record]) -> None:
    ids = [new_message_id() for _ in range(3)]
    lines = "".join(f'{id_};customer-42;Happened;{{"n": {n}}}\n' for n, id_ in enumerate(ids))
    await db.copy_to_table(
        "wh_outbox",
        source=io.BytesIO(lines.encode()),
        columns=["message_id", "stream_key", "message_type", "payload"],
        format="csv",
        delimiter=";",
        quote="'",
    )
    assert await JsonWorker(pool, "alice").claims() == [Message(id_) for id_ in ids]


async def test_inserting_an_id_that_waits_is_a_unique_violation(db: asyncpg.Connection) -> None:
    rows = _rows(1)
    await _insert(db, Queue.OUTBOX, rows)
    with pytest.raises(asyncpg.UniqueViolationError):
        await _insert(db, Queue.OUTBOX, rows)


async def test_storing_never_claims(alice: Worker, db: asyncpg.Connection) -> None:
    assert (await stores(alice, outgoing())).claimed == []
    row = await db.fetchrow("SELECT instance_id, lease_expiry, attempts FROM wh_outbox")
    assert row is not None
    assert tuple(row) == (None, None, 0)


async def test_a_batch_that_wants_work_gets_what_it_has_just_stored(alice: Worker) -> None:
    first, second = outgoing(), outgoing()
    stored = await stores(alice, first, second, claim=10)
    assert stored.claimed == [as_claimed(first), as_claimed(second)]


async def test_the_two_faces_store_alike(alice: Worker, db: asyncpg.Connection) -> None:
    cause = new_message_id()
    message = outgoing(
        stream="customer-42", payload='{"b": 1.10}', topic="orders", headers='{"trace": "x"}', correlation_id=cause,
        causation_id=cause, scheduled_for=T0,
    )  # fmt: skip
    await stores(alice, message)
    row = await db.fetchrow("SELECT * FROM wh_outbox")
    assert row is not None
    assert row["stream_id"] == await db.fetchval("SELECT stream_id_of('customer-42')")
    assert (row["stream_key"], row["topic"], row["message_type"]) == ("customer-42", "orders", "Happened")
    assert (row["payload"], json.loads(row["headers"])) == ('{"b": 1.10}', {"trace": "x"})
    assert row["correlation_id"] == row["causation_id"] == cause
    assert (row["scheduled_for"], row["created_at"], row["status"]) == (T0, T0, 1)


async def test_any_client_stores_a_batch_inside_its_transaction(
    db: asyncpg.Connection, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    ids = [new_message_id() for _ in range(3)]
    elements = [
        {"message_id": str(id_), "stream_key": "a", "message_type": "Happened", "payload": {"n": n}}
        for n, id_ in enumerate(ids)
    ]
    async with db.transaction():
        assert await db.fetchval("SELECT store_outbox_batch($1, $2)", json.dumps(elements), T0) == [1, 2, 3]
    assert await JsonWorker(pool, "alice").claims() == [Message(id_) for id_ in ids]
    with pytest.raises(asyncpg.PostgresError, match="message 2 cannot be stored: message_type must be"):
        await db.fetchval(
            "SELECT store_outbox_batch($1)",
            json.dumps([{**elements[0], "message_id": str(new_message_id())}, {"message_id": str(new_message_id())}]),
        )
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 3
