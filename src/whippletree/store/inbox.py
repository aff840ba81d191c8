"""Accepts received messages, each id once, inside the caller's own transaction."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from whippletree.message.codec import MAX_PAYLOAD_BYTES
from whippletree.message.envelope import InboxMessage
from whippletree.store.callers_connection import AsyncConnection, SyncConnection, call_storing, call_storing_sync
from whippletree.store.new_messages import require_storable


class StoreOutcome(StrEnum):
    """What became of a received message."""

    STORED = "stored"
    """It is new, and will be handled once."""
    DUPLICATE = "duplicate"
    """This very message was accepted before."""
    CONFLICT = "conflict"
    """Its id was accepted before, with another type or payload. Nothing was stored."""


async def store_inbox(
    messages: Sequence[InboxMessage],
    *,
    on: AsyncConnection,
    schema: str = "whippletree",
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> tuple[StoreOutcome, ...]:
    """Accept messages in the order given; say of each what became of it.

    Works in the transaction that `on` is in and never commits. An id that another transaction is just accepting is
    waited for: if that one rolls back, this message is the first. `InvalidMessage` names the first message that cannot
    be stored; then none is.
    """
    require_storable(messages, max_payload_bytes)
    outcomes = await call_storing("store_inbox", messages, on, schema) if messages else ()
    return tuple(StoreOutcome(outcome) for outcome in outcomes)


def store_inbox_sync(
    messages: Sequence[InboxMessage],
    *,
    on: SyncConnection,
    schema: str = "whippletree",
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> tuple[StoreOutcome, ...]:
    """`store_inbox` for a connection that is not awaited."""
    require_storable(messages, max_payload_bytes)
    outcomes = call_storing_sync("store_inbox", messages, on, schema) if messages else ()
    return tuple(StoreOutcome(outcome) for outcome in outcomes)
