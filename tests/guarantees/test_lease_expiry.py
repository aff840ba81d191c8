"""A lease that runs out frees its stream to any instance."""

from __future__ import annotations

from collections.abc import Callable

import asyncpg

from tests.scenario import T0, Given, Message, Worker, completion, failure, minutes, release, renewal, seconds


async def test_messages_of_a_crashed_instance_are_reclaimed_when_their_lease_expires(
    given: Given, alice: Worker, bob: Worker
) -> None:
    first, second = await given.outbox(count=2)
    assert await alice.claims() == [first, second]
    await alice.polls(as_of=T0 + minutes(4))
    assert await bob.claims(as_of=T0 + minutes(5) - seconds(1)) == []
    # Which of the two ended the process is unknown, so they go one by one.
    assert await bob.claims(as_of=T0 + minutes(5)) == [first]
    await bob.reports(completion(first), as_of=T0 + minutes(5))
    assert await bob.claims(as_of=T0 + minutes(5)) + await alice.claims(as_of=T0 + minutes(5)) == [second]


async def test_an_expired_lease_is_anybodys_whoever_owns_the_partition(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    await bob.polls()
    await alice.polls(as_of=T0 + minutes(6))
    assert (
        await db.fetchval("SELECT p.instance_id FROM wh_partitions p JOIN wh_outbox s USING (partition_number)")
        == alice.instance_id
    )
    assert await bob.claims(as_of=T0 + minutes(6)) == [first]


async def test_what_a_lease_ran_out_on_goes_before_what_came_later(given: Given, alice: Worker) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    (later,) = await given.outbox(stream=None, as_of=T0 + minutes(1))
    for message in (first, later):
        assert await alice.claims(as_of=T0 + minutes(6), limit=1) == [message]


async def test_an_active_lease_is_nobody_elses(given: Given, alice: Worker, bob: Worker) -> None:
    await given.outbox()
    await alice.claims()
    for minute in (0, 1, 4):
        assert await bob.claims(as_of=T0 + minutes(minute)) == []


async def test_a_renewed_lease_lives_on(given: Given, alice: Worker, bob: Worker) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    for minute in (4, 8, 12):
        await alice.reports(renewal(first), as_of=T0 + minutes(minute))
        assert alice.rejected == []
        assert await bob.claims(as_of=T0 + minutes(minute + 4)) == []
    assert await bob.claims(as_of=T0 + minutes(17)) == [first]


async def test_renewing_one_message_renews_the_run_of_its_stream(given: Given, alice: Worker, bob: Worker) -> None:
    first, second = await given.outbox(count=2)
    await alice.claims()
    await alice.reports(renewal(second), as_of=T0 + minutes(4))
    assert await bob.claims(as_of=T0 + minutes(8)) == []
    await alice.reports(completion(first), completion(second), as_of=T0 + minutes(8))
    assert alice.rejected == []


async def test_the_lease_is_as_long_as_the_claimer_says(given: Given, join: Callable[..., Worker]) -> None:
    brief, other = join("brief", lease_seconds=1), join("other")
    (first,) = await given.outbox()
    await brief.claims()
    assert await other.claims(as_of=T0 + seconds(0.9)) == []
    assert await other.claims(as_of=T0 + seconds(1)) == [first]


async def test_completed_failed_and_released_messages_have_no_lease(
    given: Given, alice: Worker, db: asyncpg.Connection
) -> None:
    stored = {name: (await given.outbox(stream=name))[0] for name in ("completed", "failed", "released", "held")}
    assert set(await alice.claims()) == set(stored.values())
    await alice.reports(completion(stored["completed"]), failure(stored["failed"]), release(stored["released"]))
    rows = await db.fetch("SELECT message_id, instance_id, lease_expiry FROM wh_outbox")
    leases = {Message(row["message_id"]): (row["instance_id"], row["lease_expiry"]) for row in rows}
    assert leases == {
        stored["failed"]: (None, None),
        stored["released"]: (None, None),
        stored["held"]: (alice.instance_id, T0 + minutes(5)),
    }


async def test_an_orphaned_message_can_be_skipped_but_a_held_one_cannot(
    given: Given, alice: Worker, db: asyncpg.Connection
) -> None:
    await given.outbox(count=2)
    await alice.claims(limit=1)
    skip = "SELECT skip_message('outbox', stream_id, 1, 'stuck', $1) FROM wh_streams"
    assert not await db.fetchval(skip, T0 + minutes(4))
    assert await db.fetchval(skip, T0 + minutes(5))
    assert await db.fetchval("SELECT reason FROM wh_dead_letters") == "stuck"
