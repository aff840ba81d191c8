"""Instances join and leave; partitions follow, and nobody active is robbed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

import asyncpg

from tests.conftest import Connect
from tests.guarantees.ownership import PARTITIONS, busy, drain, owners, partition_of, require_balance
from tests.scenario import T0, Given, Message, Worker, completion, minutes, release, seconds
from tests.waiting import until_somebody_waits


async def test_an_instance_alone_owns_every_partition(alice: Worker) -> None:
    await alice.polls()
    assert list(alice.partitions) == list(range(PARTITIONS))


async def test_a_new_instance_does_not_rob_an_active_one_of_its_partitions(
    alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    await alice.polls()
    await bob.polls(as_of=T0 + minutes(9))
    await bob.polls(as_of=T0 + minutes(9))
    assert set((await owners(db)).values()) == {alice.instance_id}


async def test_the_owner_itself_hands_a_newcomer_its_share(alice: Worker, bob: Worker, db: asyncpg.Connection) -> None:
    await alice.polls()
    await bob.polls()
    await alice.polls()
    await require_balance(db, [alice, bob])
    await bob.polls()
    assert sorted([*alice.partitions, *bob.partitions]) == list(range(PARTITIONS))


async def test_an_owner_keeps_its_partitions_poll_after_poll(alice: Worker, db: asyncpg.Connection) -> None:
    await alice.polls()
    before = await owners(db)
    for minute in (1, 9, 30):
        await alice.polls(as_of=T0 + minutes(minute))
    assert await owners(db) == before


async def test_an_unowned_partition_goes_to_whoever_comes(alice: Worker, bob: Worker, db: asyncpg.Connection) -> None:
    await alice.polls()
    await bob.polls()
    await alice.polls()
    await db.execute("SELECT leave($1, $2)", alice.instance_id, T0)
    assert None in (await owners(db)).values()
    await bob.polls()
    await require_balance(db, [bob])


async def test_partitions_are_reassigned_only_from_stale_instances(
    alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    await alice.polls()
    await bob.polls(as_of=T0 + minutes(10))
    assert set((await owners(db)).values()) == {alice.instance_id}
    await bob.polls(as_of=T0 + minutes(10) + seconds(1))
    assert set((await owners(db)).values()) == {bob.instance_id}


async def test_every_active_instance_counts_in_the_distribution(
    join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    workers = [join(f"worker {number}") for number in range(5)]
    for _ in range(2):
        for worker in workers:
            await worker.polls()
    await require_balance(db, workers)


async def test_a_lease_keeps_its_partition_with_the_holder(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    """And bob, whose share it is, gets nothing of it until the holder is done."""
    streams = [f"stream {number}" for number in range(8)]
    first = {stream: (await given.outbox(stream=stream))[0] for stream in streams}
    assert set(await alice.claims()) == set(first.values())
    for _ in range(2):
        await bob.polls()
        await alice.polls()
    held = {await partition_of(db, stream) for stream in streams}
    now = await owners(db)
    assert {now[partition] for partition in held} == {alice.instance_id}
    assert {now[partition] for partition in now.keys() - held if partition % 2} != {now[p] for p in now if not p % 2}
    second = [(await given.outbox(stream=stream))[0] for stream in streams]
    assert await bob.claims() == []

    await alice.reports(*map(completion, first.values()))
    await require_balance(db, [alice, bob])
    assert set(await bob.claims() + await alice.claims()) == set(second)


async def test_a_partition_that_changed_hands_twice_while_its_owner_to_be_looked_away_is_not_forgotten(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    """A membership that comes back to what it was must not look settled to one who never got its share."""
    workers = sorted((join(name) for name in ("a", "b", "c")), key=lambda worker: worker.instance_id)
    holder, waiter, passer = workers
    await given.outbox(stream="any", count=2)
    for number in range(32):
        await given.outbox(stream=f"stream {number}")
    held = await holder.claims()
    for _ in range(2):
        await waiter.polls()
        await holder.polls()
    await passer.polls()
    await holder.reports(*map(release, held))
    await holder.polls()
    await db.execute("SELECT leave($1, $2)", passer.instance_id, T0)
    for _ in range(2):
        await holder.polls()
        await waiter.polls()
    await require_balance(db, [holder, waiter])


async def test_a_share_that_came_to_one_who_looked_away_goes_back_when_the_membership_does(
    join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    workers = sorted((join(name) for name in ("a", "b", "c")), key=lambda worker: worker.instance_id)
    dozer, giver, passer = workers
    for _ in range(3):
        await dozer.polls()
        await giver.polls()
    await passer.polls()
    await giver.polls()
    assert (await owners(db))[3] == dozer.instance_id
    await db.execute("SELECT leave($1, $2)", passer.instance_id, T0)
    for _ in range(2):
        await giver.polls()
        await dozer.polls()
    await require_balance(db, [dozer, giver])


async def test_a_cap_leaves_partitions_unowned_and_their_messages_wait(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    capped = join("capped", max_partitions_per_instance=20)
    await capped.polls()
    assert len(capped.partitions) == 20
    stored = {stream: (await given.outbox(stream=stream))[0] for stream in map(str, range(40))}
    mine = {stored[stream] for stream in stored if await partition_of(db, stream) in capped.partitions}
    assert mine < set(stored.values())
    assert set(await drain([capped], T0)) == mine

    free = [join(f"free {number}") for number in range(2)]
    for _ in range(2):
        for worker in (capped, *free):
            await worker.polls()
    assert len(capped.partitions) <= 20
    assert set(await drain([capped, *free], T0)) <= set(stored.values()) - mine


async def test_enough_capped_instances_own_everything(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    workers = [join(f"worker {number}", max_partitions_per_instance=20) for number in range(4)]
    # The poll that joins, and two more.
    for _ in range(3):
        for worker in workers:
            await worker.polls()
    await require_balance(db, workers)


async def test_two_polls_settle_the_partitions_also_when_all_poll_at_once(
    join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    workers: list[Worker] = []
    for step, size in enumerate((1, 2, 5, 3, 5)):
        as_of = T0 + seconds(10 * step)
        workers = await _resize(workers, size, join, db, as_of)
        for worker in workers:
            # Who comes is known to the others after this.
            await db.execute(
                "SELECT record_heartbeat($1, $2, 'test', 1, '{}', false, $3)",
                worker.instance_id,
                worker.instance.service_name,
                as_of,
            )
        for _ in range(2):
            await asyncio.gather(*(worker.polls(as_of=as_of) for worker in workers))
        await require_balance(db, workers)


async def test_another_partition_count_takes_every_pending_message_along(
    given: Given, alice: Worker, bob: Worker, db: asyncpg.Connection
) -> None:
    stored = [message for number in range(20) for message in await given.outbox(stream=f"stream {number}", count=2)]
    held = await alice.claims(limit=5)
    await db.execute("SELECT change_partition_count(7)")
    for _ in range(2):
        await bob.polls()
        await alice.polls()
    await alice.reports(*map(completion, held))
    assert alice.rejected == []
    await alice.polls()
    await require_balance(db, [alice, bob])
    assert set(await drain([alice, bob], T0)) == set(stored) - set(held)


async def test_another_partition_count_waits_for_who_settles_partitions_and_keeps_nobody_from_polling(
    alice: Worker, db: asyncpg.Connection, connect: Connect
) -> None:
    settling, changing = await connect(), await connect()
    await alice.polls()
    async with settling.transaction():
        await settling.execute("SELECT pg_advisory_xact_lock(lock_key('membership'))")
        change = asyncio.ensure_future(changing.execute("SELECT change_partition_count(7)"))
        await until_somebody_waits(db)
        async with asyncio.timeout(60):
            # So much later that it writes its heartbeat.
            await alice.polls(as_of=T0 + seconds(2))
    await change
    await alice.polls(as_of=T0 + seconds(2))
    await require_balance(db, [alice])


async def test_partitions_balance_under_load_while_instances_come_and_go(
    given: Given, join: Callable[..., Worker], db: asyncpg.Connection
) -> None:
    workers: list[Worker] = []
    waiting: set[Message] = set()
    held: list[tuple[Worker, list[Message]]] = []
    for step, size in enumerate((1, 2, 5, 3, 1)):
        as_of = T0 + seconds(10 * step)
        for number in range(40):
            waiting |= set(await given.outbox(stream=f"{step} {number}", count=2, as_of=as_of))
        held = [(worker, await worker.claims(as_of=as_of, limit=20)) for worker in workers]
        workers = await _resize(workers, size, join, db, as_of)
        for _ in range(2):
            await _polls_robbing_nobody(workers, db, as_of)
        assert set((await owners(db)).values()) == {worker.instance_id for worker in workers}

        for worker, messages in held:
            if worker in workers and messages:
                await worker.reports(*map(release, messages), as_of=as_of)
        for _ in range(2):
            await _polls_robbing_nobody(workers, db, as_of)
        await require_balance(db, workers)
        drained = await drain(workers, as_of)
        assert len(drained) == len(set(drained))
        assert set(drained) == waiting
        waiting.clear()


async def _resize(
    workers: list[Worker], size: int, join: Callable[..., Worker], db: asyncpg.Connection, as_of: datetime
) -> list[Worker]:
    for leaver in workers[size:]:
        await db.execute("SELECT leave($1, $2)", leaver.instance_id, as_of)
    return workers[:size] + [join(f"worker {number}") for number in range(len(workers), size)]


async def _polls_robbing_nobody(workers: Sequence[Worker], db: asyncpg.Connection, as_of: datetime) -> None:
    for worker in workers:
        before = await owners(db)
        holders = await busy(db, as_of)
        await worker.polls(as_of=as_of)
        after = await owners(db)
        for partition, holder in holders.items():
            if before[partition] == holder:
                assert after[partition] == holder
