"""`whippletree verify` finds damage of every kind, none where there is none, and changes nothing."""

from __future__ import annotations

import json
from typing import TypeAlias

import asyncpg
import pytest

from tests.cli.conftest import Command
from tests.scenario import T0, Given, RowsWorker, S, completion
from tests.waiting import until
from tests.work.following import Diary, append, make_effects, running
from whippletree.claim.batch import WorkReport
from whippletree.cli.verify import CHECKS
from whippletree.message.event import NewEvent
from whippletree.message.ids import StreamId
from whippletree.message.outcome import (
    Outcome,
    PerspectiveCheckpointCompletion,
    ReceptorProcessingCompletion,
    ReceptorProcessingFailure,
    Verdict,
)
from whippletree.settings import Dsn
from whippletree.store.event_store import EventStore
from whippletree.work.subscriber_row import SubscriptionState

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture
async def installation(dsn: Dsn, pool: Pool, db: asyncpg.Connection, given: Given) -> None:
    """Messages and events in every state, and a subscriber that has skipped one and is parked at another."""
    alice = RowsWorker(pool, "orders", max_attempts=1)
    await given.inbox(S, 3)
    await given.outbox(None)
    finished = await given.outbox("order-1", 2)
    await alice.claims()
    await alice.reports(*map(completion, finished), debug=True)
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    await db.execute("SELECT register_receptor('mail', '{OrderPlaced}')")
    events = [NewEvent(event_type="OrderPlaced", payload="{}") for _ in range(3)]
    receipt = await EventStore(pool).append("order-17", events)
    limits = {"perspective/summary": 10, "receptor/mail": 10}
    await alice.coordinator.process_work_batch(WorkReport(limits=limits), as_of=T0)
    ended: list[Outcome] = [
        PerspectiveCheckpointCompletion(StreamId(receipt.stream_id), "summary", 2),
        ReceptorProcessingCompletion(receipt.event_ids[0], "mail"),
        ReceptorProcessingFailure(receipt.event_ids[1], "mail", "no address", verdict=Verdict.PARK),
    ]
    await alice.coordinator.process_work_batch(WorkReport(outcomes=ended, limits={}), as_of=T0)
    await make_effects(db)
    await append(pool, "Good", "Bad", "Good", "Worse", stream="diary")

    def spoil(name: str) -> None:
        if name in ("Bad", "Worse"):
            raise ValueError("spoilt")

    async with running(dsn, Diary(before=spoil)) as follower:
        await until(lambda: follower.state() is SubscriptionState.PARKED)
        await db.execute("SELECT skip_subscriber('diary', failed_number, 'bad data') FROM wh_subscribers")
        await until(lambda: follower.state() is SubscriptionState.PARKED and len(follower.told) > 3)
        await until(lambda: db.fetchval("SELECT state = 'parked' FROM wh_subscribers"))


async def findings(db: asyncpg.Connection) -> set[str]:
    return {row[0] for check in CHECKS for row in await db.fetch(f"SELECT promise FROM {check}()")}


@pytest.mark.usefixtures("installation")
async def test_nothing_is_found_where_nothing_is_wrong_and_nothing_is_written(
    whippletree: Command, db: asyncpg.Connection
) -> None:
    # Whoever wrote here would be refused.
    await db.execute(
        """DO $$ BEGIN
             EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database());
           END $$"""
    )
    done = await whippletree("verify")
    assert (done.returncode, done.stdout) == (0, "every promise is kept\n"), done.stderr


@pytest.mark.usefixtures("installation")
async def test_what_is_found_is_told_and_ends_with_1(whippletree: Command, db: asyncpg.Connection) -> None:
    await db.execute("DELETE FROM wh_messages WHERE queue = 'inbox' AND version = 2")
    done = await whippletree("verify", "--json")
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(done.stdout)
    told = {"promise": "versions are dense", "subject": f"inbox {S}", "problem": "versions 1 to 3 are 2 messages"}
    assert found == told
    assert "versions are dense" in (await whippletree("verify")).stdout


@pytest.mark.parametrize(
    ("damage", "promise"),
    [
        ("DELETE FROM wh_messages WHERE version = 2", "versions are dense"),
        ("DELETE FROM wh_messages WHERE version = 1", "nothing is lost"),
        ("DELETE FROM wh_active_streams WHERE queue = 'inbox'", "work is claimable"),
        ("UPDATE wh_streams SET inbox_version = 7", "versions are counted"),
        ("UPDATE wh_streams SET inbox_version = 2 WHERE inbox_version = 3", "versions are counted"),
        (
            "UPDATE wh_active_streams SET head_version = 9 WHERE queue = 'receptor/mail'",
            "a head is in its stream",
        ),
        ("UPDATE wh_active_streams SET stream_hash = stream_hash + 1", "a stream has one partition"),
        (
            """UPDATE wh_active_streams SET instance_id = stream_id, lease_token = 1, leased_through = head_version + 1,
                 lease_expiry = 'infinity', ready_at = 'infinity'""",
            "a leased stream is not parked",
        ),
        ("UPDATE wh_active_streams SET lease_token = 1", "a lease is whole"),
        ("UPDATE wh_active_streams SET attempts = -1", "a lease is whole"),
        (
            """UPDATE wh_active_streams SET instance_id = stream_id, lease_token = 1, leased_through = head_version,
                 lease_expiry = '-infinity' WHERE ready_at < 'infinity'""",
            "a lease is whole",
        ),
        ("DELETE FROM wh_partitions WHERE partition_number = 3", "every partition exists"),
        (
            "UPDATE wh_partitions SET instance_id = gen_random_uuid() WHERE partition_number = 3",
            "every owner is an instance",
        ),
        (
            "UPDATE wh_finished_messages SET processed_at = processed_at - version * interval '1 second'",
            "order is kept",
        ),
        ("INSERT INTO wh_finished_messages SELECT * FROM wh_finished_messages", "nothing is handled twice"),
        ("DELETE FROM wh_event_store WHERE version = 1", "versions are dense"),
        ("UPDATE wh_streams SET event_version = 9 WHERE event_version > 0", "versions are counted"),
        ("DELETE FROM wh_streams WHERE event_version > 0", "versions are counted"),
        ("DELETE FROM wh_active_streams WHERE queue = 'receptor/mail'", "work is claimable"),
        ("UPDATE wh_receptor_log SET processed_at = '-infinity' WHERE version = 3", "order is kept"),
        ("DELETE FROM wh_active_streams WHERE queue = 'perspective/summary'", "work is claimable"),
        ("UPDATE wh_checkpoints SET version = 99", "a checkpoint is an event"),
        ("UPDATE wh_checkpoints SET last_event_id = gen_random_uuid()", "a checkpoint is an event"),
        (
            "UPDATE wh_active_streams SET head_version = 1 WHERE queue = 'perspective/summary'",
            "nothing is applied twice",
        ),
        ("DELETE FROM wh_event_sequence WHERE number = 2", "the feed has no gap"),
        ("DELETE FROM wh_event_sequence WHERE number = 2", "nothing is left out of the feed"),
        ("UPDATE wh_event_sequence SET version = 1 WHERE number = 2", "an event has one number"),
        (
            "UPDATE wh_event_sequence SET version = 3 - version WHERE number IN (1, 2)",
            "the feed keeps the order of streams",
        ),
        ("UPDATE wh_event_sequence SET version = 99 WHERE number = 7", "a number is an event"),
        ("UPDATE wh_subscribers SET checkpoint = 99", "a checkpoint is in the feed"),
        ("UPDATE wh_subscribers SET checkpoint = failed_number", "what failed is ahead"),
        ("UPDATE wh_subscribers SET failed_number = 99", "what failed is ahead"),
        ("UPDATE wh_subscribers SET error = NULL", "what is parked says why"),
        ("UPDATE wh_subscriber_actions SET event_id = gen_random_uuid()", "what was skipped is an event"),
        ("UPDATE wh_subscribers SET checkpoint = 2", "what was skipped stays behind"),
    ],
)
@pytest.mark.usefixtures("installation")
async def test_damage_is_found(db: asyncpg.Connection, damage: str, promise: str) -> None:
    assert await findings(db) == set()
    await db.execute(damage)
    assert promise in await findings(db)


async def test_events_that_nobody_has_numbered_yet_are_no_damage(pool: Pool, db: asyncpg.Connection) -> None:
    await append(pool, "First", "Second")
    await db.execute("SELECT number_events()")
    await append(pool, "Third")
    assert await findings(db) == set()


@pytest.mark.usefixtures("installation")
async def test_a_reset_takes_back_a_skip_and_never_goes_beyond_the_feed(
    whippletree: Command, db: asyncpg.Connection
) -> None:
    done = await whippletree("subscribers", "reset", "diary", "--after", "8", "--reason", "too far", "--yes")
    assert (done.returncode, done.stderr) == (2, "error: the feed ends at 7; a subscriber cannot be put after 8\n")
    done = await whippletree("subscribers", "reset", "diary", "--after", "0", "--reason", "again", "--yes")
    assert done.returncode == 0, done.stderr
    assert await findings(db) == set()
