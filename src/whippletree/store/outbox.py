"""Stores messages to be published inside the caller's own transaction: they commit with its work, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from whippletree.message.codec import MAX_PAYLOAD_BYTES
from whippletree.message.envelope import OutboxMessage
from whippletree.store.callers_connection import AsyncConnection, SyncConnection, call_storing, call_storing_sync
from whippletree.store.new_messages import require_distinct, require_storable


async def store_outbox(
    messages: Sequence[OutboxMessage],
    *,
    on: AsyncConnection,
    schema: str = "whippletree",
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> tuple[int, ...]:
    """Store messages in the order given; return the version of each in its stream.

    Works in the transaction that `on` is in and never commits: a rollback takes the messages with it. Outside of a
    transaction the call is one by itself. All messages are stored or none: `InvalidMessage` names the first that cannot
    be, before anything is sent. The streams stay locked for other storers until the transaction ends, so store late.
    """
    require_storable(messages, max_payload_bytes)
    require_distinct(messages)
    return await call_storing("store_outbox", messages, on, schema) if messages else ()


def store_outbox_sync(
    messages: Sequence[OutboxMessage],
    *,
    on: SyncConnection,
    schema: str = "whippletree",
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> tuple[int, ...]:
    """`store_outbox` for a connection that is not awaited."""
    require_storable(messages, max_payload_bytes)
    require_distinct(messages)
    return call_storing_sync("store_outbox", messages, on, schema) if messages else ()
