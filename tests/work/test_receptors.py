"""Receptors: effects, completion and returned messages commit once; order, retries and poison are kept per stream."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import asyncpg
import pytest

import whippletree as wt
from tests.conftest import Connect
from tests.waiting import until
from tests.work.shop import QUICK, Placed, Reserve, Reserved, drained, new_app, running, settings
from whippletree.service import Service
from whippletree.settings import Dsn


@pytest.fixture
def app(dsn: Dsn) -> wt.App:
    return new_app(dsn)


@pytest.fixture
async def effects(db: asyncpg.Connection) -> None:
    await db.execute("CREATE TABLE public.effects (id serial, stream text, number integer, UNIQUE (stream, number))")


async def written(db: asyncpg.Connection) -> dict[str, list[int]]:
    found = defaultdict(list)
    for row in await db.fetch("SELECT stream, number FROM public.effects ORDER BY id"):
        found[row["stream"]].append(row["number"])
    return dict(found)


INSERT = "INSERT INTO public.effects (stream, number) VALUES ($1, $2)"


async def test_effects_completion_and_returned_messages_commit_together(
    app: wt.App, db: asyncpg.Connection, effects: None
) -> None:
    @app.receptor
    async def reserve(command: Reserve, tx: wt.Transaction) -> Reserved:
        await tx.execute(INSERT, command.order, command.number)
        return Reserved(command.order, command.number)

    seen = []

    @app.receptor
    async def look(event: Reserved, context: wt.Context) -> None:
        seen.append((event, context.causation_id))

    async with running(app):
        receipts = await app.publish_all([Reserve(f"order-{n % 7}", n) for n in range(100)])
        await drained(db)

    streams = await written(db)
    assert streams == {f"order-{k}": [n for n in range(100) if n % 7 == k] for k in range(7)}
    stored = await db.fetch("SELECT payload ->> 'number' AS n, causation_id, correlation_id FROM wh_event_store")
    commands = {n: receipt.message_id for n, receipt in enumerate(receipts)}
    assert {int(row["n"]): row["causation_id"] for row in stored} == commands
    assert all(row["causation_id"] == row["correlation_id"] for row in stored)
    assert len(seen) == 100
    assert {cause for _, cause in seen} == set(commands.values())


async def test_a_message_that_fails_in_a_group_takes_no_other_with_it(
    app: wt.App, db: asyncpg.Connection, effects: None
) -> None:
    @app.receptor(retry=wt.Retry(attempts=1))
    async def reserve(command: Reserve, tx: wt.Transaction) -> None:
        await tx.execute(INSERT, command.order, command.number)
        if command.number == 13:
            raise ValueError("unlucky")

    await _publish_before(app, [Reserve(f"order-{n}", n) for n in range(30)])
    async with running(app):
        await drained(db)

    assert sorted(number for numbers in (await written(db)).values() for number in numbers) == [
        n for n in range(30) if n != 13
    ]
    parked = await db.fetchrow("SELECT error, ready_at = 'infinity' AS parked FROM wh_active_streams")
    assert parked is not None
    assert (parked["error"], parked["parked"]) == ("ValueError: unlucky", True)


async def test_no_transaction_has_more_than_fifty_messages(app: wt.App, db: asyncpg.Connection) -> None:
    """Each may need a savepoint, and more than 64 in one transaction make every snapshot of the server slow."""
    await db.execute("CREATE TABLE public.effects (transaction xid8 DEFAULT pg_current_xact_id(), number integer)")
    raised: list[int] = []

    @app.receptor(retry=QUICK)
    async def reserve(command: Reserve, tx: wt.Transaction) -> None:
        if command.number == 0 and not raised:
            raised.append(0)
            raise ValueError("from now on there are savepoints")
        await tx.execute("INSERT INTO public.effects (number) VALUES ($1)", command.number)

    async with running(app, settings(transactions=1)):
        await app.publish_all([Reserve(f"order-{n % 4}", n) for n in range(400)])
        await drained(db)
    sizes = await db.fetch("SELECT count(*) AS size FROM public.effects GROUP BY transaction")
    assert sum(row["size"] for row in sizes) == 400
    assert max(row["size"] for row in sizes) <= 50


async def test_what_a_group_cannot_commit_is_committed_one_by_one(
    app: wt.App, db: asyncpg.Connection, effects: None
) -> None:
    await db.execute("ALTER TABLE public.effects ADD CONSTRAINT late UNIQUE (number) DEFERRABLE INITIALLY DEFERRED")

    @app.receptor(retry=wt.Retry(attempts=1))
    async def reserve(command: Reserve, tx: wt.Transaction) -> None:
        await tx.execute(INSERT, command.order, command.number // 2 if command.number > 8 else command.number)

    # 9 and 8 both write 4: the second finds out only at its commit.
    await _publish_before(app, [Reserve(f"order-{n}", n) for n in range(10)])
    async with running(app):
        await drained(db)

    assert sorted(number for numbers in (await written(db)).values() for number in numbers) == list(range(9))
    assert await db.fetchval("SELECT error FROM wh_active_streams") == (
        "UniqueViolationError: SQLSTATE 23505, table effects, constraint late"
    )


async def test_receptors_that_deadlock_are_tried_again_until_all_is_done(app: wt.App, db: asyncpg.Connection) -> None:
    await db.execute("CREATE TABLE public.counters (name text PRIMARY KEY, value integer DEFAULT 0)")
    await db.execute("INSERT INTO public.counters VALUES ('a'), ('b')")
    # Every deadlock stands for so long, and there are many.
    await db.execute(f'ALTER DATABASE "{await db.fetchval("SELECT current_database()")}" SET deadlock_timeout = 10')

    @app.receptor(retry=wt.Retry(first_pause=0.01, longest_pause=0.1))
    async def count(command: Reserve, tx: wt.Transaction) -> None:
        for name in "ab" if command.number % 2 else "ba":
            await tx.execute("UPDATE public.counters SET value = value + 1 WHERE name = $1", name)

    await _publish_before(app, [Reserve(f"order-{n}", n) for n in range(200)])
    async with running(app):
        await drained(db)
    assert await db.fetchval("SELECT array_agg(value) FROM public.counters") == [200, 200]


async def test_a_stream_is_handled_in_order_and_streams_at_the_same_time(app: wt.App, db: asyncpg.Connection) -> None:
    together = asyncio.Barrier(3)
    seen: dict[str, list[int]] = defaultdict(list)
    busy: set[str] = set()

    @app.receptor
    async def reserve(command: Reserve) -> None:
        assert command.order not in busy, "a stream is with one at a time"
        busy.add(command.order)
        # Nobody passes unless the three streams are handled at once.
        async with asyncio.timeout(30):
            await together.wait()
        seen[command.order].append(command.number)
        busy.discard(command.order)

    async with running(app):
        await app.publish_all([Reserve(f"order-{n % 3}", n) for n in range(60)])
        await drained(db)
    assert seen == {f"order-{k}": list(range(k, 60, 3)) for k in range(3)}


async def test_slow_receptors_are_spread_over_all_transactions(app: wt.App, db: asyncpg.Connection) -> None:
    """Each waits for the others: in fewer transactions none would ever end."""
    together = asyncio.Barrier(4)

    @app.receptor
    async def reserve(command: Reserve, tx: wt.Transaction) -> None:
        if command.number == 0:
            await tx.execute("SELECT pg_sleep(0.1)")
            return
        async with asyncio.timeout(30):
            await together.wait()

    async with running(app, settings(transactions=4)) as service:
        await app.publish(Reserve("order-0"))
        await drained(db)
        await app.publish_all([Reserve(f"order-{n}", n) for n in range(1, 5)])
        await drained(db)
    assert (service.counters.inbox_completed, service.counters.inbox_failed) == (5, 0)


async def test_a_stream_of_all_kinds_of_receptors_keeps_its_order(
    app: wt.App, db: asyncpg.Connection, effects: None
) -> None:
    seen: dict[str, list[str]] = defaultdict(list)

    @app.receptor
    async def plain(event: Placed) -> None:
        seen[event.order].append(f"placed {event.number}")

    for kind in ("Transactional", "External", "Returning"):
        _register(app, kind, seen)

    @app.command(stream="order", name="Plain")
    class Plain(Reserve): ...

    @app.receptor
    def in_a_thread(command: Plain) -> None:
        seen[command.order].append(f"Plain {command.number}")

    kinds: list[Any] = [Plain, *(app.types.named(k).python_type for k in ("Transactional", "External", "Returning"))]
    messages = [kinds[(n * 7 + n // 5) % 4](f"order-{n % 4}", n) for n in range(200)]
    await _publish_before(app, messages)
    async with running(app):
        await drained(db)

    for order in range(4):
        expected = [f"{type(m).__name__} {m.number}" for m in messages if m.order == f"order-{order}"]
        assert [entry for entry in seen[f"order-{order}"] if "placed" not in entry] == expected
        assert [e for e in seen[f"order-{order}"] if "placed" in e] == [
            f"placed {m.number}" for m in messages if m.order == f"order-{order}" and type(m).__name__ == "Returning"
        ]


async def test_retries_come_after_a_pause_and_then_the_stream_goes_on(app: wt.App, db: asyncpg.Connection) -> None:
    tries: list[tuple[int, int]] = []

    @app.receptor(retry=QUICK)
    async def reserve(command: Reserve, context: wt.Context) -> None:
        tries.append((command.number, context.attempts))
        if command.number == 0 and context.attempts < 3:
            raise OSError("not now")

    async with running(app):
        await app.publish_all([Reserve("order-1", 0), Reserve("order-1", 1)])
        await drained(db)
    assert tries == [(0, 1), (0, 2), (0, 3), (1, 1)]


@pytest.mark.parametrize("transactional", [True, False])
async def test_a_poisonous_message_is_skipped_where_that_was_asked_for(
    app: wt.App, db: asyncpg.Connection, effects: None, transactional: bool
) -> None:
    seen = set()

    async def inside(command: Reserve, tx: wt.Transaction) -> None:
        await outside(command)

    async def outside(command: Reserve) -> None:
        if command.number == 1:
            raise ValueError("bad")
        seen.add(command.number)

    app.receptor(name="reserve", retry=QUICK, on_poison="skip")(inside if transactional else outside)
    async with running(app):
        await app.publish_all([Reserve("order-1", n) for n in range(4)])
        await drained(db)
    assert seen == {0, 2, 3}
    letter = await db.fetchrow("SELECT version, error, attempts FROM wh_dead_letters")
    assert letter is not None
    assert tuple(letter) == (2, "ValueError: bad", 3)


async def test_a_stored_event_is_skipped_for_one_receptor_only(app: wt.App, db: asyncpg.Connection) -> None:
    seen = []

    @app.receptor(retry=wt.Retry(attempts=1), on_poison="skip")
    async def picky(event: Placed) -> None:
        raise ValueError("bad")

    @app.receptor
    async def happy(event: Placed) -> None:
        seen.append(event.number)

    async with running(app):
        await app.publish_all([Placed("order-1", n) for n in range(3)])
        await drained(db)
    assert seen == [0, 1, 2]
    status = "SELECT array_agg(status) FROM wh_receptor_processing WHERE receptor_name = $1"
    assert await db.fetchval(status, "picky") == 3 * ["Skipped"]
    assert await db.fetchval(status, "happy") == 3 * ["Completed"]


async def test_what_cannot_be_read_and_what_nobody_handles_is_parked(app: wt.App, db: asyncpg.Connection) -> None:
    @app.receptor
    async def reserve(command: Reserve) -> None: ...

    insert = "INSERT INTO wh_inbox (stream_key, message_type, payload) VALUES ($1, $2, $3)"
    await db.execute(insert, "one", "Reserve", '{"order": 5, "secret": "hidden"}')
    await db.execute(insert, "two", "Unknown", "{}")
    await db.execute(insert, "three", "Reserved", '{"order": "x"}')
    async with running(app):
        await drained(db)
    errors = [row[0] for row in await db.fetch("SELECT error FROM wh_active_streams ORDER BY error")]
    assert len(errors) == 3
    assert errors[0].startswith("no receptor handles Reserved")
    assert errors[1].startswith("no type of the name Unknown")
    assert errors[2].startswith("this is no Reserve")
    assert "hidden" not in "".join(errors)


async def test_an_external_receptor_has_a_key_that_stays_the_same(
    app: wt.App, db: asyncpg.Connection, connect: Connect
) -> None:
    keys, looking = [], await connect()

    @app.receptor(effects="external", retry=QUICK)
    async def pay(command: Reserve, key: wt.IdempotencyKey) -> None:
        keys.append(key)
        # Whatever came before in the stream is stored as done before the next begins.
        assert await looking.fetchval("SELECT count(*) FROM wh_messages") == 3 - command.number
        if len(keys) < 3:
            raise OSError

    async with running(app):
        receipts = await app.publish_all([Reserve("order-1", n) for n in range(3)])
        await drained(db)
    first, second, third = (f"pay:{receipt.message_id}" for receipt in receipts)
    assert keys == [first, first, first, second, third]


async def test_a_receptor_that_returns_nonsense_fails(app: wt.App, db: asyncpg.Connection) -> None:
    @app.receptor(retry=wt.Retry(attempts=1))
    async def reserve(command: Reserve) -> Any:
        return 17

    async with running(app):
        await app.publish(Reserve("order-1"))
        await drained(db)
    assert "int is not registered" in await db.fetchval("SELECT error FROM wh_active_streams")


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_receptor_for_which_something_was_cancelled_fails_like_any_other(
    app: wt.App, db: asyncpg.Connection, transactional: bool
) -> None:
    async def interrupted(command: Reserve) -> None:
        waiting = asyncio.create_task(asyncio.Event().wait())
        waiting.cancel()
        await waiting

    async def in_a_transaction(command: Reserve, tx: wt.Transaction) -> None:
        await interrupted(command)

    app.receptor(retry=QUICK, name="reserve")(in_a_transaction if transactional else interrupted)
    async with running(app, settings(concurrency=1, transactions=1)):
        await app.publish_all([Reserve("order-1"), Reserve("order-2")])
        parked = "SELECT error FROM wh_active_streams WHERE ready_at = 'infinity'"
        await until(lambda: db.fetchval(f"SELECT count(*) = 2 FROM ({parked}) parked"))
    assert {row["error"] for row in await db.fetch(parked)} == {"RuntimeError: something that it awaited was cancelled"}


async def test_an_instance_does_not_go_on_without_one_of_its_tasks(app: wt.App, db: asyncpg.Connection) -> None:
    class Ended(BaseException):
        pass

    @app.receptor
    async def reserve(command: Reserve) -> None:
        raise Ended

    with pytest.raises(Ended):
        async with asyncio.timeout(60), Service(app, settings()).running() as work:
            await app.publish(Reserve("order-1"))
            await asyncio.wait([work])


async def test_a_scheduled_command_is_handled_when_it_is_due(app: wt.App, db: asyncpg.Connection) -> None:
    seen = []

    @app.receptor
    async def reserve(command: Reserve) -> None:
        seen.append(command.number)

    async with running(app):
        await app.publish(Reserve("order-1", 2), after=0.2)
        await app.publish(Reserve("order-1", 3), after=60)
        await app.publish(Reserve("order-1", 1))
        await until(lambda: len(seen) == 2)
    assert seen == [1, 2]


async def test_stopping_finishes_what_is_begun_and_gives_back_the_rest(app: wt.App, db: asyncpg.Connection) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    seen = []

    @app.receptor
    async def reserve(command: Reserve) -> None:
        begun.set()
        await go_on.wait()
        seen.append(command.number)

    await _publish_before(app, [Reserve("order-1", n) for n in range(5)])
    async with running(app) as service:
        await begun.wait()
        service.stop()
        told = service.counters.batches
        # While it waits for its receptor it goes on to report.
        await until(lambda: service.counters.batches > told + 2)
        go_on.set()
    assert seen == [0]
    assert await db.fetchval("SELECT count(*) FROM wh_inbox") == 4
    assert (
        await db.fetchval("SELECT count(*) FROM wh_active_streams WHERE instance_id IS NOT NULL OR attempts > 0") == 0
    )
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 0


async def test_what_does_not_end_within_the_grace_period_is_given_back(app: wt.App, db: asyncpg.Connection) -> None:
    begun = asyncio.Event()

    @app.receptor
    async def reserve(command: Reserve) -> None:
        begun.set()
        await asyncio.Event().wait()

    await _publish_before(app, [Reserve("order-1")])
    async with running(app, grace=0.1):
        await begun.wait()
    assert await db.fetchval("SELECT count(*) FROM wh_inbox") == 1
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams WHERE instance_id IS NULL") == 1


async def test_slow_receptors_keep_little_in_hand(app: wt.App, db: asyncpg.Connection) -> None:
    go_on = asyncio.Event()

    @app.receptor
    async def reserve(command: Reserve) -> None:
        await go_on.wait()

    await _publish_before(app, [Reserve(f"order-{n}", n) for n in range(1000)])
    async with running(app, settings(concurrency=2, capacity=500)) as service:
        leased = "SELECT count(*) FROM wh_active_streams WHERE instance_id IS NOT NULL"
        await until(lambda: db.fetchval(leased))
        await until(lambda: service.counters.batches > 5)
        assert await db.fetchval(leased) <= 50
        go_on.set()
        await drained(db)


async def _publish_before(app: wt.App, messages: list[Any]) -> None:
    async with app.connected():
        await app.publish_all(messages)


def _register(app: wt.App, kind: str, seen: dict[str, list[str]]) -> None:
    python_type: Any = type(kind, (Reserve,), {"__module__": __name__})
    app.command(stream="order")(python_type)
    if kind == "Transactional":

        async def transactional(command: python_type, tx: wt.Transaction) -> None:
            await tx.execute(INSERT, command.order, command.number)
            seen[command.order].append(f"{kind} {command.number}")

        app.receptor(transactional)
    elif kind == "External":

        async def external(command: python_type) -> None:
            seen[command.order].append(f"{kind} {command.number}")

        app.receptor(effects="external")(external)
    else:

        async def returning(command: python_type) -> Placed:
            seen[command.order].append(f"{kind} {command.number}")
            return Placed(command.order, command.number)

        app.receptor(returning)
