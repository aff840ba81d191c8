"""What tests send, and what they find in the inbox of the receiver and left in the outbox of the sender."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID, uuid4

import asyncpg

from tests.transports.bus import RECEIVER, TOPIC
from tests.waiting import until
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.message.codec import encode
from whippletree.message.envelope import ClaimedMessage, OutboxMessage
from whippletree.store.outbox import store_outbox


def order(stream: UUID | str | None = None, *, topic: str = TOPIC, payload: str | None = None) -> OutboxMessage:
    return OutboxMessage(
        message_type="OrderPlaced", payload=payload or encode({"total": 1}), topic=topic, stream=stream or uuid4()
    )


async def send(db: asyncpg.Connection, *messages: OutboxMessage) -> None:
    await store_outbox(messages, on=db)


async def claim(coordinator: WorkCoordinator, limit: int = 1000) -> Sequence[ClaimedMessage]:
    batch = await coordinator.process_work_batch(WorkReport(limits={"outbox": limit}))
    return batch.claimed_outbox_messages


async def waiting(db: asyncpg.Connection) -> int:
    return int(await db.fetchval("SELECT count(*) FROM wh_outbox"))


async def arrived(db: asyncpg.Connection) -> list[asyncpg.Record]:
    return await db.fetch(f"SELECT * FROM {RECEIVER}.wh_inbox ORDER BY stream_id, version")


async def dead_letters(db: asyncpg.Connection) -> list[asyncpg.Record]:
    return await db.fetch(f"SELECT * FROM {RECEIVER}.wh_dead_letters ORDER BY letter_id")


async def until_all_have_left(db: asyncpg.Connection) -> None:
    async def empty() -> bool:
        return await waiting(db) == 0

    await until(empty)


async def until_there_are(db: asyncpg.Connection, count: int) -> list[asyncpg.Record]:
    """The inbox, once it holds so many."""

    async def enough() -> bool:
        return int(await db.fetchval(f"SELECT count(*) FROM {RECEIVER}.wh_messages")) >= count

    await until(enough)
    return await arrived(db)


def streams_of(rows: Sequence[asyncpg.Record]) -> dict[UUID, list[UUID]]:
    """The ids of each stream, in the order of the inbox."""
    streams: dict[UUID, list[UUID]] = defaultdict(list)
    for row in rows:
        streams[row["stream_id"]].append(row["message_id"])
    return dict(streams)
