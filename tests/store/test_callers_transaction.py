"""Storing happens in the caller's own transaction, whatever its driver: it commits and rolls back with it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from tests.store.callers import ALL, SYNC, Caller, calling
from tests.waiting import until_somebody_waits
from whippletree.errors import InvalidMessage, SchemaMismatch, UsageError
from whippletree.message.codec import Payload, encode
from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.message.ids import MessageId
from whippletree.settings import Dsn
from whippletree.store.inbox import StoreOutcome
from whippletree.store.outbox import store_outbox, store_outbox_sync

S = UUID("5eed0000-0000-4000-8000-000000000001")


def message(**values: Any) -> OutboxMessage:
    return OutboxMessage(**{"message_type": "Happened", "payload": "{}", "stream": S, **values})


def received(**values: Any) -> InboxMessage:
    return InboxMessage(**{"message_id": MessageId(uuid4()), "message_type": "Happened", "payload": "{}", **values})


@pytest.fixture(params=["asyncpg", "psycopg_async", "psycopg", "sqlalchemy_async", "sqlalchemy_session", "django"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def caller(driver: str, dsn: Dsn) -> AsyncIterator[Caller]:
    async with calling(driver, dsn) as caller:
        yield caller


every_driver = pytest.mark.parametrize("driver", ALL)


@every_driver
async def test_messages_commit_with_the_callers_own_work(caller: Caller, db: asyncpg.Connection) -> None:
    await caller.execute("CREATE TABLE public.orders (name text)")
    await caller.execute("INSERT INTO public.orders VALUES ('first')")
    first, second, alone = message(), message(stream="by name"), message(stream=None)
    assert await caller.store_outbox([first, message(), second, alone]) == (1, 2, 1, 1)
    assert await caller.store_outbox([message()]) == (3,)

    assert await db.fetchval("SELECT count(*) FROM wh_messages") == 0
    await caller.commit()
    assert await db.fetchval("SELECT count(*) FROM wh_messages") == 5
    assert await db.fetchval("SELECT count(*) FROM public.orders") == 1
    assert await db.fetchval("SELECT stream_key FROM wh_outbox WHERE message_id = $1", second.message_id) == "by name"
    assert await db.fetchval("SELECT stream_id IS NULL FROM wh_outbox WHERE message_id = $1", alone.message_id)


@every_driver
async def test_messages_roll_back_with_the_callers_own_work(caller: Caller, db: asyncpg.Connection) -> None:
    await caller.execute("CREATE TABLE public.orders (name text)")
    assert await caller.store_outbox([message()]) == (1,)
    assert await caller.store_inbox([received()]) == (StoreOutcome.STORED,)
    await caller.rollback()

    assert await db.fetchval("SELECT count(*) FROM wh_messages") == 0
    assert await db.fetchval("SELECT count(*) FROM wh_message_deduplication") == 0
    assert await db.fetchval("SELECT to_regclass('public.orders')") is None


async def test_without_a_transaction_the_call_is_one_by_itself(driver: str, dsn: Dsn, db: asyncpg.Connection) -> None:
    async with calling(driver, dsn, autocommit=True) as caller:
        assert await caller.store_outbox([message(), message()]) == (1, 2)
        assert await db.fetchval("SELECT count(*) FROM wh_messages") == 2


async def test_everything_arrives_to_the_letter(caller: Caller, db: asyncpg.Connection) -> None:
    at = await db.fetchval("SELECT now() + interval '1 day'")
    stored = message(
        payload='{ "b": 1.50, "a": ":name %s \\\\ € 😀", "b": 2}',
        headers='{"tenant":"ä"}',
        topic="orders",
        correlation_id=uuid4(),
        causation_id=uuid4(),
        scheduled_for=at,
    )
    text = received(payload=encode("a JSON string"), source_topic="elsewhere", stream="customer 42", headers="[1]")
    await caller.store_outbox([stored])
    assert await caller.store_inbox([text]) == (StoreOutcome.STORED,)
    await caller.commit()

    row = await db.fetchrow("SELECT * FROM wh_outbox")
    assert row is not None
    for name in ("message_id", "message_type", "payload", "topic", "correlation_id", "causation_id", "scheduled_for"):
        assert row[name] == getattr(stored, name), name
    assert row["headers"].replace(" ", "") == '{"tenant":"ä"}'
    row = await db.fetchrow("SELECT * FROM wh_inbox")
    assert row is not None
    assert (row["payload"], row["topic"], row["stream_key"]) == ('"a JSON string"', "elsewhere", "customer 42")


async def test_received_messages_are_accepted_once(caller: Caller) -> None:
    first = received(payload='{"n": 1}')
    same_id = InboxMessage(message_id=first.message_id, message_type="Happened", payload='{"n": 2}')
    new = received()
    assert await caller.store_inbox([first, new, first, same_id]) == (
        StoreOutcome.STORED,
        StoreOutcome.STORED,
        StoreOutcome.DUPLICATE,
        StoreOutcome.CONFLICT,
    )
    assert await caller.store_inbox([new]) == (StoreOutcome.DUPLICATE,)
    assert await caller.store_inbox([]) == ()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_bad_message_is_named_and_leaves_the_transaction_usable(caller: Caller) -> None:
    bad = message(message_type="Not a name")
    with pytest.raises(InvalidMessage, match=rf"^message 2 \({bad.message_id}\) cannot be stored: message_type 'Not a"):
        await caller.store_outbox([message(), bad])
    for wrong in ({"correlation_id": "abc"}, {"causation_id": "abc"}, {"scheduled_for": "soon"}):
        (name,) = wrong
        with pytest.raises(InvalidMessage, match=rf"^message 1 \(.*\) cannot be stored: {name} is of type str; give a"):
            await caller.store_outbox([message(**wrong)])
    twice = message()
    with pytest.raises(InvalidMessage, match=rf"^messages 1 and 3 have the same id, {twice.message_id}; give every"):
        await caller.store_outbox([twice, message(), twice])
    assert await caller.store_outbox([message()]) == (1,)
    assert await caller.store_outbox([]) == ()


async def test_what_only_the_database_can_refuse_is_refused_in_the_same_words(caller: Caller) -> None:
    with pytest.raises(
        InvalidMessage, match="message 2 cannot be stored: payload has 300000 bytes, more than the 262144"
    ):
        await caller.store_outbox([message(), message(payload=Payload('"' + "x" * 299_998 + '"'))])


async def test_an_id_that_is_already_waiting_is_refused(driver: str, dsn: Dsn) -> None:
    once = message()
    async with calling(driver, dsn, autocommit=True) as caller:
        await caller.store_outbox([once])
        with pytest.raises(InvalidMessage, match="already waiting"):
            await caller.store_outbox([once])


async def test_a_stream_with_the_id_of_a_message_that_waits_is_refused(driver: str, dsn: Dsn) -> None:
    alone = message(stream=None)
    async with calling(driver, dsn, autocommit=True) as caller:
        await caller.store_outbox([alone])
        for count in (1, 2):
            with pytest.raises(InvalidMessage, match="stream_id is the id of a message that waits; give the stream an"):
                await caller.store_outbox([message(stream=alone.message_id) for _ in range(count)])


async def test_a_schema_that_is_missing_or_old_is_told_with_the_command_to_type(driver: str, dsn: Dsn) -> None:
    async with calling(driver, dsn, autocommit=True) as caller:
        for _ in range(2):
            with pytest.raises(SchemaMismatch, match="run `whippletree migrate --schema elsewhere`"):
                await caller.store_outbox([message()], schema="elsewhere")
            # Now it is there, without the function.
            await caller.execute("CREATE SCHEMA IF NOT EXISTS elsewhere")


async def test_the_drivers_own_errors_stay_its_own(driver: str, dsn: Dsn) -> None:
    async with calling(driver, dsn) as caller:
        await caller.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(Exception, match="read-only transaction") as refusal:
            await caller.store_outbox([message()])
        assert not type(refusal.value).__module__.startswith("whippletree")
        await caller.rollback()


async def test_a_connection_of_the_other_kind_is_told_the_right_name(dsn: Dsn) -> None:
    for driver in ("asyncpg", "psycopg_async", "sqlalchemy_async", "sqlalchemy_async_session"):
        async with calling(driver, dsn) as caller:
            with pytest.raises(UsageError, match="is the wrong kind of connection for this call: await store_outbox"):
                store_outbox_sync([message()], on=caller.connection)
    for driver in SYNC:
        async with calling(driver, dsn) as caller:
            with pytest.raises(UsageError, match=r"wrong kind of connection .*: call store_outbox_sync without await"):
                await store_outbox([message()], on=caller.connection)


async def test_something_that_is_no_connection_is_told_what_is(dsn: Dsn, pool: asyncpg.Pool[asyncpg.Record]) -> None:
    engine = create_async_engine(dsn.reveal().replace("postgresql:", "postgresql+asyncpg:", 1))
    nonsense: Any
    for nonsense in (None, "postgresql://", pool, engine):
        with pytest.raises(UsageError) as refusal:
            await store_outbox([message()], on=nonsense)
        said = str(refusal.value)
        assert f"{type(nonsense).__module__}.{type(nonsense).__qualname__}" in said
        for name in (
            "asyncpg",
            "psycopg.AsyncConnection",
            "psycopg.Connection",
            "AsyncSession",
            "django.db.connection",
        ):
            assert name in said
        assert "not a pool or an engine" in said


def test_another_database_is_refused() -> None:
    with (
        sqlalchemy.create_engine("sqlite://").connect() as sqlite,
        pytest.raises(UsageError, match="cannot store on a connection to sqlite; the messages live in PostgreSQL"),
    ):
        store_outbox_sync([message()], on=sqlite)


def test_no_driver_is_imported_that_the_caller_did_not_import() -> None:
    program = (
        "import sys, whippletree.store.outbox, whippletree.store.inbox\n"
        "from whippletree.message.envelope import OutboxMessage\n"
        "try:\n    whippletree.store.outbox.store_outbox_sync([OutboxMessage(message_type='A', payload='1')], on=1)\n"
        "except Exception as error: assert 'cannot store on builtins.int' in str(error), error\n"
        "print({'psycopg', 'sqlalchemy', 'django', 'asyncpg'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


async def test_two_callers_of_one_stream_take_turns(dsn: Dsn, db: asyncpg.Connection) -> None:
    """The second waits for the first one's transaction, and its messages come after."""
    async with calling("asyncpg", dsn) as early, calling("psycopg_async", dsn) as late:
        assert await early.store_outbox([message()]) == (1,)
        waiting = asyncio.create_task(late.store_outbox([message()]))
        await until_somebody_waits(db)
        assert not waiting.done()
        await early.commit()
        assert await waiting == (2,)
        await late.commit()
