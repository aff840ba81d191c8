"""The operator's commands, run as an operator runs them, on an installation with something the matter."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import asyncpg
import pytest

from tests.cli.conftest import Command
from tests.conftest import Connect
from tests.scenario import T0, Given, Message, RowsWorker, completion, failure, release
from tests.waiting import until
from tests.work.following import Diary, append, make_effects, running
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.message.event import NewEvent
from whippletree.message.outcome import Outcome, PerspectiveCheckpointFailure, ReceptorProcessingFailure, Verdict
from whippletree.settings import Dsn
from whippletree.store.event_store import EventStore
from whippletree.store.receipt import Receipt
from whippletree.work.subscriber_row import SubscriptionState

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture
def alice(pool: Pool) -> RowsWorker:
    return RowsWorker(pool, "orders", max_attempts=1)


async def parks(alice: RowsWorker, given: Given, stream: str, error: str) -> tuple[Message, ...]:
    """A stream of two messages, parked at its first."""
    messages = await given.outbox(stream, 2)
    await alice.claims()
    await alice.reports(failure(messages[0], error=error))
    return messages


async def parks_events(alice: RowsWorker, pool: Pool, db: asyncpg.Connection) -> Receipt:
    """Two events, at whose first both a perspective and a receptor are parked."""
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    await db.execute("SELECT register_receptor('mail', '{OrderPlaced}')")
    receipt = await EventStore(pool).append("order-17", [NewEvent(event_type="OrderPlaced", payload="{}")] * 1)
    await EventStore(pool).append("order-17", [NewEvent(event_type="OrderPlaced", payload="{}")])
    limits = {"perspective/summary": 10, "receptor/mail": 10}
    await alice.coordinator.process_work_batch(WorkReport(limits=limits), as_of=T0)
    failures: list[Outcome] = [
        PerspectiveCheckpointFailure(receipt.stream_id, "summary", "no total", verdict=Verdict.PARK),
        ReceptorProcessingFailure(receipt.event_ids[0], "mail", "no address", verdict=Verdict.PARK),
    ]
    await alice.coordinator.process_work_batch(WorkReport(outcomes=failures, limits={}), as_of=T0)
    return receipt


async def test_status_warns_of_a_backlog_and_of_more_leases_than_can_be_worked(
    whippletree: Command, pool: Pool, db: asyncpg.Connection
) -> None:
    stored = "INSERT INTO wh_outbox (message_type, payload) SELECT 'Placed', '{}' FROM generate_series(1, $1)"
    await db.execute("SELECT change_partition_count(1)")
    await db.execute(stored, 3)
    orders = WorkCoordinator(pool, ServiceInstance(service_name="orders"))
    for _ in range(2):
        await orders.process_work_batch(WorkReport(limits={"outbox": 10}))
    await db.execute(stored, 10_000)
    status = await whippletree("status", "--check")
    assert status.returncode == 1
    assert "warning: 10,003 messages wait in the outbox: the backlog grows" in status.stdout
    assert "warning: 3 leases are held, more than 1 instance with 1 partition should" in status.stdout


async def test_status_shows_instances_queues_and_alerts(
    whippletree: Command, alice: RowsWorker, given: Given, db: asyncpg.Connection
) -> None:
    await parks(alice, given, "order-17", "boom")
    done = await whippletree("status", "--check")
    assert done.returncode == 1, done.stderr
    assert "test:1" in done.stdout
    assert "critical: 1 stream of outbox stopped: a message gave up" in done.stdout
    seen = json.loads((await whippletree("status", "--json")).stdout)
    assert seen["instances"][0]["service_name"] == "orders"
    assert {queue["queue"]: queue["waiting"] for queue in seen["queues"]} == {"outbox": 2, "inbox": 0}
    assert [alert["severity"] for alert in seen["alerts"]] == ["critical"]


async def test_status_of_a_healthy_installation_checks_out(whippletree: Command) -> None:
    done = await whippletree("status", "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert "all is well" in done.stdout


async def test_status_says_that_nobody_works(whippletree: Command, given: Given) -> None:
    await given.outbox("order-17")
    assert "nobody works outbox, and work waits there" in (await whippletree("status")).stdout


async def test_why_answers_in_sentences(whippletree: Command, alice: RowsWorker, given: Given) -> None:
    await parks(alice, given, "order-17", "boom")
    assert "its head, version 1, is parked after 1 attempt: boom" in (await whippletree("why", "order-17")).stdout
    told: list[str] = json.loads((await whippletree("why", "order-17", "--json")).stdout)
    assert told[0] == "stream order-17 has work in outbox"


async def test_a_parked_stream_is_redriven_in_order(whippletree: Command, alice: RowsWorker, given: Given) -> None:
    first, second = await parks(alice, given, "order-17", "boom")
    assert "order-17" in (await whippletree("parked")).stdout
    done = await whippletree("redrive", "order-17")
    assert (done.returncode, done.stdout) == (0, "redriven: 1 stream\n")
    assert await alice.claims() == [first, second]
    assert "no stream is parked" in (await whippletree("parked")).stdout


async def test_streams_are_redriven_by_their_error_after_a_question(
    whippletree: Command, alice: RowsWorker, given: Given, db: asyncpg.Connection
) -> None:
    await parks(alice, given, "order-1", "KeyError: 'total'")
    await parks(alice, given, "order-2", "mail server says no")
    assert (await whippletree("redrive", "--error", "KeyError", answer="n\n")).returncode == 1
    assert "redriven: 1 stream" in (await whippletree("redrive", "--error", "KeyError", "--yes")).stdout
    parked = json.loads((await whippletree("parked", "--json")).stdout)
    assert [row["stream_name"] for row in parked] == ["order-2"]
    assert "redriven: 1 stream" in (await whippletree("redrive", "--all", "--yes")).stdout


async def test_redrive_of_nothing_says_what_to_say(whippletree: Command) -> None:
    assert "say what to redrive" in (await whippletree("redrive")).stderr
    assert "has not stopped" in (await whippletree("redrive", "order-17")).stderr


async def test_a_skipped_message_is_recorded_and_the_rest_goes_on(
    whippletree: Command, alice: RowsWorker, given: Given
) -> None:
    _, second = await parks(alice, given, "order-17", "boom")
    skip = ("skip", "order-17", "--queue", "outbox", "--reason", "cancelled by phone")
    assert (await whippletree(*skip, answer="n\n")).returncode == 1
    done = await whippletree(*skip, "--yes")
    assert (done.returncode, done.stdout) == (0, "skipped: version 1 of order-17 in outbox\n")
    assert await alice.claims() == [second]
    (letter,) = json.loads((await whippletree("dead-letters", "--json")).stdout)
    assert (letter["version"], letter["reason"], letter["error"]) == (1, "cancelled by phone", "boom")
    assert "has no head that failed in outbox, or it is in hand" in (await whippletree(*skip, "--yes")).stderr


async def test_whoever_skips_twice_does_not_lose_the_next_message(
    whippletree: Command, alice: RowsWorker, given: Given
) -> None:
    _, second = await parks(alice, given, "order-17", "boom")
    skip = ("skip", "order-17", "--queue", "outbox", "--reason", "cancelled by phone", "--yes")
    assert (await whippletree(*skip)).returncode == 0
    again = await whippletree(*skip)
    assert (again.returncode, again.stdout) == (2, "")
    assert "--version names a head that has not been tried" in again.stderr
    assert "has no such head" in (await whippletree(*skip, "--version", "3")).stderr
    assert await alice.claims() == [second]
    await alice.reports(release(second))
    assert (await whippletree(*skip, "--version", "2")).stdout == "skipped: version 2 of order-17 in outbox\n"


@pytest.mark.parametrize("queue", ["perspective/summary", "receptor/mail"])
async def test_events_are_skipped_for_one_perspective_or_receptor_only(
    whippletree: Command, alice: RowsWorker, pool: Pool, db: asyncpg.Connection, queue: str
) -> None:
    await parks_events(alice, pool, db)
    done = await whippletree("skip", "order-17", "--queue", queue, "--reason", "bad data", "--yes")
    assert done.stdout == f"skipped: version 1 of order-17 in {queue}\n", done.stderr
    batch = await alice.coordinator.process_work_batch(
        WorkReport(limits={"perspective/summary": 10, "receptor/mail": 10}), as_of=T0
    )
    claimed: list[Any] = [*batch.claimed_perspective_work, *batch.claimed_receptor_work]
    assert [(work.queue, work.version) for work in claimed] == [(queue, 2)]
    assert await db.fetchval("SELECT array_agg(reason) FROM wh_dead_letters WHERE queue = $1", queue) == ["bad data"]
    if queue == "receptor/mail":
        assert await db.fetchval("SELECT status FROM wh_receptor_processing WHERE version = 1") == "Skipped"


async def test_what_is_in_hand_cannot_be_skipped_or_redriven(
    whippletree: Command, alice: RowsWorker, given: Given, pool: Pool, db: asyncpg.Connection
) -> None:
    """Neither a message nor an event; not even when it has failed before and is tried just now."""
    await given.outbox("order-17")
    await alice.claims()
    await parks_events(alice, pool, db)
    await db.execute("SELECT redrive_streams()")
    limits = {"perspective/summary": 10, "receptor/mail": 10}
    await alice.coordinator.process_work_batch(WorkReport(limits=limits))
    leases = "SELECT array_agg((queue, lease_token, head_version, ready_at) ORDER BY queue) FROM wh_active_streams"
    held = await db.fetchval(leases)
    for queue in ("outbox", "perspective/summary", "receptor/mail"):
        done = await whippletree("skip", "order-17", "--queue", queue, "--reason", "x", "--yes")
        assert done.returncode == 2, queue
        assert "`whippletree why order-17` says how it stands" in done.stderr
    assert "redriven: 0 streams" in (await whippletree("redrive", "--all", "--yes")).stdout
    assert (
        await db.fetchval(
            "SELECT bool_or(redrive_stream(queue, stream_id)) FROM wh_active_streams WHERE instance_id IS NOT NULL"
        )
        is False
    )
    assert await db.fetchval(leases) == held


async def test_a_stream_is_shown_with_its_events_and_messages(
    whippletree: Command, alice: RowsWorker, given: Given, pool: Pool, db: asyncpg.Connection
) -> None:
    await parks_events(alice, pool, db)
    await parks(alice, given, "order-17", "boom")
    shown = (await whippletree("streams", "show", "order-17")).stdout
    assert "its head, version 1, is parked after 1 attempt: boom" in shown
    assert "summary, mail behind" in shown
    contents = json.loads((await whippletree("streams", "show", "order-17", "--json")).stdout)["contents"]
    states = [(row["kind"], row["version"], row["state"]) for row in contents]
    assert ("outbox", 1, "parked") in states
    assert ("event", 2, "summary, mail behind") in states


async def test_a_draining_instance_finishes_and_the_others_take_over(
    whippletree: Command, alice: RowsWorker, pool: Pool, given: Given
) -> None:
    bob = RowsWorker(pool, "bob")
    (first,) = await given.outbox("order-17")
    assert await alice.claims() == [first]
    assert (await whippletree("instances", "drain", "nonesuch")).returncode == 2
    done = await whippletree("instances", "drain", str(alice.instance_id), "--no-wait")
    assert done.returncode == 0, done.stderr
    assert "draining" in (await whippletree("instances", "list")).stdout
    (second,) = await given.outbox("order-18")
    assert await alice.claims() == []
    await alice.reports(completion(first))
    assert await bob.claims() == [second]
    assert len(bob.partitions) == len(set(bob.partitions)) > 0
    await whippletree("instances", "drain", str(alice.instance_id), "--undo")
    seen = json.loads((await whippletree("instances", "list", "--json")).stdout)
    assert {row["service_name"]: row["draining"] for row in seen} == {"orders": False, "bob": False}


async def test_the_doctor_finds_a_long_transaction_and_says_how_to_end_it(
    whippletree: Command, connect: Connect, db: asyncpg.Connection
) -> None:
    sleeper = await connect()
    async with sleeper.transaction():
        await sleeper.execute("SELECT 1")
        told = await db.fetch("SELECT * FROM ailments('0') WHERE subject = 'long transactions'")
    # The transactions of other databases hold back this one's clearing away too.
    pid = f"pid {sleeper.get_server_pid()} has had a transaction open for"
    (found,) = [row for row in told if row["problem"].startswith(pid)]
    assert f"pg_terminate_backend({sleeper.get_server_pid()})" in found["remedy"]


async def test_the_doctor_names_lost_durability_as_a_danger(whippletree: Command, db: asyncpg.Connection) -> None:
    await db.execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$"
    )
    done = await whippletree("doctor", "--json")
    assert done.returncode == 1, done.stderr
    dangers = {finding["subject"] for finding in json.loads(done.stdout) if finding["severity"] == "danger"}
    assert any("synchronous_commit" in subject for subject in dangers), dangers
    assert "danger: " in (await whippletree("doctor")).stdout


async def test_subscribers_are_seen_and_mended(
    whippletree: Command, dsn: Dsn, pool: Pool, db: asyncpg.Connection
) -> None:
    await make_effects(db)
    await append(pool, "Good", "Bad", "Better")

    def spoil(name: str) -> None:
        if name == "Bad":
            raise ValueError("spoilt")

    diary = Diary(before=spoil)
    async with running(dsn, diary) as alice:
        await until(lambda: alice.state() is SubscriptionState.PARKED)
        (seen,) = json.loads((await whippletree("subscribers", "list", "--json")).stdout)
        assert (seen["state"], seen["failed_number"]) == ("parked", 2)
        status = await whippletree("status", "--check")
        assert status.returncode == 1
        assert "subscriber diary is parked at event 2" in status.stdout
        assert (
            "it is parked at event 2 after 3 attempts: ValueError: spoilt" in (await whippletree("why", "diary")).stdout
        )
        done = await whippletree("subscribers", "skip", "diary", "2", "--reason", "bad data", "--yes")
        assert done.stdout == "diary goes on after 2\n", done.stderr
        await until(lambda: diary.seen == ["Good", "Better"])
        assert (await whippletree("subscribers", "pause", "diary")).stdout == "diary is paused\n"
        assert (await whippletree("subscribers", "resume", "diary")).stdout == "diary goes on\n"
        diary.before = lambda name: None
        await whippletree("subscribers", "reset", "diary", "--after", "1", "--reason", "mended", "--yes")
        await until(lambda: diary.seen == ["Good", "Better", "Bad", "Better"])
    assert (await whippletree("subscribers", "pause", "nonesuch")).returncode == 2
    actions = await db.fetch("SELECT action FROM wh_subscriber_actions ORDER BY action_id")
    assert [row[0] for row in actions] == ["skip", "pause", "resume", "reset"]


async def test_events_are_tailed_in_their_order(whippletree: Command, pool: Pool) -> None:
    await append(pool, "First", "Second", stream="a")
    await append(pool, "Third", stream="b")
    done = await whippletree("events", "tail", "--last", "2", "--json", "--payload")
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(event["number"], event["event_type"], event["payload"]) for event in shown] == [
        (2, "Second", "{}"),
        (3, "Third", "{}"),
    ]
    assert "Third" in (await whippletree("events", "tail", "--type", "Third", "--after", "0")).stdout
