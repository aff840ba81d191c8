"""Storing what was received: each id once."""

from __future__ import annotations

import asyncio
import re
from importlib import resources
from uuid import uuid4

import asyncpg
import pytest

from tests.conftest import Connect
from tests.scenario import S
from tests.waiting import until_somebody_waits
from whippletree.errors import InvalidMessage
from whippletree.message.envelope import InboxMessage
from whippletree.message.ids import MessageId
from whippletree.store.inbox import StoreOutcome, store_inbox


def received(payload: str = "{}", message_id: MessageId | None = None, message_type: str = "Happened") -> InboxMessage:
    return InboxMessage(
        message_id=message_id or MessageId(uuid4()), message_type=message_type, payload=payload, stream=S
    )


def test_the_outcomes_are_those_of_the_database() -> None:
    deduplicate = resources.files("whippletree").joinpath("sql", "functions", "deduplicate.sql").read_text()
    body = deduplicate[deduplicate.index("AS $$") :]
    assert set(re.findall(r"'(\w+)'(?:::text)?(?=\s|,)", body)) == set(StoreOutcome)


async def test_the_same_id_with_another_type_or_body_is_a_conflict(db: asyncpg.Connection) -> None:
    first = received()
    assert await store_inbox([first], on=db) == (StoreOutcome.STORED,)
    other_body, other_type = received('{"n": 1}', first.message_id), received("{}", first.message_id, "Other")
    assert await store_inbox([other_body, first, other_type], on=db) == (
        StoreOutcome.CONFLICT,
        StoreOutcome.DUPLICATE,
        StoreOutcome.CONFLICT,
    )
    assert await db.fetchval("SELECT count(*) FROM wh_inbox") == 1


@pytest.mark.parametrize("alone", [True, False])
async def test_a_duplicate_takes_no_version(db: asyncpg.Connection, alone: bool) -> None:
    first, second = received(), received()
    for messages in [[first], [first], [second]] if alone else [[first, first, second]]:
        await store_inbox(messages, on=db)
    rows = await db.fetch("SELECT message_id, version FROM wh_inbox ORDER BY version")
    assert [tuple(row) for row in rows] == [(first.message_id, 1), (second.message_id, 2)]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_an_id_that_is_just_being_accepted_is_waited_for(connect: Connect, ending: str) -> None:
    early, late, watcher = await connect(), await connect(), await connect()
    message = received()
    transaction = early.transaction()
    await transaction.start()
    await store_inbox([message], on=early)
    waiting = asyncio.create_task(store_inbox([message], on=late))
    await until_somebody_waits(watcher)
    await (transaction.commit() if ending == "commit" else transaction.rollback())
    assert await waiting == (StoreOutcome.DUPLICATE if ending == "commit" else StoreOutcome.STORED,)


async def test_one_bad_message_refuses_all(db: asyncpg.Connection) -> None:
    bad = received("[1,]")
    with pytest.raises(InvalidMessage, match=rf"^message 2 \({bad.message_id}\) cannot be stored: payload is not JSON"):
        await store_inbox([received(), bad], on=db)
    assert await db.fetchval("SELECT count(*) FROM wh_message_deduplication") == 0


@pytest.mark.parametrize("alone", [True, False])
async def test_a_message_without_a_stream_may_not_have_the_id_of_a_stream(db: asyncpg.Connection, alone: bool) -> None:
    await store_inbox([received()], on=db)
    bad = InboxMessage(message_id=MessageId(S), message_type="Happened", payload="{}")
    with pytest.raises(InvalidMessage, match="is the id of a stream; give every message an id of its own"):
        await store_inbox([bad] if alone else [received(), bad], on=db)
    assert await db.fetchval("SELECT count(*) FROM wh_message_deduplication") == 1


@pytest.mark.parametrize("queue", ["other", None])
async def test_there_are_two_queues(db: asyncpg.Connection, queue: str | None) -> None:
    with pytest.raises(asyncpg.PostgresError, match=r"there is no queue .*; give outbox or inbox"):
        await db.execute(
            "SELECT store_message($1, $2, NULL, $3, 'Happened', '', '{}', NULL, NULL, NULL, NULL)", queue, S, uuid4()
        )
    assert await db.fetchval("SELECT count(*) FROM wh_streams") == 0
