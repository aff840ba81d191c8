"""Events make work for perspectives and receptors, which is claimed, retried and parked like any other."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import Connect
from tests.scenario import T0, S, minutes, seconds
from tests.waiting import until_somebody_waits
from whippletree.claim.batch import WorkBatch, WorkReport
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.message.event import NewEvent
from whippletree.message.ids import StreamId
from whippletree.message.outcome import (
    PerspectiveCheckpointCompletion,
    PerspectiveCheckpointFailure,
    ReceptorProcessingCompletion,
    ReceptorProcessingFailure,
    Verdict,
)
from whippletree.store.event_store import EventStore

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
STREAM = StreamId(S)
SUMMARY, STATS, MAIL = "perspective/summary", "perspective/stats", "receptor/mail"


@pytest.fixture
async def store(pool: Pool, db: asyncpg.Connection) -> EventStore:
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced, OrderShipped}', $1)", T0)
    await db.execute("SELECT register_perspective('stats', '{.*Order.*}', $1)", T0)
    await db.execute("SELECT register_receptor('mail', '{OrderShipped}')")
    return EventStore(pool)


@pytest.fixture
def alice(pool: Pool) -> WorkCoordinator:
    return WorkCoordinator(pool, ServiceInstance(service_name="alice"), CoordinatorSettings(max_attempts=3))


@pytest.fixture
def bob(pool: Pool) -> WorkCoordinator:
    return WorkCoordinator(pool, ServiceInstance(service_name="bob"))


def event(event_type: str) -> NewEvent:
    return NewEvent(event_type=event_type, payload="{}")


async def claims(worker: WorkCoordinator, *queues: str, later: float = 0) -> WorkBatch:
    # Appended events are ready at the time of the server, which is long before T0.
    report = WorkReport(limits=dict.fromkeys(queues, 10))
    return await worker.process_work_batch(report, as_of=T0 + seconds(later))


async def reports(worker: WorkCoordinator, *outcomes: Any, later: float = 0) -> WorkBatch:
    return await worker.process_work_batch(WorkReport(outcomes=outcomes, limits={}), as_of=T0 + seconds(later))


async def status(db: asyncpg.Connection, perspective: str = "summary") -> str | None:
    query = "SELECT status FROM wh_perspective_checkpoints WHERE perspective_name = $1 AND stream_id = $2"
    answer: str | None = await db.fetchval(query, perspective, S)
    return answer


def completed(version: int, perspective: str = "summary") -> PerspectiveCheckpointCompletion:
    return PerspectiveCheckpointCompletion(STREAM, perspective, version)


async def test_a_checkpoint_appears_with_the_event_in_its_transaction(
    store: EventStore, connect: Connect, db: asyncpg.Connection
) -> None:
    writer = await connect()
    transaction = writer.transaction()
    await transaction.start()
    await store.append(S, [event("OrderPlaced")], on=writer)
    assert await status(writer) == "Pending"
    assert await status(db) is None
    await transaction.commit()
    assert await status(db) == "Pending"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("first", ["the registration", "the append"])
async def test_an_append_and_a_registration_do_not_miss_each_other(
    store: EventStore, connect: Connect, db: asyncpg.Connection, first: str, count: int
) -> None:
    await store.append("elsewhere", [event("OrderPlaced")])
    registrar, writer = await connect(), await connect()

    async def register() -> None:
        await registrar.execute("SELECT register_perspective('late', '{OrderPlaced}', $1)", T0)

    async def append() -> None:
        await store.append(S, [event("OrderPlaced") for _ in range(count)], on=writer)

    steps = [(registrar, register), (writer, append)]
    (early, begin), (_, follow) = steps if first == "the registration" else reversed(steps)
    async with early.transaction():
        await begin()
        late = asyncio.create_task(follow())
        await until_somebody_waits(db)
    await late
    assert await status(db, "late") == "Pending"


@pytest.mark.parametrize(
    ("event_type", "wanted"),
    [
        ("OrderPlaced", {SUMMARY, STATS}),
        ("MyApp.Events.OrderPlaced", {SUMMARY, STATS}),
        ("OrderCancelled", {STATS}),
        ("ReorderPlaced", set()),
        ("OrderShipped", {SUMMARY, STATS, MAIL}),
        ("Invoice", set()),
    ],
)
async def test_a_pattern_means_a_type_in_any_namespace_and_no_other(
    store: EventStore, db: asyncpg.Connection, event_type: str, wanted: set[str]
) -> None:
    await store.append(S, [event(event_type)])
    assert {row["queue"] for row in await db.fetch("SELECT queue FROM wh_active_streams")} == wanted


@pytest.mark.parametrize("pattern", ["Order(Created", "List`1[[Order", "", "a b", "x" * 201, "Order*"])
async def test_a_pattern_that_means_nothing_is_refused_at_registration(db: asyncpg.Connection, pattern: str) -> None:
    with pytest.raises(asyncpg.PostgresError, match="is not a pattern of event types") as refusal:
        await db.execute("SELECT register_perspective('broken', $1)", [pattern])
    assert refusal.value.sqlstate == "WH004"


async def test_a_perspective_goes_from_its_checkpoint_on(store: EventStore, alice: WorkCoordinator) -> None:
    await store.append(S, [event("OrderPlaced"), event("Invoice"), event("OrderShipped")])
    (work,) = (await claims(alice, SUMMARY)).claimed_perspective_work
    assert (work.perspective_name, work.checkpoint, work.version, work.attempts) == ("summary", 0, 3, 1)
    assert work.last_processed_event_id is None
    assert (await reports(alice, completed(3))).rejected == []
    assert (await claims(alice, SUMMARY)).empty

    await store.append(S, [event("OrderShipped")])
    (work,) = (await claims(alice, SUMMARY)).claimed_perspective_work
    assert (work.checkpoint, work.version) == (3, 4)
    assert work.last_processed_event_id == (await store.read(S))[2].event_id


async def test_an_event_that_arrives_in_the_middle_of_a_run_is_not_forgotten(
    store: EventStore, alice: WorkCoordinator, db: asyncpg.Connection
) -> None:
    await store.append(S, [event("OrderPlaced")])
    await claims(alice, SUMMARY)
    await store.append(S, [event("OrderShipped")])
    await reports(alice, completed(1))
    assert await status(db) == "Pending"
    (work,) = (await claims(alice, SUMMARY)).claimed_perspective_work
    assert (work.checkpoint, work.version) == (1, 2)


async def test_perspectives_and_receptors_do_not_wait_for_each_other(store: EventStore, alice: WorkCoordinator) -> None:
    await store.append(S, [event("OrderShipped")])
    batch = await claims(alice, SUMMARY, STATS, MAIL)
    assert {work.perspective_name for work in batch.claimed_perspective_work} == {"summary", "stats"}
    (mail,) = batch.claimed_receptor_work
    parked = ReceptorProcessingFailure(mail.event_id, "mail", "boom", verdict=Verdict.PARK)
    await reports(alice, parked, PerspectiveCheckpointFailure(STREAM, "stats", "boom"), completed(1))
    await store.append(S, [event("OrderShipped")])
    batch = await claims(alice, SUMMARY, MAIL)
    assert [work.perspective_name for work in batch.claimed_perspective_work] == ["summary"]
    assert batch.claimed_receptor_work == []


async def test_a_failed_checkpoint_waits_then_is_tried_alone_then_parked(
    store: EventStore, alice: WorkCoordinator, db: asyncpg.Connection
) -> None:
    await store.append(S, [event("OrderPlaced"), event("OrderShipped")])
    for attempt, later in enumerate((0, 1000, 2000), 1):
        (work,) = (await claims(alice, SUMMARY, later=later)).claimed_perspective_work
        assert (work.attempts, work.version) == (attempt, 2 if attempt == 1 else 1)
        failed = PerspectiveCheckpointFailure(STREAM, "summary", f"boom {attempt}", retry_seconds=60)
        assert (await reports(alice, failed, later=later)).rejected == []
        assert await status(db) == "Failed"
        assert (await claims(alice, SUMMARY, later=later + 59)).empty
    assert (await claims(alice, SUMMARY, later=1_000_000)).empty
    row = await db.fetchrow("SELECT error, parked FROM wh_perspective_checkpoints WHERE status = 'Failed'")
    assert row is not None
    assert tuple(row) == ("boom 3", True)

    await db.execute("UPDATE wh_perspective_checkpoints SET status = 'Pending', error = NULL WHERE status = 'Failed'")
    assert (await claims(alice, SUMMARY, later=1_000_000)).claimed_perspective_work[0].attempts == 1
    await reports(alice, completed(1), completed(2), later=1_000_000)
    assert await status(db) == "Completed"


async def test_a_receptor_gets_only_its_events_and_its_log_says_who_handled_them(
    store: EventStore, alice: WorkCoordinator, db: asyncpg.Connection
) -> None:
    await store.append(S, [event("OrderPlaced"), event("OrderShipped"), event("Invoice"), event("OrderShipped")])
    work = (await claims(alice, MAIL)).claimed_receptor_work
    assert [piece.version for piece in work] == [2, 4]
    first, second = work
    failed = ReceptorProcessingFailure(second.event_id, "mail", "boom", retry_seconds=60)
    answer = await reports(alice, ReceptorProcessingCompletion(first.event_id, "mail"), failed)
    assert answer.rejected == []
    rows = await db.fetch("SELECT version, status, attempts, error FROM wh_receptor_processing ORDER BY version")
    assert [tuple(row) for row in rows] == [(2, "Completed", 1, None), (4, "Failed", 1, "boom")]
    handler = await db.fetchval("SELECT instance_id FROM wh_receptor_processing WHERE status = 'Completed'")
    assert handler == alice.instance.instance_id
    (again,) = (await claims(alice, MAIL, later=60)).claimed_receptor_work
    assert (again.version, again.attempts) == (4, 2)


async def test_a_stream_of_a_perspective_has_one_holder_and_a_late_one_is_refused(
    store: EventStore, alice: WorkCoordinator, bob: WorkCoordinator, db: asyncpg.Connection
) -> None:
    await store.append(S, [event("OrderPlaced")])
    assert len((await claims(alice, SUMMARY)).claimed_perspective_work) == 1
    assert (await claims(bob, SUMMARY)).empty
    # The lease has run out: it is anybody's.
    assert len((await claims(bob, SUMMARY, later=301)).claimed_perspective_work) == 1
    (rejection,) = (await reports(alice, completed(1), later=302)).rejected
    assert (rejection.message_id, rejection.reason) == (S, "lease lost")
    assert (await reports(bob, completed(1), later=303)).rejected == []
    assert await db.fetchval("SELECT version FROM wh_checkpoints") == 1


async def test_a_new_perspective_works_off_the_history(
    store: EventStore, alice: WorkCoordinator, db: asyncpg.Connection
) -> None:
    await store.append(S, [event("OrderPlaced")])
    await store.append("other", [event("Invoice")])
    assert await db.fetchval("SELECT register_perspective('late', '{OrderPlaced}', $1)", T0)
    assert not await db.fetchval("SELECT register_perspective('late', '{OrderPlaced}', $1)", T0)
    (work,) = (await claims(alice, "perspective/late")).claimed_perspective_work
    assert (work.stream_id, work.checkpoint, work.version) == (S, 0, 1)


async def test_the_same_in_json(store: EventStore, db: asyncpg.Connection) -> None:
    await store.append(S, [event("OrderShipped")])
    identity = "p_instance_id => $1, p_service_name => 'json', p_host_name => 'host', p_process_id => 1, p_as_of => $2"
    me = UUID("11111111-1111-4111-8111-111111111111")
    row = await db.fetchrow(f"SELECT * FROM process_work_batch({identity})", me, T0)
    assert row is not None
    perspectives = json.loads(row["claimed_perspective_work"])
    (receptor,) = json.loads(row["claimed_receptor_work"])
    assert {work["perspective_name"] for work in perspectives} == {"summary", "stats"}
    assert (receptor["receptor_name"], receptor["event_type"], receptor["version"]) == ("mail", "OrderShipped", 1)

    done = {"stream_id": str(S), "perspective_name": "summary", "last_event_id": receptor["event_id"]}
    row = await db.fetchrow(
        f"SELECT * FROM process_work_batch({identity}, p_perspective_completions => $3, p_perspective_failures => $4, "
        "p_receptor_completions => $5, p_receptor_failures => $6)",
        *(me, T0 + minutes(1)),
        json.dumps([done, {"perspective_name": "nobody", "stream_id": str(S), "last_event_id": receptor["event_id"]}]),
        json.dumps([{"stream_id": str(S), "perspective_name": "stats", "error": "boom"}]),
        json.dumps([{"event_id": receptor["event_id"], "receptor_name": "mail"}, {"receptor_name": "mail"}]),
        json.dumps([{"event_id": receptor["event_id"], "receptor_name": "mail", "status": "Completed"}]),
    )
    assert row is not None
    reasons = [rejection["reason"] for rejection in json.loads(row["rejected"])]
    assert sorted(reasons) == [
        "lease lost",
        "status Completed does not end it so: use Completed among completions, Failed among failures",
        "unknown event: its id is missing or is not a UUID",
    ]
    assert [await status(db), await status(db, "stats")] == ["Completed", "Failed"]
    assert await db.fetchval("SELECT status FROM wh_receptor_processing") == "Completed"


async def test_in_json_an_event_is_not_completed_by_a_later_one(store: EventStore, db: asyncpg.Connection) -> None:
    identity = "p_instance_id => $1, p_service_name => 'json', p_host_name => 'host', p_process_id => 1, p_as_of => $2"
    me = UUID("11111111-1111-4111-8111-111111111111")
    await store.append(S, [event("OrderShipped") for _ in range(4)])
    claimed = await db.fetchval(f"SELECT claimed_receptor_work FROM process_work_batch({identity})", me, T0)
    ok, bad, after, again = ({"event_id": work["event_id"], "receptor_name": "mail"} for work in json.loads(claimed))
    rejected = await db.fetchval(
        f"""SELECT rejected FROM process_work_batch({identity}, p_flags => '{{skip_claim}}',
          p_receptor_completions => $3, p_receptor_failures => $4)""",
        *(me, T0, json.dumps([again, ok, after]), json.dumps([bad])),
    )
    reason = "out of order: an earlier event of its stream is not finished"
    assert sorted((one["place"], one["reason"]) for one in json.loads(rejected)) == [(1, reason), (3, reason)]
    states = await db.fetch("SELECT status FROM wh_receptor_processing ORDER BY version")
    assert [row["status"] for row in states] == ["Completed", "Failed", "Pending", "Pending"]


async def test_calls_of_one_instance_do_not_wait_for_each_others_events(
    store: EventStore, connect: Connect, db: asyncpg.Connection
) -> None:
    """Else two that take the perspectives in opposite orders would wait in a circle."""
    call = """SELECT jsonb_array_length(claimed_perspective_work)
      FROM process_work_batch($1, 'json', 'host', 1, p_as_of => $2)"""
    me, one = UUID("11111111-1111-4111-8111-111111111111"), await connect()
    await db.execute(call, me, T0)
    await store.append(S, [event("OrderPlaced")])
    async with one.transaction(), asyncio.timeout(30):
        await one.execute("SELECT pg_advisory_xact_lock(lock_key($1))", f"claim:{SUMMARY}:{me}")
        assert await db.fetchval(call, me, T0) == 1
    assert await db.fetchval(call, me, T0) == 1


async def test_who_asks_what_it_holds_is_told_though_it_holds_nothing(
    store: EventStore, alice: WorkCoordinator, db: asyncpg.Connection
) -> None:
    for queue in (SUMMARY, MAIL):
        asked = "SELECT queue FROM resume_claims($1, $2, 0, $3)"
        assert await db.fetch(asked, alice.instance.instance_id, queue, T0) == []
    await store.append(S, [event("OrderShipped")])
    await claims(alice, SUMMARY, MAIL)
    for queue in (SUMMARY, MAIL):
        held = await db.fetch(asked, alice.instance.instance_id, queue, T0)
        assert [row["queue"] for row in held] == [queue]
