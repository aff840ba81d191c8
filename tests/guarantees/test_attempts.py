"""A bad message stops only its own stream, after as many attempts as it is given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import asyncpg

from tests.scenario import T0, Given, S, Worker, completion, failure, minutes, release, seconds


async def _attempts(db: asyncpg.Connection) -> list[int]:
    return [row["attempts"] for row in await db.fetch("SELECT attempts FROM wh_outbox ORDER BY version")]


async def test_an_attempt_is_counted_at_the_claim(given: Given, alice: Worker, db: asyncpg.Connection) -> None:
    await given.outbox(count=2)
    await alice.claims()
    assert await _attempts(db) == [1, 0]


async def test_a_release_takes_the_attempt_back(given: Given, alice: Worker, db: asyncpg.Connection) -> None:
    first, second = await given.outbox(count=2)
    await alice.claims()
    await alice.reports(release(first))
    assert await _attempts(db) == [0, 0]
    assert await alice.claims() == [first, second]


async def test_a_head_tried_before_goes_alone(given: Given, alice: Worker, bob: Worker) -> None:
    first, second, third = await given.outbox(count=3)
    assert await alice.claims() == [first, second, third]
    assert await bob.claims(as_of=T0 + minutes(6)) == [first]
    await bob.reports(completion(first), as_of=T0 + minutes(6))
    both = await bob.claims(as_of=T0 + minutes(6)) + await alice.claims(as_of=T0 + minutes(6))
    # The next has not been tried as a head, so the run is whole again.
    assert both == [second, third]


async def test_a_message_that_fails_too_often_is_parked(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    alice = join("alice", max_attempts=3)
    bad, _ = await given.outbox(count=2)
    (elsewhere,) = await given.outbox(stream="another")
    as_of = T0
    for attempt in (1, 2, 3):
        assert bad in await alice.claims(as_of=as_of)
        assert (await _attempts(db))[0] == attempt
        await alice.reports(failure(bad, error=f"boom {attempt}", retry_at=as_of + seconds(1)), as_of=as_of)
        as_of += seconds(1)
    row = await db.fetchrow("SELECT parked, attempts, error FROM wh_outbox WHERE message_id = $1", bad.message_id)
    assert row is not None
    assert tuple(row) == (True, 3, "boom 3")
    await alice.reports(completion(elsewhere), as_of=as_of)
    assert alice.rejected == []
    assert await alice.claims(as_of=as_of + timedelta(days=400)) == []


async def test_a_message_that_ends_its_process_every_time_is_parked(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    """Nobody lives to report a failure: only leases run out."""
    bad, behind = await given.outbox(count=2)
    as_of = T0
    for number in range(3):
        victim = join(f"victim {number}", max_attempts=3)
        claimed = await victim.claims(as_of=as_of)
        assert claimed[0] == bad
        as_of += minutes(11)
    alice = join("alice", max_attempts=3)
    assert await alice.claims(as_of=as_of) == []
    row = await db.fetchrow("SELECT parked, attempts, error FROM wh_outbox WHERE message_id = $1", bad.message_id)
    assert row is not None
    assert (row["parked"], row["attempts"]) == (True, 3)
    assert "lease ran out 3 times" in row["error"]
    assert await db.fetchval("SELECT redrive_stream('outbox', $1, $2)", S, as_of)
    assert await alice.claims(as_of=as_of) == [bad, behind]


async def test_a_redriven_stream_resumes_in_order_with_all_its_attempts(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    alice = join("alice", max_attempts=1)
    first, second = await given.outbox(count=2)
    await alice.claims()
    await alice.reports(failure(first))
    assert await alice.claims(as_of=T0 + minutes(60)) == []
    assert await db.fetchval("SELECT redrive_stream('outbox', $1, $2)", S, T0)
    assert await _attempts(db) == [0, 0]
    assert await alice.claims() == [first, second]


async def test_redriving_what_is_not_there_or_is_being_handled_changes_nothing(
    given: Given, alice: Worker, db: asyncpg.Connection
) -> None:
    assert not await db.fetchval("SELECT redrive_stream('outbox', $1, $2)", S, T0)
    await given.outbox()
    await alice.claims()
    assert not await db.fetchval("SELECT redrive_stream('outbox', $1, $2)", S, T0)
    assert await _attempts(db) == [1]


async def test_a_skipped_message_is_kept_among_the_dead_letters(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    alice = join("alice", max_attempts=1)
    first, second = await given.outbox(count=2)
    await alice.claims()
    await alice.reports(failure(first, error="boom"))
    assert not await db.fetchval("SELECT skip_message('outbox', $1, 2, 'not the head', $2)", S, T0)
    assert await db.fetchval("SELECT skip_message('outbox', $1, 1, 'agreed with the customer', $2)", S, T0)
    letter = await db.fetchrow(
        "SELECT message_id, version, attempts, error, reason, payload::text FROM wh_dead_letters"
    )
    assert letter is not None
    assert tuple(letter) == (first.message_id, 1, 1, "boom", "agreed with the customer", "{}")
    assert await alice.claims() == [second]


async def test_skipping_the_last_message_leaves_no_stream_behind(
    given: Given, alice: Worker, db: asyncpg.Connection
) -> None:
    await given.outbox()
    assert await db.fetchval("SELECT skip_message('outbox', $1, 1, 'gone', $2)", S, T0)
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 0
    await given.outbox()
    assert await db.fetchval("SELECT version FROM wh_outbox") == 2


async def test_a_message_without_a_stream_that_fails_too_often_goes_to_the_dead_letters(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    alice = join("alice", max_attempts=1)
    (alone,) = await given.outbox(stream=None)
    await alice.claims()
    await alice.reports(failure(alone, error="boom"))
    assert alice.rejected == []
    letter = await db.fetchrow("SELECT message_id, error, reason FROM wh_dead_letters")
    assert letter is not None
    assert tuple(letter) == (alone.message_id, "boom", "out of attempts")
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 0
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 0


async def test_a_message_without_a_stream_that_ends_its_process_goes_to_the_dead_letters(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    (alone,) = await given.outbox(stream=None)
    await join("victim", max_attempts=1).claims()
    assert await join("alice", max_attempts=1).claims(as_of=T0 + minutes(11)) == []
    assert await db.fetchval("SELECT message_id FROM wh_dead_letters") == alone.message_id


async def test_a_message_without_a_stream_blocks_nobody(given: Given, alice: Worker) -> None:
    one, two = await given.outbox(stream=None, count=2)
    assert len(await alice.claims()) == 2
    await alice.reports(failure(one, retry_at=T0 + minutes(5)))
    (three,) = await given.outbox(stream=None)
    assert await alice.claims() == [three]
    await alice.reports(completion(two), completion(three))
    assert alice.rejected == []
    assert await alice.claims(as_of=T0 + minutes(5)) == [one]


async def test_a_parked_stream_holds_back_only_itself(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    alice = join("alice", max_attempts=1)
    (bad,) = await given.outbox()
    await alice.claims()
    await alice.reports(failure(bad))
    (behind,) = await given.outbox()
    others = {(await given.outbox(stream=f"stream {number}"))[0] for number in range(10)}
    assert set(await alice.claims()) == others
    assert await db.fetchval("SELECT count(*) FROM wh_outbox WHERE message_id = $1", behind.message_id) == 1
