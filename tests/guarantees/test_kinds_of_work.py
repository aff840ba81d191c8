"""Nothing waits for an instance that would never work on it."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg

from tests.scenario import T0, Given, RowsWorker, Worker, completion
from whippletree.claim.batch import WorkBatchFlags, WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.message.envelope import OutboxMessage, Queue

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


async def test_a_producer_owns_no_partitions(alice: Worker, pool: Pool, db: asyncpg.Connection) -> None:
    await alice.polls()
    producer = WorkCoordinator(pool, ServiceInstance(service_name="producer"))
    message = OutboxMessage(message_type="Happened", payload="{}")
    await producer.process_work_batch(
        WorkReport(new_outbox_messages=[message], flags=WorkBatchFlags.SKIP_CLAIM), as_of=T0
    )
    await alice.polls()
    assert await db.fetchval("SELECT array_agg(DISTINCT instance_id) FROM wh_partitions") == [alice.instance_id]
    assert [m.message_id for m in await alice.claims()] == [message.message_id]


async def test_others_claim_where_the_owner_does_not_work_the_queue(pool: Pool, given: Given) -> None:
    """Half of the partitions belong to an instance that handles the inbox only."""
    alice, receiver = RowsWorker(pool, "alice"), WorkCoordinator(pool, ServiceInstance(service_name="receiver"))
    inbox_only = WorkReport(limits={Queue.INBOX: 100})
    for _ in range(2):
        await alice.polls()
        await receiver.process_work_batch(inbox_only, as_of=T0)
    assert len(alice.partitions) == len((await receiver.process_work_batch(inbox_only, as_of=T0)).assigned_partitions)

    outgoing = [(await given.outbox(stream=f"stream {number}"))[0] for number in range(20)]
    incoming = [(await given.inbox(stream=f"stream {number}"))[0] for number in range(20)]
    assert set(await alice.claims()) == set(outgoing)
    await alice.reports(*map(completion, outgoing))

    # Both work the inbox, so each takes only what is in its own partitions.
    mine = set(await alice.claims(queue=Queue.INBOX))
    theirs = {m.message_id for m in (await receiver.process_work_batch(inbox_only, as_of=T0)).claimed_inbox_messages}
    assert mine
    assert theirs
    assert {m.message_id for m in mine} | theirs == {m.message_id for m in incoming}
    assert {m.message_id for m in mine}.isdisjoint(theirs)


async def test_what_an_instance_works_is_remembered_and_only_grows(pool: Pool, db: asyncpg.Connection) -> None:
    coordinator = WorkCoordinator(pool, ServiceInstance(service_name="service"))

    async def known() -> set[str]:
        return set(await db.fetchval("SELECT queues FROM wh_service_instances"))

    await coordinator.process_work_batch(WorkReport(limits={Queue.OUTBOX: 0}), as_of=T0)
    assert await known() == {"outbox"}
    await coordinator.process_work_batch(WorkReport(limits={Queue.INBOX: 0}), as_of=T0)
    await coordinator.process_work_batch(WorkReport(flags=WorkBatchFlags.SKIP_CLAIM), as_of=T0)
    assert await known() == {"outbox", "inbox"}
