"""A stream's messages are handled in order, whoever handles them."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import asyncpg
import pytest

from tests.guarantees.storing import outgoing, received, stores
from tests.scenario import T0, Given, Message, S, Worker, completion, failure, minutes, release, seconds
from whippletree.message.envelope import InboxMessage, OutboxMessage, Queue
from whippletree.message.ids import new_message_id


async def test_nobody_else_gets_the_rest_of_a_stream_that_is_held(given: Given, alice: Worker, bob: Worker) -> None:
    await alice.polls()
    await bob.polls()
    first, _, _ = await given.outbox(count=3)
    assert await alice.claims(limit=1) + await bob.claims(limit=1) == [first]
    assert await alice.claims() == await bob.claims() == []


async def test_later_messages_cannot_be_claimed_while_another_instance_holds_an_earlier_one(
    given: Given, alice: Worker, bob: Worker
) -> None:
    first, second = await given.outbox(count=2)
    assert await alice.claims() == [first, second]
    third, fourth = await given.outbox(count=2)
    assert await bob.claims() == []
    assert await alice.claims() == []

    await alice.reports(completion(first), completion(second))
    await alice.polls()
    assert await bob.claims() + await alice.claims() == [third, fourth]


async def test_an_earlier_message_without_a_lease_goes_with_the_later_ones(given: Given, alice: Worker) -> None:
    (first,) = await given.outbox()
    (second,) = await given.outbox(as_of=T0 + seconds(1))
    assert await alice.claims(as_of=T0 + seconds(1)) == [first, second]


async def test_an_earlier_message_whose_lease_expired_goes_before_the_later_ones(
    given: Given, alice: Worker, bob: Worker
) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    (second,) = await given.outbox()
    # The first was tried before, so it goes alone.
    assert await bob.claims(as_of=T0 + minutes(6)) == [first]
    assert await alice.claims(as_of=T0 + minutes(6)) == []
    await bob.reports(completion(first), as_of=T0 + minutes(6))
    await alice.polls(as_of=T0 + minutes(6))
    assert await bob.claims(as_of=T0 + minutes(6)) + await alice.claims(as_of=T0 + minutes(6)) == [second]


async def test_a_completed_message_lets_the_later_ones_go(given: Given, alice: Worker) -> None:
    first, second = await given.outbox(count=2)
    assert await alice.claims(limit=1) == [first]
    await alice.reports(completion(first))
    assert await alice.claims() == [second]


async def test_a_finished_part_of_a_run_leaves_the_rest_with_its_holder(
    given: Given, alice: Worker, bob: Worker
) -> None:
    first, second, third = await given.outbox(count=3)
    await alice.claims()
    await alice.reports(completion(first))
    assert await bob.claims() == []
    await alice.reports(completion(second), completion(third))
    assert alice.rejected == []
    assert await bob.claims() + await alice.claims() == []


async def test_a_released_message_goes_out_again_before_the_later_ones(given: Given, alice: Worker) -> None:
    first, second, third = await given.outbox(count=3)
    await alice.claims()
    await alice.reports(completion(first), release(second))
    assert alice.rejected == []
    # It was given back untried, so it does not go alone.
    assert await alice.claims() == [second, third]


async def test_outbox_and_inbox_of_one_stream_do_not_hold_each_other_back(given: Given, alice: Worker) -> None:
    (sent,) = await given.outbox()
    (got,) = await given.inbox()
    assert await alice.claims(queue=Queue.OUTBOX) == [sent]
    assert await alice.claims(queue=Queue.INBOX) == [got]


async def test_versions_are_dense_in_the_order_of_commit(given: Given, db: asyncpg.Connection) -> None:
    async with db.transaction():
        await given.outbox(count=2)
    transaction = db.transaction()
    await transaction.start()
    await given.outbox(count=5)
    await transaction.rollback()
    await given.outbox(count=2)
    versions = await db.fetch("SELECT version FROM wh_outbox ORDER BY version")
    assert [row["version"] for row in versions] == [1, 2, 3, 4]


async def test_the_streams_of_one_claim_stand_one_after_the_other_each_in_order(given: Given, alice: Worker) -> None:
    other = UUID(int=S.int + 1)
    mine = [*await given.outbox(count=2), *await given.outbox(count=2)]
    others = await given.outbox(stream=other, count=3)
    claimed = await alice.claims()
    assert [m for m in claimed if m in mine] == mine
    assert [m for m in claimed if m in others] == list(others)
    assert claimed in ([*mine, *others], [*others, *mine])


async def test_a_failure_in_the_middle_of_a_run_keeps_what_was_finished_before_it(given: Given, alice: Worker) -> None:
    first, second, third = await given.outbox(count=3)
    await alice.claims()
    await alice.reports(completion(first), failure(second, retry_at=T0 + seconds(5)), release(third))
    assert alice.rejected == []
    assert await alice.claims(as_of=T0 + seconds(4)) == []
    assert await alice.claims(as_of=T0 + seconds(5)) == [second]


async def test_of_two_failures_of_one_run_the_first_counts(given: Given, alice: Worker, db: asyncpg.Connection) -> None:
    first, second, _ = await given.outbox(count=3)
    await alice.claims()
    await alice.reports(
        failure(first, error="one", retry_at=T0 + seconds(5)), failure(second, error="two", retry_at=T0 + seconds(1))
    )
    assert [message_id for message_id, _ in alice.rejected] == [second.message_id]
    assert await db.fetchval("SELECT error FROM wh_outbox WHERE version = 1") == "one"
    assert await alice.claims(as_of=T0 + seconds(4)) == []
    assert await alice.claims(as_of=T0 + seconds(5)) == [first]


@pytest.mark.parametrize("kind", [outgoing, received])
async def test_neither_ids_nor_times_say_anything_of_the_order(
    alice: Worker, kind: Callable[..., OutboxMessage | InboxMessage]
) -> None:
    """The clock of every producer is behind that of the one before it, and so is the server's own."""
    ids = sorted((new_message_id() for _ in range(6)), reverse=True)
    messages = [kind(message_id=message_id) for message_id in ids]
    for place, pair in enumerate((messages[:2], messages[2:4], messages[4:])):
        await stores(alice, *pair, as_of=T0 - seconds(place))
    queue = Queue.OUTBOX if kind is outgoing else Queue.INBOX
    expected = [Message(message_id) for message_id in ids]
    for place in range(0, 6, 3):
        assert await alice.claims(limit=3, queue=queue) == expected[place : place + 3]
        await alice.reports(*map(completion, expected[place : place + 3]))
