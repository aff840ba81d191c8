"""Why something does not move: every common cause is made to happen, and the sentence is read."""

from __future__ import annotations

import re
from typing import TypeAlias
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import Connect
from tests.scenario import T0, Given, Message, RowsWorker, S, completion, failure, minutes, seconds
from tests.sql.asking import Ask
from whippletree.message.envelope import InboxMessage, Queue
from whippletree.message.ids import new_message_id
from whippletree.store.inbox import store_inbox

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture
def alice(pool: Pool) -> RowsWorker:
    return RowsWorker(pool, "orders", lease_seconds=300, max_attempts=3)


@pytest.fixture
def ask(db: asyncpg.Connection) -> Ask:
    return Ask(db)


async def test_an_earlier_message_of_its_stream_is_leased_to_another_instance(
    given: Given, alice: RowsWorker, ask: Ask
) -> None:
    await given.outbox("order-17")
    await alice.claims()
    (second,) = await given.outbox("order-17")
    told = await ask(second.message_id, later=9)
    assert (
        f"message {second.message_id} (Happened) is version 2, second in line, of stream order-17 in the outbox" in told
    )
    assert "version 1 is leased to orders on test:1, which last beat 9 s ago; the lease ends in 5 min" in told


async def test_an_earlier_message_of_its_stream_waits_for_its_retry(given: Given, alice: RowsWorker, ask: Ask) -> None:
    first, _, third = await given.outbox("order-17", 3)
    await alice.claims()
    await alice.reports(failure(first, error="KeyError: 'total'", retry_at=T0 + seconds(41)))
    told = await ask(third.message_id)
    assert "third in line" in told
    assert "its head, version 1, failed 1 time and is retried in 41 s: KeyError: 'total'" in told


async def test_its_head_is_parked(given: Given, alice: RowsWorker, ask: Ask) -> None:
    (first,) = await given.outbox("order-17")
    for turn in range(3):
        await alice.claims(as_of=T0 + minutes(turn))
        await alice.reports(failure(first, error="boom", retry_at=T0 + minutes(turn)), as_of=T0 + minutes(turn))
    told = await ask("order-17", later=600)
    assert "stream order-17 has work in outbox" in told
    assert "its head, version 1, is parked after 3 attempts: boom" in told
    assert "redrive" in told


async def test_nobody_works_the_queue(given: Given, ask: Ask) -> None:
    (message,) = await given.outbox("order-17")
    assert re.search(r"partition \d+ has no owner: no live instance works outbox", await ask(message.message_id))
    assert "no live instance works outbox" in await ask("outbox")


async def test_all_instances_have_stopped_beating(given: Given, alice: RowsWorker, ask: Ask) -> None:
    await alice.polls()
    (message,) = await given.outbox("order-17")
    told = await ask(message.message_id, later=3600)
    assert "version 1 has been ready for 60 min" in told
    assert "belongs to orders on test:1, which last beat 60 min ago and is gone: no live instance works outbox" in told


async def test_its_partition_is_beyond_the_cap(given: Given, pool: Pool, ask: Ask) -> None:
    capped = RowsWorker(pool, "orders", max_partitions_per_instance=1)
    for number in range(20):
        await given.outbox(f"order-{number}")
    await capped.polls()
    sentences = [await ask(f"order-{number}") for number in range(20)]
    assert any("is there a cap on partitions per instance?" in told for told in sentences)


async def test_its_lease_has_ended_and_nobody_has_taken_it(given: Given, alice: RowsWorker, ask: Ask) -> None:
    (message,) = await given.outbox("order-17")
    await alice.claims()
    told = await ask(message.message_id, later=310)
    assert "its lease has ended, and any instance may take it" in told
    assert "attempt 1 was left to orders on test:1, which last beat 5 min ago" in told


async def test_it_is_scheduled_for_later(given: Given, db: asyncpg.Connection, alice: RowsWorker, ask: Ask) -> None:
    await db.execute(
        "INSERT INTO wh_outbox (stream_key, message_type, payload, scheduled_for) VALUES ($1, 'A', '{}', $2)",
        "order-17",
        T0 + minutes(10),
    )
    await alice.claims()
    assert "its head, version 1, is due in 10 min" in await ask("order-17")


async def test_it_has_become_the_head_and_is_not_due(
    given: Given, db: asyncpg.Connection, alice: RowsWorker, ask: Ask
) -> None:
    """No claim has looked at it yet; none would hand it out."""
    (first,) = await given.outbox("order-17")
    await alice.claims()
    await db.execute(
        "INSERT INTO wh_outbox (stream_key, message_type, payload, scheduled_for) VALUES ('order-17', 'A', '{}', $1)",
        T0 + minutes(10),
    )
    await alice.reports(completion(first))
    assert "its head, version 2, is due in 10 min" in await ask("order-17")
    assert await alice.claims() == []
    assert "its head, version 2, is due in 10 min" in await ask("order-17")


async def test_nothing_of_its_stream_was_committed(
    given: Given, db: asyncpg.Connection, alice: RowsWorker, ask: Ask
) -> None:
    await given.outbox(S)
    await db.execute("DELETE FROM wh_messages")
    assert "nothing of it can be seen: whoever stores it has not committed" in await ask(S)
    assert await alice.claims() == []
    assert "nothing of it can be seen" not in await ask(S)


async def test_an_open_transaction_holds_the_workers_row(
    given: Given, alice: RowsWorker, connect: Connect, ask: Ask
) -> None:
    (message,) = await given.outbox("order-17")
    await alice.polls()
    holder = await connect()
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("SELECT FROM wh_active_streams FOR UPDATE")
    await holder.execute("UPDATE wh_active_streams SET error = error")
    told = await ask(message.message_id)
    assert f"it is held by an open transaction of pid {holder.get_server_pid()}, idle for" in told
    await transaction.rollback()


async def test_it_is_not_committed(connect: Connect, given: Given, ask: Ask) -> None:
    holder = await connect()
    transaction = holder.transaction()
    await transaction.start()
    (message,) = await given.outbox("order-17", on=holder)
    told = await ask(message.message_id)
    assert "or its transaction is not committed" in told
    assert f"pid {holder.get_server_pid()} has stored in a transaction that has been open for" in told
    await transaction.commit()


async def test_storers_of_its_stream_wait_for_an_open_transaction(connect: Connect, given: Given, ask: Ask) -> None:
    await given.outbox("order-17")
    holder = await connect()
    transaction = holder.transaction()
    await transaction.start()
    await given.outbox("order-17", on=holder)
    waits = f"those who store into it wait for an open transaction of pid {holder.get_server_pid()}, idle for"
    assert waits in await ask("order-17")
    await transaction.commit()


async def test_it_was_given_up(db: asyncpg.Connection, given: Given, ask: Ask) -> None:
    (message,) = await given.outbox(S)
    await db.execute("SELECT skip_message('outbox', $1, 1, 'was a test', $2)", S, T0)
    assert "was given up in outbox 5 s ago: was a test" in await ask(message.message_id, later=5)


async def test_it_was_received_and_is_finished(db: asyncpg.Connection, alice: RowsWorker, ask: Ask) -> None:
    message = InboxMessage(message_id=new_message_id(), message_type="Happened", payload="{}")
    await store_inbox([message], on=db)
    await alice.claims(queue=Queue.INBOX)
    await alice.reports(completion(Message(message.message_id)))
    assert f"message {message.message_id} was received" in await ask(message.message_id)


async def test_an_unknown_name_is_said_to_be_unknown(ask: Ask) -> None:
    told = await ask("nonesuch")
    assert "there is no stream, perspective, receptor of events or subscriber of the name nonesuch" in told
    assert "receptors of commands work the inbox" in told
    unknown = UUID("5eed0000-0000-4000-8000-0000000000ff")
    assert f"nothing of the id {unknown} waits here" in await ask(unknown)


async def test_a_message_without_a_stream_has_no_order(given: Given, ask: Ask) -> None:
    (message,) = await given.outbox(None)
    assert f"message {message.message_id} (Happened) waits in the outbox, without a stream: in no order" in await ask(
        message.message_id
    )


async def test_the_order_is_that_of_versions_whatever_the_times_say(
    db: asyncpg.Connection, given: Given, ask: Ask
) -> None:
    await given.outbox("order-17")
    (later,) = await given.outbox("order-17")
    await db.execute("UPDATE wh_messages SET created_at = created_at - interval '1 day' WHERE version = 2")
    assert "is version 2, second in line" in await ask(later.message_id)


async def test_every_instance_that_works_its_queue_is_draining(
    given: Given, db: asyncpg.Connection, alice: RowsWorker, ask: Ask
) -> None:
    await alice.polls()
    (message,) = await given.outbox("order-17")
    await db.execute("SELECT drain_instance($1)", alice.instance_id)
    assert "every instance that works outbox is draining" in await ask(message.message_id)
    assert "which last beat 0 ms ago and is draining" in await ask("outbox")


async def test_it_is_kept_for_a_later_time(db: asyncpg.Connection, ask: Ask) -> None:
    message_id = new_message_id()
    await db.execute(
        """SELECT schedule_messages(jsonb_build_array(jsonb_build_object('message_id', $1::text, 'queue', 'inbox',
             'due_at', $2::timestamptz, 'stream_key', 'order-17', 'message_type', 'Ship', 'payload', '{}')), $3)""",
        str(message_id),
        T0 + minutes(60),
        T0,
    )
    told = f"message {message_id} (Ship) of stream order-17 is kept for a later time: it goes to the inbox in 60 min"
    assert await ask(message_id) == told
    assert await ask("order-17") == told
    overdue = f"message {message_id} (Ship) of stream order-17 is kept for a later time: it has been due for 5 s, and"
    start = "goes to the inbox as soon as an instance runs; start one with `whippletree run`"
    assert await ask(message_id, later=3605) == f"{overdue} {start}"


async def test_a_claim_hands_out_exactly_what_is_said_to_be_ready_for_the_instance(
    given: Given, pool: Pool, db: asyncpg.Connection, connect: Connect, alice: RowsWorker
) -> None:
    """The sentences and the claim agree, stream by stream, about streams in every state and about every instance."""
    bob, carol = (RowsWorker(pool, name, lease_seconds=300, max_attempts=3) for name in ("bob", "carol"))
    for number in range(60):
        await given.outbox(f"order-{number}")
    for worker in (alice, bob, carol, alice, bob, carol):
        await worker.polls()
    taken = await alice.claims(limit=5)
    await alice.reports(failure(taken[0], retry_at=T0 + seconds(30)), failure(taken[1], retry_at=T0), as_of=T0)
    await db.execute("SELECT drain_instance($1)", carol.instance_id)
    for worker in (alice, bob, alice, bob):
        await worker.polls()
    holder = await connect()
    held = holder.transaction()
    await held.start()
    await holder.execute("SELECT FROM wh_active_streams WHERE stream_id = stream_id_of('order-59') FOR UPDATE")
    for as_of in (T0 + seconds(1), T0 + seconds(31), T0 + minutes(6)):
        for worker in (bob, carol, alice):
            said = await db.fetch(
                """SELECT m.message_id FROM wh_messages m JOIN wh_active_streams s USING (queue, stream_id)
                   CROSS JOIN LATERAL (SELECT array_agg(w) AS told FROM why_stream('outbox', s.stream_id, $1) w) w
                   WHERE EXISTS (SELECT FROM unnest(told) t WHERE t LIKE '%has been ready for%')
                     AND NOT EXISTS (SELECT FROM unnest(told) t WHERE t LIKE 'it is held by%')
                     AND EXISTS (SELECT FROM unnest(told) t WHERE t LIKE '%it is for ' || $2 || ' on%')""",
                as_of,
                worker.instance.service_name,
            )
            claimed = await worker.claims(as_of=as_of)
            assert {message.message_id for message in claimed} == {row[0] for row in said}
    await held.rollback()
