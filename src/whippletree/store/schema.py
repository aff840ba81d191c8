"""Installs and upgrades the schema: tables by migration, functions and views by replacement.

`sql/tables` is the present and what a fresh installation runs; `sql/migrations` is how an older one gets there. A test
holds the two equal. Everything happens in one transaction under an advisory lock, so that any number of processes may
migrate at once, and a crash leaves what was there before.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from importlib import resources
from importlib.metadata import version as distribution_version

import asyncpg

from whippletree.errors import SchemaMismatch, StoreError, StoreUnavailable
from whippletree.settings import valid_schema

OLDEST_SERVER = 14

TABLES = (
    "wh_migrations",
    "wh_work",
    "wh_report",
    "wh_settings",
    "wh_streams",
    "wh_messages",
    "wh_active_streams",
    "wh_service_instances",
    "wh_evicted_instances",
    "wh_partitions",
    "wh_message_deduplication",
    "wh_finished_messages",
    "wh_dead_letters",
    "wh_scheduled_messages",
    "wh_event_store",
    "wh_event_sequence",
    "wh_subscribers",
    "wh_subscriber_actions",
    "wh_event_types",
    "wh_perspective_mappings",
    "wh_perspectives",
    "wh_perspective_generations",
    "wh_receptor_mappings",
    "wh_checkpoints",
    "wh_receptor_log",
)
"""Every table's file, in the order of creation."""

_LOCK_TIMEOUT = "200ms"
_TRIES = 50


async def migrate(connection: asyncpg.Connection, schema: str, *, dry_run: bool = False) -> tuple[str, ...]:
    """Install or upgrade the schema; say what was done. Nothing was done when it was up to date.

    Atomic and idempotent. Never keeps workers waiting longer than a moment: a lock that is not free is left and tried
    again. Raises `SchemaMismatch` when the schema is newer than this package.
    """
    valid_schema(schema)
    if difference := _server_difference(connection):
        raise StoreError(": ".join(difference))
    for attempt in range(_TRIES):
        transaction = connection.transaction(isolation="read_committed")
        await transaction.start()
        try:
            done = await _migrate_once(connection, schema)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            await transaction.rollback()
            await asyncio.sleep(random.uniform(0, 0.1 * min(attempt + 1, 10)))  # noqa: S311 - jitter
        except BaseException:
            await transaction.rollback()
            raise
        else:
            await (transaction.rollback() if dry_run else transaction.commit())
            return done
    raise StoreUnavailable(
        f"schema {schema!r} was not migrated: its tables stayed locked. "
        "Look for long transactions with `SELECT * FROM pg_stat_activity`, end them, and try again."
    )


def script(schema: str, since: str | None = None) -> str:
    """The SQL of a fresh installation, or of the upgrade since a migration, for people who run it their own way."""
    valid_schema(schema)
    names = migration_names()
    if since is None:
        steps = [read("tables", table) for table in TABLES]
        pending = names
    else:
        if since not in names:
            raise StoreError(f"no migration is called {since!r}; there are: {', '.join(names)}")
        pending = names[names.index(since) + 1 :]
        steps = [read("migrations", name) for name in pending]
    steps.append(_record_migrations(pending))
    steps.append(_replaceable())
    steps.append(_record_installation())
    head = f'BEGIN;\nCREATE SCHEMA IF NOT EXISTS "{schema}";\nSET LOCAL search_path = "{schema}", pg_temp;\n'
    return head + "\n".join(steps) + "\nCOMMIT;\n"


def migration_names() -> list[str]:
    """Every migration, oldest first."""
    return sorted(_names("migrations"))


def package_version() -> str:
    return distribution_version("whippletree")


async def require_schema(connection: asyncpg.Connection, schema: str) -> None:
    """Raise `SchemaMismatch` unless the schema is exactly as new as this package."""
    if difference := await difference_of(connection, schema):
        problem, remedy = difference
        raise SchemaMismatch(f"{problem}: {remedy}")


async def difference_of(connection: asyncpg.Connection, schema: str) -> tuple[str, str] | None:
    """Why the schema does not fit this package, and what to do about it; None when it is exactly as new."""
    valid_schema(schema)
    if difference := _server_difference(connection):
        return difference
    applied = await _applied(connection, schema)
    if unknown := applied.difference(migration_names()):
        return _newer(schema, unknown)
    if applied.issuperset(migration_names()) and await _installed_digest(connection, schema) == _digest():
        return None
    state = "is older than this version" if applied else "is not installed"
    return f"schema {schema!r} {state}", f"run `whippletree migrate --schema {schema}`"


async def _migrate_once(connection: asyncpg.Connection, schema: str) -> tuple[str, ...]:
    key = int.from_bytes(hashlib.sha256(f"whippletree migrate {schema}".encode()).digest()[:8], "big", signed=True)
    await connection.execute("SELECT pg_advisory_xact_lock($1)", key)
    await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
    done: list[str] = []
    if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema):
        await connection.execute(f'CREATE SCHEMA "{schema}"')
        done.append(f"created schema {schema}")
    await connection.execute(f'SET LOCAL search_path = "{schema}", pg_temp')

    applied = await _applied(connection, schema)
    if unknown := applied.difference(migration_names()):
        raise SchemaMismatch(": ".join(_newer(schema, unknown)))
    if not applied:
        for table in TABLES:
            await connection.execute(read("tables", table))
        await connection.execute(_record_migrations(migration_names()))
        done.append(f"created {len(TABLES)} tables")
    for name in [name for name in migration_names() if applied and name not in applied]:
        await connection.execute(read("migrations", name))
        await connection.execute(_record_migrations([name]))
        done.append(f"applied migration {name}")

    installed = await connection.fetchrow("SELECT version, digest FROM wh_installation")
    if installed is not None and _parts(installed["version"]) > _parts(package_version()):
        raise SchemaMismatch(
            f"schema {schema!r} was installed by version {installed['version']}, this is {package_version()}: "
            "upgrade the package"
        )
    if installed is None or installed["digest"] != _digest():
        await connection.execute(_replaceable())
        await connection.execute(_record_installation())
        done.append(f"installed functions and views of version {package_version()}")
    return tuple(done)


async def _applied(connection: asyncpg.Connection, schema: str) -> set[str]:
    if await connection.fetchval("SELECT to_regclass($1)", f'"{schema}".wh_migrations') is None:
        return set()
    rows = await connection.fetch(f'SELECT migration FROM "{schema}".wh_migrations')
    return {row["migration"] for row in rows}


async def _installed_digest(connection: asyncpg.Connection, schema: str) -> str | None:
    if await connection.fetchval("SELECT to_regclass($1)", f'"{schema}".wh_installation') is None:
        return None
    digest: str | None = await connection.fetchval(f'SELECT digest FROM "{schema}".wh_installation')
    return digest


def _newer(schema: str, unknown: set[str]) -> tuple[str, str]:
    names = ", ".join(sorted(unknown))
    problem = f"schema {schema!r} has migrations that this version ({package_version()}) does not know, {names}"
    return problem, "upgrade the package"


def _server_difference(connection: asyncpg.Connection) -> tuple[str, str] | None:
    server, encoding = connection.get_server_version(), connection.get_settings().server_encoding
    if server.major < OLDEST_SERVER:
        problem = f"PostgreSQL {server.major} is too old, version {OLDEST_SERVER} or later is needed"
        return problem, "upgrade the server, or name another one with WHIPPLETREE_DSN"
    if encoding != "UTF8":
        # A key is hashed as the database encodes it: a program and a plain INSERT would name two streams by it.
        return f"the database's encoding is {encoding}, UTF8 is needed", "create a database with ENCODING 'UTF8'"
    return None


def _replaceable() -> str:
    """Functions and views. Bodies are checked when they run, so the order of the files does not matter."""
    parts = ["SET LOCAL check_function_bodies = off;"]
    for folder in ("functions", "views"):
        parts += [read(folder, name) for name in sorted(_names(folder))]
    # Last, and in the same transaction: a new function is everybody's until then.
    parts.append(f"SELECT renew_grants('{{{', '.join(sorted(_names('functions')))}}}');")
    return "\n".join(parts)


def _record_migrations(names: list[str]) -> str:
    rows = ", ".join(f"('{name}')" for name in names)
    return f"INSERT INTO wh_migrations (migration) VALUES {rows};" if names else ""


def _record_installation() -> str:
    return (
        f"INSERT INTO wh_installation (version, digest) VALUES ('{package_version()}', '{_digest()}')\n"
        "ON CONFLICT (only_row) DO UPDATE SET version = EXCLUDED.version, digest = EXCLUDED.digest;"
    )


def _digest() -> str:
    return hashlib.sha256(_replaceable().encode()).hexdigest()


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _names(folder: str) -> list[str]:
    files = resources.files("whippletree").joinpath("sql", folder).iterdir()
    return [file.name.removesuffix(".sql") for file in files if file.name.endswith(".sql")]


def read(folder: str, name: str) -> str:
    """The text of one SQL file."""
    return resources.files("whippletree").joinpath("sql", folder, f"{name}.sql").read_text(encoding="utf-8")
