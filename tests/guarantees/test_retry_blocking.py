"""A message that failed holds back its stream, and nothing else, until it is done, parked or skipped."""

from __future__ import annotations

import asyncpg
import pytest

from tests.scenario import T0, Given, JsonWorker, S, Worker, completion, failure, minutes, release, seconds
from whippletree.errors import InvalidSetting
from whippletree.message.ids import MessageId, new_message_id
from whippletree.message.outcome import MessageFailure


async def test_a_message_waiting_for_its_retry_holds_back_its_stream(given: Given, alice: Worker) -> None:
    first, second, third = await given.outbox(stream=S, count=3)
    assert await alice.claims(as_of=T0) == [first, second, third]
    await alice.reports(failure(first, retry_at=T0 + minutes(1)), release(second), release(third), as_of=T0)
    assert alice.rejected == []
    assert await alice.claims(as_of=T0 + seconds(59)) == []


async def test_when_the_retry_is_due_the_stream_goes_on_in_order(given: Given, alice: Worker) -> None:
    first, second = await given.outbox(count=2)
    await alice.claims()
    await alice.reports(failure(first, retry_at=T0 + minutes(1)))
    # The head was tried before, so it goes alone: the guilty message is to be found.
    assert await alice.claims(as_of=T0 + seconds(60)) == [first]
    await alice.reports(completion(first), as_of=T0 + seconds(61))
    assert await alice.claims(as_of=T0 + seconds(62)) == [second]


async def test_a_failed_message_whose_time_has_passed_is_the_first_to_go(given: Given, alice: Worker) -> None:
    first, _ = await given.outbox(count=2)
    await alice.claims()
    await alice.reports(failure(first, retry_at=T0 + minutes(1)))
    assert await alice.claims(as_of=T0 + minutes(30)) == [first]


async def test_a_failure_that_names_no_time_gets_one(given: Given, alice: Worker, db: asyncpg.Connection) -> None:
    first, _ = await given.outbox(count=2)
    await alice.claims()
    await alice.reports(failure(first))
    waits = await db.fetchval("SELECT scheduled_for - $1 FROM wh_outbox WHERE version = 1", T0)
    assert seconds(0.5) <= waits <= seconds(1)
    assert await alice.claims() == []
    assert await alice.claims(as_of=T0 + seconds(1)) == [first]


async def test_a_failed_message_without_a_time_is_parked_and_holds_its_stream_until_it_is_skipped(
    given: Given, alice: Worker, db: asyncpg.Connection
) -> None:
    first, second = await given.outbox(count=2)
    await db.execute("UPDATE wh_active_streams SET attempts = 9")
    await alice.claims()
    await alice.reports(failure(first))
    row = await db.fetchrow("SELECT scheduled_for, parked, status FROM wh_outbox WHERE version = 1")
    assert row is not None
    assert tuple(row) == (None, True, 9)
    assert await alice.claims(as_of=T0 + minutes(60 * 24 * 365)) == []

    assert await db.fetchval("SELECT skip_message('outbox', $1, 1, 'not needed', $2)", S, T0)
    assert await alice.claims() == [second]


async def test_a_message_being_processed_holds_back_its_stream(given: Given, alice: Worker, bob: Worker) -> None:
    await given.outbox()
    await alice.claims()
    await given.outbox()
    await bob.polls()
    assert await bob.claims() + await alice.claims() == []


async def test_a_failure_releases_the_rest_of_its_run_in_the_same_call(
    given: Given, alice: Worker, db: asyncpg.Connection
) -> None:
    first, _, _ = await given.outbox(count=3)
    await alice.claims()
    await alice.reports(failure(first, retry_at=T0 + minutes(1)))
    rows = await db.fetch("SELECT instance_id, lease_expiry, status FROM wh_outbox ORDER BY version")
    assert [tuple(row) for row in rows] == [(None, None, 9), (None, None, 1), (None, None, 1)]


async def test_the_retry_of_one_stream_does_not_hold_back_another(given: Given, alice: Worker) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    await alice.reports(failure(first, retry_at=T0 + minutes(5)))
    others = await given.outbox(stream="another", count=2)
    assert await alice.claims() == list(others)


async def test_the_retry_moves_with_the_stream_to_another_instance(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    first, _ = await given.outbox(count=2)
    await alice.claims()
    await alice.reports(failure(first, retry_at=T0 + minutes(1)))
    await db.execute("SELECT leave($1, $2)", alice.instance_id, T0)
    assert await bob.claims(as_of=T0 + seconds(59)) == []
    assert await bob.claims(as_of=T0 + seconds(60)) == [first]


async def test_an_errors_text_may_hold_anything(given: Given, alice: Worker, db: asyncpg.Connection) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    nul = "" if isinstance(alice, JsonWorker) else "\x00"
    await alice.reports(failure(first, error=f'it\'s "quoted" {nul} ünïcode 🐴', retry_at=T0 + seconds(1)))
    assert alice.rejected == []
    assert "ünïcode 🐴" in await db.fetchval("SELECT error FROM wh_outbox")


async def test_a_time_that_is_none_is_refused_before_it_is_sent() -> None:
    for wait in (float("nan"), float("inf"), 1e300):
        with pytest.raises(InvalidSetting, match="no time to wait"):
            MessageFailure(new_message_id(), "boom", retry_seconds=wait)


async def test_a_retry_whose_time_has_passed_is_due_at_once(given: Given, alice: Worker) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    await alice.reports(failure(first, retry_at=T0))
    assert alice.rejected == []
    assert await alice.claims() == [first]


async def test_a_success_forgets_the_failure_before_it(given: Given, alice: Worker, db: asyncpg.Connection) -> None:
    first, second = await given.outbox(count=2)
    await alice.claims()
    await alice.reports(failure(first, retry_at=T0 + seconds(1)))
    await alice.claims(as_of=T0 + seconds(1))
    await alice.reports(completion(first), as_of=T0 + seconds(1))
    row = await db.fetchrow("SELECT message_id, attempts, error, status, scheduled_for FROM wh_outbox")
    assert row is not None
    assert tuple(row) == (second.message_id, 0, None, 1, None)


async def test_the_very_call_of_the_specification_is_understood(
    given: Given, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    """Failures [M1] with completions [M2 status 0, M3 status 0]: the releases say nothing new."""
    alice = JsonWorker(pool, "alice")
    ids: list[MessageId] = [message.message_id for message in await given.outbox(count=3)]
    await alice.claims()
    row = await db.fetchrow(
        "SELECT * FROM process_work_batch($1, 'alice', 'test', 1, p_outbox_failures => $2,"
        " p_outbox_completions => $3, p_as_of => $4)",
        alice.instance_id,
        f'[{{"message_id": "{ids[0]}", "status": 8, "error": "Network timeout", "retry_seconds": 60}}]',
        f'[{{"message_id": "{ids[1]}", "status": 0}}, {{"message_id": "{ids[2]}", "status": 0}}]',
        T0,
    )
    assert row is not None
    assert (row["rejected"], row["claimed_outbox_messages"]) == ("[]", "[]")
    assert await alice.claims(as_of=T0 + seconds(59)) == []
    assert [message.message_id for message in await alice.claims(as_of=T0 + seconds(60))] == ids[:1]
