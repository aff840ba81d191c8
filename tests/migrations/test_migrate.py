"""Installing and upgrading the schema."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.conftest import blank_database
from tests.migrations.catalogue import catalogue
from whippletree.errors import InvalidSetting, SchemaMismatch, StoreError
from whippletree.settings import Dsn
from whippletree.store import schema
from whippletree.store.schema import migrate, migration_names, require_schema, script


@pytest.fixture
async def blank(server: str, request: pytest.FixtureRequest) -> AsyncIterator[Dsn]:
    async with blank_database(server, request.node.nodeid) as dsn:
        yield dsn


@pytest.fixture
async def connection(blank: Dsn) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(blank.reveal())
    yield connection
    await connection.close()


async def test_a_fresh_schema_equals_a_migrated_one(connection: asyncpg.Connection) -> None:
    await migrate(connection, "whippletree")
    fresh = await catalogue(connection, "whippletree")
    await connection.execute("DROP SCHEMA whippletree CASCADE")

    await connection.execute("CREATE SCHEMA whippletree")
    await connection.execute("SET search_path = whippletree, pg_temp")
    for name in migration_names():
        await connection.execute(schema.read("migrations", name))
        await connection.execute("INSERT INTO wh_migrations (migration) VALUES ($1)", name)
    await connection.execute("RESET search_path")
    await migrate(connection, "whippletree")

    migrated = await catalogue(connection, "whippletree")
    assert fresh - migrated == set()
    assert migrated - fresh == set()


async def test_the_printed_sql_installs_the_same(connection: asyncpg.Connection) -> None:
    await migrate(connection, "whippletree")
    installed = await catalogue(connection, "whippletree")
    await connection.execute("DROP SCHEMA whippletree CASCADE")
    await connection.execute(script("whippletree"))
    assert await catalogue(connection, "whippletree") == installed
    await require_schema(connection, "whippletree")
    assert await migrate(connection, "whippletree") == ()


async def test_migrating_again_does_nothing(connection: asyncpg.Connection) -> None:
    assert await migrate(connection, "whippletree") != ()
    assert await migrate(connection, "whippletree") == ()


async def test_a_dry_run_says_what_it_would_do_and_does_nothing(connection: asyncpg.Connection) -> None:
    assert "created schema whippletree" in await migrate(connection, "whippletree", dry_run=True)
    assert await connection.fetchval("SELECT to_regnamespace('whippletree')") is None


async def test_ten_processes_may_migrate_at_once(blank: Dsn, connection: asyncpg.Connection) -> None:
    command = [sys.executable, "-m", "whippletree", "migrate", "--dsn", blank.reveal()]
    processes = [await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE) for _ in range(10)]
    said = await asyncio.gather(*(process.communicate() for process in processes))
    assert [process.returncode for process in processes] == [0] * 10, said
    assert sum(b"created schema" in out for out, _ in said) == 1
    await require_schema(connection, "whippletree")


async def test_a_schema_newer_than_the_package_is_refused(connection: asyncpg.Connection) -> None:
    await migrate(connection, "whippletree")
    await connection.execute("INSERT INTO whippletree.wh_migrations VALUES ('9999_after_tomorrow')")
    for refused in (migrate, require_schema):
        with pytest.raises(SchemaMismatch, match=r"9999_after_tomorrow: upgrade the package"):
            await refused(connection, "whippletree")


async def test_functions_of_a_newer_package_are_left_alone(connection: asyncpg.Connection) -> None:
    await migrate(connection, "whippletree")
    await connection.execute("UPDATE whippletree.wh_installation SET version = '99.0.0', digest = 'other'")
    with pytest.raises(SchemaMismatch, match=r"installed by version 99\.0\.0"):
        await migrate(connection, "whippletree")


async def test_functions_of_an_older_package_are_replaced(connection: asyncpg.Connection) -> None:
    await migrate(connection, "whippletree")
    await connection.execute("UPDATE whippletree.wh_installation SET version = '0.0.1', digest = 'other'")
    with pytest.raises(SchemaMismatch, match="whippletree migrate --schema whippletree"):
        await require_schema(connection, "whippletree")
    (line,) = await migrate(connection, "whippletree")
    assert line.startswith("installed functions and views")


async def test_a_missing_schema_is_named_with_the_command_that_installs_it(connection: asyncpg.Connection) -> None:
    with pytest.raises(SchemaMismatch, match=r"is not installed: run `whippletree migrate --schema shop`"):
        await require_schema(connection, "shop")


async def test_a_locked_table_makes_migrating_wait_without_making_others_wait(
    blank: Dsn, connection: asyncpg.Connection
) -> None:
    await migrate(connection, "whippletree")
    other = await asyncpg.connect(blank.reveal())
    lock = connection.transaction()
    await lock.start()
    await connection.execute("LOCK TABLE whippletree.wh_migrations")
    waiting = asyncio.create_task(migrate(other, "whippletree"))
    # It gives up its place in the line and comes back, over and over.
    observer = await asyncpg.connect(blank.reveal())
    while not await observer.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):
        assert not waiting.done()
    while await observer.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):
        assert not waiting.done()
    await lock.rollback()
    assert await waiting == ()
    await other.close()
    await observer.close()


async def test_two_services_in_one_database_do_not_see_each_other(connection: asyncpg.Connection) -> None:
    for name in ("orders", "billing"):
        await migrate(connection, name)
    await connection.execute(
        "INSERT INTO orders.wh_outbox (message_type, topic, payload) VALUES ('Placed', 'orders', '{}')"
    )
    identity = "'11111111-1111-4111-8111-111111111111', 'service', 'host', 1"
    for name, expected in (("billing", 0), ("orders", 1)):
        row = await connection.fetchrow(
            f"SELECT jsonb_array_length(claimed_outbox_messages) AS claimed FROM {name}.process_work_batch({identity})"
        )
        assert row is not None
        assert row["claimed"] == expected


@pytest.mark.parametrize("name", ["x; drop table y", 'a"b', "", "Upper", "pg_mine", "x" * 49, "1st", "a b", "ö"])
async def test_a_name_that_is_no_schema_name_is_refused(connection: asyncpg.Connection, name: str) -> None:
    for refused in (migrate, require_schema):
        with pytest.raises(InvalidSetting):
            await refused(connection, name)
    with pytest.raises(InvalidSetting):
        script(name)


async def test_an_upgrade_is_printed_since_a_migration() -> None:
    *_, newest = migration_names()
    printed = script("whippletree", since=newest)
    assert "\nCREATE TABLE" not in printed
    assert "CREATE OR REPLACE FUNCTION process_work_batch" in printed
    with pytest.raises(StoreError, match="no migration is called"):
        script("whippletree", since="0000_nonsense")
