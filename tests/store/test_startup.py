"""What is found before a service starts, on a real server whose settings really are wrong."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from tests.claim.wire import pooler
from tests.conftest import SCHEMA, Connect, blank_database
from tests.roles import a_role, login
from whippletree.errors import InvalidSetting, SchemaMismatch, StoreError, StoreUnavailable
from whippletree.settings import Dsn
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.roles import RoleKind
from whippletree.store.schema import migrate, require_schema
from whippletree.store.startup import Finding, Severity, examine


@pytest.fixture
def directory() -> Iterator[Path]:
    """Where a server of the test's own lives."""
    directory = Path(tempfile.mkdtemp(prefix="whippletree-startup-"))
    directory.chmod(0o755)
    yield directory
    EmbeddedPostgres(directory).stop(force=True)
    shutil.rmtree(directory, ignore_errors=True)


async def of(connection: asyncpg.Connection, subject: str) -> Finding | None:
    """The finding on a subject. The tests' own server is fast rather than durable, which is found too."""
    found = [finding for finding in await examine(connection, SCHEMA) if finding.subject == subject]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.fixture
async def as_configured(dsn: Dsn, db: asyncpg.Connection) -> AsyncIterator[Connect]:
    """Connections that are opened after the test has configured the database."""
    opened = []

    async def connect() -> asyncpg.Connection:
        opened.append(await asyncpg.connect(dsn.reveal()))
        return opened[-1]

    yield connect
    for connection in opened:
        await connection.close(timeout=5)


async def set_for_database(db: asyncpg.Connection, assignment: str) -> None:
    database = await db.fetchval("SELECT current_database()")
    await db.execute(f'ALTER DATABASE "{database}" SET {assignment}')


async def test_nothing_is_found_where_all_is_well(directory: Path) -> None:
    """With the settings that everybody starts with."""
    with EmbeddedPostgres(directory) as server:
        connection = await asyncpg.connect(server.dsn)
        await migrate(connection, SCHEMA)
        assert list(await examine(connection, SCHEMA)) == []
        await connection.close()


async def test_a_server_that_is_too_old_is_an_error(dsn: Dsn) -> None:
    async with pooler(dsn, backends=1, honest=True, version="13.23") as address:
        connection = await asyncpg.connect(address.reveal(), statement_cache_size=0)
        assert await of(connection, "schema") == Finding(
            severity=Severity.ERROR,
            subject="schema",
            problem="PostgreSQL 13 is too old, version 14 or later is needed",
            remedy="Upgrade the server, or name another one with WHIPPLETREE_DSN.",
        )
        with pytest.raises(StoreError, match="PostgreSQL 13 is too old"):
            await migrate(connection, SCHEMA)
        with pytest.raises(SchemaMismatch, match="PostgreSQL 13 is too old"):
            await require_schema(connection, SCHEMA)
        connection.terminate()


async def test_a_database_of_another_encoding_is_an_error(server: str) -> None:
    latin = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
    async with blank_database(server, "latin", "template0", latin) as dsn:
        connection = await asyncpg.connect(dsn.reveal())
        with pytest.raises(StoreError, match="encoding is LATIN1, UTF8 is needed: create a database with ENCODING"):
            await migrate(connection, SCHEMA)
        finding = await of(connection, "schema")
        await connection.close()
    assert finding is not None
    assert (finding.severity, finding.problem) == (Severity.ERROR, "the database's encoding is LATIN1, UTF8 is needed")


async def test_a_standby_is_an_error(directory: Path) -> None:
    with EmbeddedPostgres(directory) as server:
        connection = await asyncpg.connect(server.dsn)
        await migrate(connection, SCHEMA)
        await connection.close()
    server.stop(force=True)
    (directory / "data" / "standby.signal").touch()
    with EmbeddedPostgres(directory) as server:
        connection = await asyncpg.connect(server.dsn)
        finding = await of(connection, "server")
        await connection.close()
    assert finding is not None
    assert finding.severity == Severity.ERROR
    assert finding.problem.startswith("this server is a standby")


async def test_a_worker_can_look(dsn: Dsn) -> None:
    async with a_role(dsn, RoleKind.WORKER) as worker:
        connection = await asyncpg.connect(login(dsn, worker).reveal())
        assert {finding.severity for finding in await examine(connection, SCHEMA)} <= {Severity.DANGER}
        await connection.close()


async def test_settings_that_lose_messages_are_said_with_what_they_do(
    db: asyncpg.Connection, as_configured: Connect
) -> None:
    await set_for_database(db, "synchronous_commit = off")
    connection = await as_configured()
    assert await of(connection, "synchronous_commit") == Finding(
        severity=Severity.DANGER,
        subject="synchronous_commit",
        problem="it is off, so a crash of the server loses what was committed in the last moments",
        remedy="Turn it on for this database (ALTER DATABASE … SET).",
    )
    for name in ("fsync", "full_page_writes"):
        finding = await of(connection, name)
        off = await connection.fetchval(f"SHOW {name}") == "off"
        assert (finding is not None) == off
        if finding is not None:
            assert finding.severity == Severity.DANGER
            assert "a crash of the machine can" in finding.problem


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_another_isolation_is_an_error(db: asyncpg.Connection, as_configured: Connect, level: str) -> None:
    await set_for_database(db, f"default_transaction_isolation = '{level}'")
    finding = await of(await as_configured(), "default_transaction_isolation")
    assert finding == Finding(
        severity=Severity.ERROR,
        subject="default_transaction_isolation",
        problem=f"it is {level}, but work is processed in READ COMMITTED only",
        remedy="Set it to read committed for this database (ALTER DATABASE … SET).",
    )


async def test_a_setting_of_the_role_is_mended_for_the_role(dsn: Dsn, db: asyncpg.Connection) -> None:
    async with a_role(dsn, RoleKind.WORKER) as worker:
        await db.execute(f"ALTER ROLE {worker} SET default_transaction_isolation = serializable")
        connection = await asyncpg.connect(login(dsn, worker).reveal())
        finding = await of(connection, "default_transaction_isolation")
        await connection.close()
    assert finding is not None
    assert finding.remedy == "Set it to read committed for this role (ALTER ROLE … SET)."


async def test_a_database_that_can_only_be_read_is_an_error(db: asyncpg.Connection, as_configured: Connect) -> None:
    await set_for_database(db, "default_transaction_read_only = on")
    finding = await of(await as_configured(), "default_transaction_read_only")
    assert finding is not None
    assert finding.severity == Severity.ERROR


async def test_a_schema_that_does_not_fit_is_an_error_with_the_command_to_type(db: asyncpg.Connection) -> None:
    await db.execute("UPDATE wh_installation SET digest = 'older'")
    finding = await of(db, "schema")
    assert finding is not None
    assert str(finding) == (
        "schema: schema 'whippletree' is older than this version. Run `whippletree migrate --schema whippletree`."
    )
    await db.execute("INSERT INTO wh_migrations VALUES ('9999_after_tomorrow')")
    finding = await of(db, "schema")
    assert finding is not None
    assert (finding.severity, finding.remedy) == (Severity.ERROR, "Upgrade the package.")
    (missing,) = [found for found in await examine(db, "elsewhere") if found.subject == "schema"]
    assert missing.problem == "schema 'elsewhere' is not installed"


async def test_a_role_without_rights_is_told_who_can_give_them(dsn: Dsn) -> None:
    async with a_role(dsn) as somebody:
        connection = await asyncpg.connect(login(dsn, somebody).reveal())
        finding = await of(connection, "rights")
        await connection.close()
    assert finding is not None
    assert finding.severity == Severity.ERROR
    assert finding.remedy == f"As its owner, run `whippletree roles grant worker {somebody} --schema whippletree`."


async def test_an_unlogged_table_is_a_danger(db: asyncpg.Connection) -> None:
    await db.execute("ALTER TABLE wh_dead_letters SET UNLOGGED")
    finding = await of(db, "tables")
    assert finding is not None
    assert finding.severity == Severity.DANGER
    assert finding.problem == "wh_dead_letters is unlogged, so a crash of the server empties it"


@pytest.mark.parametrize(("off", "said"), [(3600, "s behind ours"), (-3600, "s ahead of ours")])
async def test_clocks_that_differ_are_a_warning(db: asyncpg.Connection, off: int, said: str) -> None:
    found = await examine(db, SCHEMA, clock=lambda: datetime.now(UTC) + timedelta(seconds=off))
    (finding,) = [finding for finding in found if finding.subject == "clock"]
    assert finding.severity == Severity.WARNING
    assert finding.problem.startswith("the database's clock is 3")
    assert finding.problem.endswith(said)


async def test_a_slow_answer_is_no_wrong_clock(db: asyncpg.Connection) -> None:
    times = iter([datetime.now(UTC) - timedelta(minutes=5), datetime.now(UTC) + timedelta(minutes=5)])
    assert "clock" not in {finding.subject for finding in await examine(db, SCHEMA, clock=lambda: next(times))}


async def test_a_pooler_in_between_is_a_warning(dsn: Dsn) -> None:
    async with pooler(dsn, backends=1, honest=False) as address:
        connection = await asyncpg.connect(address.reveal(), statement_cache_size=0)
        finding = await of(connection, "pooler")
        connection.terminate()
    assert finding is not None
    assert finding.severity == Severity.WARNING
    assert finding.problem.startswith("a pooler is in between")
    assert "WHIPPLETREE_DIRECT_DSN" in finding.remedy


async def test_the_worst_comes_first(db: asyncpg.Connection, as_configured: Connect) -> None:
    await set_for_database(db, "synchronous_commit = off")
    await set_for_database(db, "default_transaction_isolation = serializable")
    found = await examine(await as_configured(), SCHEMA, clock=lambda: datetime(2000, 1, 1, tzinfo=UTC))
    ranks = [list(Severity).index(finding.severity) for finding in found]
    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2}


async def test_a_lost_connection_is_no_finding(db: asyncpg.Connection) -> None:
    db.terminate()
    with pytest.raises(StoreUnavailable):
        await examine(db, SCHEMA)
    with pytest.raises(InvalidSetting):
        await examine(db, "no; schema")
