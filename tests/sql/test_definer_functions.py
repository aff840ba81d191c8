"""Functions that run with their owner's rights cannot be led astray by their caller."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.conftest import SCHEMA
from tests.roles import a_role, login
from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.message.ids import new_message_id
from whippletree.settings import Dsn
from whippletree.store.inbox import StoreOutcome, store_inbox
from whippletree.store.outbox import store_outbox
from whippletree.store.roles import RoleKind

AS_THE_CALLER = {
    # They end sessions, take session locks or compute; the owner's rights would let a caller end anybody's session.
    *(
        "end_lost_calls",
        "end_silent_transactions",
        "take_session_lock",
        "holds_session_lock",
        "session_lock_key",
        "lock_key",
        "wake_channel",
    ),
    *(
        "stream_id_of",
        "is_uuid",
        "partition_of",
        "require_read_committed",
        "enter_subscriber",
        "stand_by",
        "take_subscribers",
    ),
    *("release_subscribers", "subscriber_lock", "subscriber_locks", "subscriber_channel", "feed_channel"),
    # Views ask these, and a view has its reader's rights to functions. They compute, and look at locks.
    *("is_parked", "is_leased", "is_gone"),
}
NAMES_A_TABLE = {"find_rows", "read_rows", "row_of", "write_rows", "sort_events", "read_sorted"}
"""They name the table of a perspective, with %I, and types that were checked when the perspective was registered."""
_TABLES = """
    SELECT c.relname,
      string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v')
    GROUP BY c.relname
"""


@pytest.fixture
async def thief(dsn: Dsn, db: asyncpg.Connection) -> AsyncIterator[asyncpg.Connection]:
    """A producer who has a temporary table for each of ours, a schema with some of them, and looks there first."""
    async with a_role(dsn, RoleKind.PRODUCER) as name:
        await db.execute(f"CREATE SCHEMA trap AUTHORIZATION {name}")
        connection = await asyncpg.connect(login(dsn, name).reveal())
        for table, columns in await db.fetch(_TABLES, SCHEMA):
            await connection.execute(f"CREATE TEMPORARY TABLE {table} ({columns})")
            await connection.execute(f"CREATE TABLE trap.{table} ({columns})")
        await connection.execute(
            "CREATE FUNCTION trap.message_fault(uuid, uuid, text, json, integer) RETURNS text LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'caught %', current_user; END $$"
        )
        await connection.execute(f"SET search_path = pg_temp, trap, {SCHEMA}")
        yield connection
        await connection.close()


async def caught(thief: asyncpg.Connection) -> int:
    """How many rows the traps hold."""
    return int(
        await thief.fetchval(
            "SELECT (SELECT count(*) FROM pg_temp.wh_messages) + (SELECT count(*) FROM trap.wh_messages)"
            " + (SELECT count(*) FROM pg_temp.wh_streams) + (SELECT count(*) FROM pg_temp.wh_message_deduplication)"
        )
    )


async def test_a_message_goes_where_it_belongs_whatever_the_caller_has_put_in_the_way(
    thief: asyncpg.Connection, db: asyncpg.Connection
) -> None:
    sent = OutboxMessage(message_type="Placed", payload="{}", stream="s")
    also = OutboxMessage(message_type="Placed", payload="{}", stream="s")
    received = InboxMessage(message_id=new_message_id(), message_type="Placed", payload="{}", stream="s")
    assert await store_outbox([sent], on=thief) == (1,)
    assert await store_outbox([also], on=thief) == (2,)
    assert await store_inbox([received], on=thief) == (StoreOutcome.STORED,)
    await thief.execute(f"INSERT INTO {SCHEMA}.wh_outbox (message_type, payload) VALUES ('Placed', '{{}}')")
    assert await caught(thief) == 0
    assert await db.fetchval("SELECT count(*) FROM wh_messages") == 4


async def test_without_the_pinned_path_the_message_would_be_caught(
    thief: asyncpg.Connection, db: asyncpg.Connection
) -> None:
    """Shows that the traps work."""
    await db.execute("ALTER FUNCTION store_message RESET search_path")
    await thief.execute(f"SET search_path = pg_temp, {SCHEMA}")
    with pytest.raises(asyncpg.PostgresError):
        await store_outbox([OutboxMessage(message_type="Placed", payload="{}", stream="s")], on=thief)
    await thief.execute("CREATE UNIQUE INDEX ON pg_temp.wh_streams (stream_id)")
    await thief.execute("ALTER TABLE pg_temp.wh_streams ALTER outbox_version SET DEFAULT 1")
    await store_outbox([OutboxMessage(message_type="Placed", payload="{}", stream="s")], on=thief)
    assert await caught(thief) > 0
    assert await db.fetchval("SELECT count(*) FROM wh_messages") == 0


async def test_every_function_pins_its_path_with_temporary_tables_last(db: asyncpg.Connection) -> None:
    rows = await db.fetch(
        "SELECT p.proname, p.prosecdef, p.proconfig, p.prosrc, l.lanname FROM pg_proc p JOIN pg_language l"
        " ON l.oid = p.prolang WHERE p.pronamespace = $1::text::regnamespace",
        SCHEMA,
    )
    assert rows
    for name, definer, settings, source, language in rows:
        assert language in ("sql", "plpgsql"), name
        builds = definer and "EXECUTE" in source
        assert not builds or name in NAMES_A_TABLE, f"{name} builds SQL with its owner's rights"
        if definer or "wh_" in source:
            paths = [setting for setting in settings or () if setting.startswith("search_path=")]
            assert paths in ([f"search_path={SCHEMA}, pg_temp"], [f'search_path="{SCHEMA}", pg_temp']), name


async def test_only_entry_points_have_the_owners_rights_and_only_few_entry_points_have_not(
    db: asyncpg.Connection, dsn: Dsn
) -> None:
    async with a_role(dsn, *RoleKind) as name:
        rows = await db.fetch(
            "SELECT p.proname, p.prosecdef, has_function_privilege($2::text, p.oid, 'EXECUTE'),"
            " p.prorettype = 'trigger'::regtype FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace",
            SCHEMA,
            name,
        )
    assert {function for function, definer, granted, _ in rows if granted and not definer} == AS_THE_CALLER
    assert {
        function for function, definer, granted, trigger in rows if definer and not granted and not trigger
    } == set()


async def test_nothing_of_ours_is_open_to_everybody(db: asyncpg.Connection) -> None:
    open_to_all = await db.fetch(
        "SELECT proname FROM pg_proc WHERE pronamespace = $1::text::regnamespace"
        " AND has_function_privilege('public', oid, 'EXECUTE')",
        SCHEMA,
    )
    assert not open_to_all
