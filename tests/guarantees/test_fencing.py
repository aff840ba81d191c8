"""A holder that lost its lease can change nothing, and is told so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from tests.conftest import Connect
from tests.guarantees.ownership import PARTITIONS
from tests.guarantees.storing import outgoing, refused, stores
from tests.scenario import (
    T0,
    Given,
    JsonWorker,
    Message,
    RowsWorker,
    S,
    Told,
    Worker,
    completion,
    failure,
    minutes,
    release,
    renewal,
    seconds,
)
from tests.waiting import until_somebody_waits
from whippletree.message.ids import new_instance_id
from whippletree.settings import Dsn

REPORTS: list[Callable[[Message], Told]] = [completion, failure, release, renewal]
LOST = "lease lost"


async def _everything(db: asyncpg.Connection) -> list[list[Any]]:
    """All that a report could change."""
    tables = ("wh_messages", "wh_active_streams", "wh_dead_letters", "wh_finished_messages")
    return [[tuple(row) for row in await db.fetch(f"SELECT * FROM {table} ORDER BY 1, 2, 3")] for table in tables]


@pytest.mark.parametrize("report", REPORTS)
async def test_a_report_with_an_outdated_lease_changes_nothing(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection, report: Callable[[Message], Told]
) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    assert await bob.claims(as_of=T0 + minutes(6)) == [first]
    before = await _everything(db)
    await alice.reports(report(first), as_of=T0 + minutes(6))
    assert alice.rejected == [(first.message_id, LOST)]
    assert await _everything(db) == before
    await bob.reports(completion(first), as_of=T0 + minutes(6))
    assert bob.rejected == []


@pytest.mark.parametrize("report", REPORTS)
async def test_a_report_on_a_lease_that_the_same_instance_has_lost_and_won_again_changes_nothing(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection, report: Callable[[Message], Told]
) -> None:
    """The token tells two leases of one instance apart: its earlier self must not speak for its later one."""
    earlier, later = join("alice"), join("alice")
    later.instance = earlier.instance
    if isinstance(later, RowsWorker):
        later.coordinator.instance = earlier.instance
    (first,) = await given.outbox()
    await earlier.claims()
    assert await later.claims(as_of=T0 + minutes(6)) == [first]
    before = await _everything(db)
    await earlier.reports(report(first), as_of=T0 + minutes(6))
    assert earlier.rejected == [(first.message_id, LOST)]
    assert await _everything(db) == before


@pytest.mark.parametrize("report", REPORTS)
async def test_nobody_reports_on_what_another_holds(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection, report: Callable[[Message], Told]
) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    await bob.polls()
    before = await _everything(db)
    await bob.reports(report(first))
    assert bob.rejected == [(first.message_id, LOST)]
    assert await _everything(db) == before


@pytest.mark.parametrize("report", REPORTS)
async def test_nobody_reports_twice(
    given: Given, alice: Worker, db: asyncpg.Connection, report: Callable[[Message], Told]
) -> None:
    first, _ = await given.outbox(count=2)
    await alice.claims(limit=1)
    await alice.reports(completion(first))
    before = await _everything(db)
    await alice.reports(report(first))
    assert [message_id for message_id, _ in alice.rejected] == [first.message_id]
    assert await _everything(db) == before


async def test_a_late_success_counts_while_nobody_has_taken_the_stream(
    given: Given, alice: Worker, bob: Worker
) -> None:
    first, second = await given.outbox(count=2)
    await alice.claims()
    await bob.polls(as_of=T0 + minutes(6))
    await alice.reports(completion(first), completion(second), as_of=T0 + minutes(6))
    assert alice.rejected == []
    assert await bob.claims(as_of=T0 + minutes(20)) == []


async def test_a_late_renewal_counts_while_nobody_has_taken_the_stream(
    given: Given, alice: Worker, bob: Worker
) -> None:
    await given.outbox()
    (first,) = await alice.claims()
    await alice.reports(renewal(first), as_of=T0 + minutes(6))
    assert alice.rejected == []
    assert await bob.claims(as_of=T0 + minutes(10)) == []


async def test_whoever_keeps_leases_alive_keeps_only_its_own(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    """What an instance does from a thread while its event loop is blocked: it may have been blocked for too long."""
    await given.outbox()
    await alice.claims()
    token = "SELECT lease_token FROM wh_active_streams"
    former = await db.fetchval(token)
    assert len(await bob.claims(as_of=T0 + minutes(6))) == 1
    before, keep = await _everything(db), "SELECT keep_alive($1, '{outbox}', ARRAY[$2::uuid], ARRAY[$3::bigint], 60)"
    for instance, said in ((alice, former), (alice, await db.fetchval(token)), (bob, former)):
        assert await db.fetchval(keep, instance.instance_id, S, said) == []
        assert await _everything(db) == before
    assert await db.fetchval(keep, bob.instance_id, S, await db.fetchval(token)) == [1]
    assert await _everything(db) != before


async def test_a_lost_report_does_not_sink_the_others_of_its_batch(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    (lost,) = await given.outbox()
    await alice.claims()
    assert await bob.claims(as_of=T0 + minutes(6)) == [lost]
    await db.execute("UPDATE wh_partitions SET instance_id = $1", alice.instance_id)
    (kept,) = await given.outbox(stream="another")
    assert await alice.claims(as_of=T0 + minutes(6)) == [kept]
    await alice.reports(completion(lost), completion(kept), as_of=T0 + minutes(6))
    assert alice.rejected == [(lost.message_id, LOST)]
    assert await db.fetchval("SELECT array_agg(message_id) FROM wh_outbox") == [lost.message_id]


async def test_an_evicted_instance_learns_it_on_its_next_call_and_nothing_changes(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    assert await bob.claims(as_of=T0 + minutes(11)) == [first]
    before = await _everything(db)
    with refused("WH001"):
        await alice.reports(completion(first), as_of=T0 + minutes(11))
    with refused("WH001"):
        await alice.polls(as_of=T0 + minutes(11))
    with refused("WH001"):
        await stores(alice, outgoing(), as_of=T0 + minutes(11))
    assert await _everything(db) == before
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 1


async def test_an_instance_that_is_evicted_in_the_middle_of_its_claim_gets_nothing(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection, connect: Connect
) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    await alice.polls(as_of=T0 + minutes(6))
    holdup = await connect()
    async with holdup.transaction():
        await holdup.execute("SELECT pg_advisory_xact_lock(lock_key($1))", f"claim:outbox:{alice.instance_id}")
        claim = asyncio.create_task(alice.claims(as_of=T0 + minutes(6)))
        await until_somebody_waits(db)
        await bob.polls(as_of=T0 + minutes(17))
    with refused("WH001"):
        await claim
    assert await bob.claims(as_of=T0 + minutes(17)) == [first]


async def test_an_evicted_instance_joins_again_under_a_new_id(given: Given, join: Callable[..., Worker]) -> None:
    alice, bob, reborn = join("alice"), join("bob"), join("alice")
    await alice.polls()
    await bob.polls(as_of=T0 + minutes(11))
    with refused("WH001"):
        await alice.polls(as_of=T0 + minutes(11))
    await reborn.polls(as_of=T0 + minutes(11))
    await bob.polls(as_of=T0 + minutes(11))
    await reborn.polls(as_of=T0 + minutes(11))
    assert len(reborn.partitions) == PARTITIONS / 2


async def test_two_processes_with_one_instance_id_are_refused(alice: Worker, join: Callable[..., Worker]) -> None:
    await alice.polls()
    twin = join("another service")
    object.__setattr__(twin.instance, "instance_id", alice.instance_id)
    with refused("WH002"):
        await twin.polls()
    await alice.polls()


async def test_another_partition_count_is_refused(join: Callable[..., Worker], db: asyncpg.Connection) -> None:
    wrong = join("wrong", partition_count=10)
    with refused("WH003"):
        await wrong.polls()
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 0
    await db.execute("SELECT change_partition_count(10)")
    await wrong.polls()
    assert list(wrong.partitions) == list(range(10))


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_work_is_processed_in_read_committed_only(
    dsn: Dsn, face: str, given: Given, db: asyncpg.Connection, isolation: str
) -> None:
    await given.outbox()
    settings = {"default_transaction_isolation": isolation}
    async with asyncpg.create_pool(dsn.reveal(), min_size=0, max_size=1, server_settings=settings) as pool:
        worker = RowsWorker(pool, "alice") if face == "rows" else JsonWorker(pool, "alice")
        with refused("WH004"):
            await worker.claims()
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 0


async def test_an_unknown_instance_may_store_but_holds_nothing(
    given: Given, alice: Worker, db: asyncpg.Connection
) -> None:
    (first,) = await given.outbox()
    await alice.claims()
    lost = await db.fetchval(
        "SELECT complete_messages($1, '{outbox}', ARRAY[stream_id], ARRAY[lease_token], '{1}', false, $2)"
        " FROM wh_active_streams",
        new_instance_id(),
        T0 + seconds(1),
    )
    assert lost == [1]
    await alice.reports(completion(first))
    assert alice.rejected == []
