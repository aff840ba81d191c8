"""A report of which a part is wrong: what is right is taken, what is not is named."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import pytest

from tests.scenario import T0
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.errors import InvalidSetting
from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.message.ids import new_message_id
from whippletree.message.outcome import MessageCompletion, MessageProcessingStatus

EVERY_QUEUE = ("outbox", "inbox", "receptor/mail", "receptor/*", "perspective/shop.summary", "perspective/*")


@pytest.fixture
def coordinator(pool: asyncpg.Pool[asyncpg.Record]) -> WorkCoordinator:
    return WorkCoordinator(pool, ServiceInstance(service_name="alice"))


@pytest.mark.parametrize("queue", ["outbx", "", "receptor/", "receptor/mail@2", "perspective/*@2", "receptor/a b", 5])
def test_a_queue_that_cannot_be_is_refused(queue: Any) -> None:
    with pytest.raises(
        InvalidSetting, match=f"^there is no queue {re.escape(repr(queue))}; give outbox, inbox, receptor/NAME or"
    ):
        WorkReport(limits={queue: 5})


@pytest.mark.parametrize("limit", [-1, 2**31, 1.5, "5", None])
def test_a_limit_that_is_no_number_of_messages_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidSetting, match=f"^the limit of outbox is {limit!r}; give a whole number from 0 to"):
        WorkReport(limits={"outbox": limit})


async def test_every_queue_can_be_asked_for(coordinator: WorkCoordinator) -> None:
    limits = dict.fromkeys([*EVERY_QUEUE, "perspective/shop.summary@2"], 2**31 - 1)
    assert (await coordinator.process_work_batch(WorkReport(limits=limits), as_of=T0)).empty


async def test_a_bad_outcome_keeps_no_other_from_being_taken(
    coordinator: WorkCoordinator, db: asyncpg.Connection
) -> None:
    new = [OutboxMessage(message_type="Happened", payload="{}") for _ in range(10)]
    await coordinator.process_work_batch(WorkReport(new_outbox_messages=new, limits={}))
    claimed = (await coordinator.process_work_batch(WorkReport(limits={"outbox": 10}))).claimed_outbox_messages
    *good, bad = (message.message_id for message in claimed)
    outcomes = [*map(MessageCompletion, good), MessageCompletion(bad, MessageProcessingStatus.FAILED)]
    batch = await coordinator.process_work_batch(WorkReport(outcomes=outcomes[::-1], limits={}))
    assert [(one.message_id, one.verb) for one in batch.rejected] == [(bad, "complete")]
    assert "status 8 ends nothing" in batch.rejected[0].reason
    assert await db.fetchval("SELECT array_agg(message_id) FROM wh_outbox") == [bad]
    await coordinator.process_work_batch(WorkReport(outcomes=[MessageCompletion(bad)], limits={}))
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 0


async def test_a_bad_new_message_keeps_no_other_from_being_stored(
    coordinator: WorkCoordinator, db: asyncpg.Connection
) -> None:
    sent = [OutboxMessage(message_type="Happened", payload="NaN" if n == 4 else "{}") for n in range(10)]
    received = [
        InboxMessage(message_id=new_message_id(), message_type="" if n == 7 else "Happened", payload="{}")
        for n in range(10)
    ]
    report = WorkReport(new_outbox_messages=sent, new_inbox_messages=received, limits={})
    batch = await coordinator.process_work_batch(report)
    refused = [(one.message_id, one.outcome) for one in batch.refused]
    assert refused == [(sent[4].message_id, "refused"), (received[7].message_id, "refused")]
    reasons = [one.reason or "" for one in batch.refused]
    assert reasons[0].startswith(f"message 5 ({sent[4].message_id}) cannot be stored: payload is not JSON")
    assert reasons[1].startswith(f"message 8 ({received[7].message_id}) cannot be stored: message_type ''")
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 9
    assert await db.fetchval("SELECT count(*) FROM wh_inbox") == 9


async def test_a_larger_payload_is_taken_where_the_installation_allows_it(
    pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await db.execute("UPDATE wh_settings SET max_payload_bytes = 1000000")
    large = OutboxMessage(message_type="Happened", payload='"' + "x" * 300_000 + '"')
    for settings, refused in ((None, 1), (CoordinatorSettings(max_payload_bytes=1_000_000), 0)):
        coordinator = WorkCoordinator(pool, ServiceInstance(service_name="alice"), settings)
        batch = await coordinator.process_work_batch(WorkReport(new_outbox_messages=[large], limits={}))
        assert len(batch.refused) == refused
