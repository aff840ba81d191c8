"""Messages that wait. Written in bulk, because a million of them are only the scenery of a measurement."""

from __future__ import annotations

from datetime import UTC, datetime

import asyncpg

from whippletree.message.codec import encode

PAYLOAD = encode({"order": 4711, "customer": "Ada Lovelace", "lines": [1, 2, 3]})
PARKED = datetime.max.replace(tzinfo=UTC)
"""A driver's way of saying `infinity`."""

_STREAMS = """
    INSERT INTO wh_streams (stream_id, outbox_version)
    SELECT gen_random_uuid(), $2 FROM generate_series(1, $1::integer)
    RETURNING stream_id
"""
_ORDERED = """
    INSERT INTO wh_messages (queue, stream_id, version, message_id, message_type, topic, payload, created_at)
    SELECT 'outbox', s, v, gen_random_uuid(), 'OrderPlaced', 'orders', $3::text::json, clock_timestamp()
    FROM generate_series(1, $2::integer) v, unnest($1::uuid[]) s
"""
_ALONE = """
    INSERT INTO wh_messages (queue, stream_id, version, message_id, message_type, topic, payload, created_at)
    SELECT 'outbox', n.id, 1, n.id, 'OrderPlaced', 'orders', $2::text::json, clock_timestamp()
    FROM (
      -- Ids that follow the clock, as those of our producers do.
      SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
        || left(md5(random()::text), 20))::uuid AS id
      FROM generate_series(1, $1::integer)
    ) n
    RETURNING stream_id
"""
_ACTIVE = """
    INSERT INTO wh_active_streams (queue, stream_id, stream_hash, ready_at, head_version, moved_at)
    SELECT 'outbox', s, stream_hash(s), COALESCE($2, clock_timestamp()), 0, clock_timestamp()
    FROM unnest($1::uuid[]) s
"""


async def fill(
    connection: asyncpg.Connection, streams: int, per_stream: int | None = None, *, ready: datetime | None = None
) -> None:
    """Put messages into the outbox: so many of each stream, in turns; or messages without a stream, each one alone.

    `ready` is when they may be claimed; now, unless it is given.
    """
    async with connection.transaction():
        if per_stream is None:
            active = await connection.fetch(_ALONE, streams, PAYLOAD)
        else:
            active = await connection.fetch(_STREAMS, streams, per_stream)
            await connection.execute(_ORDERED, [row[0] for row in active], per_stream, PAYLOAD)
        await connection.execute(_ACTIVE, [row[0] for row in active], ready)


async def empty(connection: asyncpg.Connection) -> None:
    await connection.execute("TRUNCATE wh_messages, wh_active_streams, wh_streams")
