"""Storing to be published: numbered, validated before anything is sent, and fast with asyncpg."""

from __future__ import annotations

import hashlib
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.scenario import S
from whippletree.errors import InvalidMessage
from whippletree.message.envelope import OutboxMessage
from whippletree.store.new_messages import stream_id_of
from whippletree.store.outbox import store_outbox


async def test_versions_are_dense_per_stream_and_come_back_in_the_order_given(db: asyncpg.Connection) -> None:
    streams = ["a", "b", None, "a", S, "a", str(S).upper(), "b"]
    messages = [OutboxMessage(message_type="Happened", payload="{}", stream=stream) for stream in streams]
    assert await store_outbox(messages, on=db) == (1, 1, 1, 2, 1, 3, 2, 2)
    assert await store_outbox(messages[:0], on=db) == ()
    stored = await db.fetch("SELECT message_id, version FROM wh_outbox")
    assert {row["message_id"]: row["version"] for row in stored} == dict(
        zip([m.message_id for m in messages], (1, 1, 1, 2, 1, 3, 2, 2), strict=True)
    )


async def test_a_savepoint_takes_its_messages_and_their_versions_with_it(db: asyncpg.Connection) -> None:
    async with db.transaction():
        assert await store_outbox([OutboxMessage(message_type="Happened", payload="1", stream=S)], on=db) == (1,)
        savepoint = db.transaction()
        await savepoint.start()
        assert await store_outbox([OutboxMessage(message_type="Happened", payload="2", stream=S)], on=db) == (2,)
        await savepoint.rollback()
        assert await store_outbox([OutboxMessage(message_type="Happened", payload="3", stream=S)], on=db) == (2,)
    payloads = await db.fetch("SELECT payload FROM wh_outbox ORDER BY version")
    assert [row["payload"] for row in payloads] == ["1", "3"]


@pytest.mark.parametrize("stream", [S, None])
async def test_a_first_message_is_not_put_behind_a_workers_row_that_nothing_explains(
    db: asyncpg.Connection, stream: UUID | None
) -> None:
    """It could be hidden there. A claim removes such a row, and then the message is stored."""
    message = OutboxMessage(message_type="Happened", payload="{}", stream=stream)
    await db.execute(
        "INSERT INTO wh_active_streams (queue, stream_id, stream_hash, ready_at, head_version, moved_at)"
        " SELECT 'outbox', $1, stream_hash($1), now(), 1, now()",
        stream or message.message_id,
    )
    with pytest.raises(asyncpg.UniqueViolationError):
        await store_outbox([message], on=db)
    await db.execute("SELECT process_work_batch($1, 'test', 'test', 1)", uuid4())
    assert await store_outbox([message], on=db) == (1,)
    assert await db.fetch("SELECT * FROM verify_streams()") == []


async def test_python_and_sql_agree_on_the_stream_that_a_key_names(db: asyncpg.Connection) -> None:
    for key in ("customer 42", "ä€😀", " ", "\\", str(S).upper(), "5eed0000", f"{{{S}}}", "a\n", "%s", f"{S}\n"):
        assert await db.fetchval("SELECT stream_id_of($1)", key) == stream_id_of(key), key


async def test_what_names_a_stream_and_where_it_lies_are_the_same_for_ever(db: asyncpg.Connection) -> None:
    """On every server, in every version and process: else a stream would be two, and lose its order."""
    known = {"customer 42": "3840f88f-8687-59ac-fbde-e41c2da66f92", str(S): str(S)}
    for key, stream in known.items():
        assert str(await db.fetchval("SELECT stream_id_of($1)", key)) == stream
    streams = [UUID(int=0), UUID(int=2**128 - 1), S, *(uuid4() for _ in range(200))]
    for count in (1, 7, 10_000, 1_000_000):
        query = "SELECT array_agg(partition_of(stream_hash(s), $2)) FROM unnest($1::uuid[]) s"
        found = await db.fetchval(query, streams, count)
        hashes = [hashlib.md5(stream.bytes, usedforsecurity=False).hexdigest() for stream in streams]
        assert found == [(int(hashed[:8], 16) & 0x7FFFFFFF) % count for hashed in hashes]


async def test_nothing_is_sent_when_one_message_is_bad(db: asyncpg.Connection) -> None:
    good = OutboxMessage(message_type="Happened", payload="{}")
    bad = OutboxMessage(message_type="Happened", payload="{")
    async with db.transaction():
        before = await db.fetchval("SELECT pg_current_xact_id_if_assigned()")
        with pytest.raises(
            InvalidMessage, match=rf"^message 2 \({bad.message_id}\) cannot be stored: payload is not JSON"
        ):
            await store_outbox([good, bad, good], on=db)
        assert await db.fetchval("SELECT pg_current_xact_id_if_assigned()") == before


async def test_a_larger_payload_is_stored_where_the_installation_allows_it(db: asyncpg.Connection) -> None:
    large = OutboxMessage(message_type="Happened", payload='"' + "x" * 300_000 + '"')
    with pytest.raises(InvalidMessage, match="payload has 300002 bytes, more than the 262144 allowed"):
        await store_outbox([large], on=db)
    with pytest.raises(InvalidMessage, match="message 1 cannot be stored: payload has 300002 bytes"):
        await store_outbox([large], on=db, max_payload_bytes=1_000_000)
    await db.execute("UPDATE wh_settings SET max_payload_bytes = 1000000")
    assert await store_outbox([large], on=db, max_payload_bytes=1_000_000) == (1,)


async def test_text_that_only_looks_like_nul_is_stored(db: asyncpg.Connection) -> None:
    payload = '"a backslash, then u0000: \\\\u0000"'
    assert await store_outbox([OutboxMessage(message_type="Happened", payload=payload)], on=db) == (1,)
    assert await db.fetchval("SELECT payload FROM wh_outbox") == payload
