"""What a service relies on, looked at before it starts: each thing that is wrong, and how to mend it.

Looking changes nothing. Do it on a connection made like those that will do the work, because settings can differ by
database, by role and by the way to the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import asyncpg

from whippletree.settings import valid_schema
from whippletree.store.database import translated
from whippletree.store.pooler import sharing
from whippletree.store.schema import difference_of


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Nothing works like this; do not start."""
    DANGER = "danger"
    """It works, but a promise does not hold: what was committed can be lost."""
    WARNING = "warning"
    """It works, less well than it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be."""

    severity: Severity
    subject: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}. {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examined:
    """What every check looks at."""

    connection: asyncpg.Connection
    schema: str
    clock: Callable[[], datetime]


CLOCKS_APART = timedelta(seconds=5)
"""What two clocks may differ by before it is mentioned."""

_HARMFUL = {
    ("fsync", "off"): "a crash of the machine can destroy the whole database",
    ("full_page_writes", "off"): "a crash of the machine can leave half-written pages, and with them broken messages",
    ("synchronous_commit", "off"): "a crash of the server loses what was committed in the last moments",
}
_SETTINGS = """
    SELECT name, setting, source FROM pg_settings
    WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'default_transaction_isolation')
"""


async def examine(
    connection: asyncpg.Connection, schema: str, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Sequence[Finding]:
    """Everything that is wrong, the worst first; empty when all is well. The connection is in no transaction."""
    examined = _Examined(connection=connection, schema=valid_schema(schema), clock=clock)
    found: list[Finding] = []
    with translated():
        for check in _CHECKS:
            found += await check(examined)
    return sorted(found, key=lambda finding: list(Severity).index(finding.severity))


async def _writable(examined: _Examined) -> list[Finding]:
    if await examined.connection.fetchval("SELECT pg_is_in_recovery()"):
        remedy = "Connect to the primary: name all hosts in the DSN, with target_session_attrs=read-write."
        return [_error("server", "this server is a standby, on which nothing can be stored", remedy)]
    if await examined.connection.fetchval("SHOW transaction_read_only") == "on":
        remedy = "Set default_transaction_read_only to off for this role and this database."
        return [_error("default_transaction_read_only", "transactions can only read, so nothing can be stored", remedy)]
    return []


async def _schema(examined: _Examined) -> list[Finding]:
    connection, schema = examined.connection, examined.schema
    may_use = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1"
    if await connection.fetchval(may_use, schema) is False:
        role = await connection.fetchval("SELECT current_user::text")
        remedy = f"As its owner, run `whippletree roles grant worker {role} --schema {schema}`."
        return [_error("rights", f"role {role} may not use schema {schema!r}", remedy)]
    if difference := await difference_of(connection, schema):
        problem, remedy = difference
        return [_error("schema", problem, f"{remedy[0].upper()}{remedy[1:]}.")]
    return []


async def _settings(examined: _Examined) -> list[Finding]:
    found = []
    for name, setting, source in await examined.connection.fetch(_SETTINGS):
        if harm := _HARMFUL.get((name, setting)):
            remedy = f"Turn it on {_where(source)}."
            found.append(
                Finding(severity=Severity.DANGER, subject=name, problem=f"it is off, so {harm}", remedy=remedy)
            )
        elif name == "default_transaction_isolation" and setting != "read committed":
            problem = f"it is {setting}, but work is processed in READ COMMITTED only"
            found.append(_error(name, problem, f"Set it to read committed {_where(source)}."))
    return found


async def _unlogged_tables(examined: _Examined) -> list[Finding]:
    tables = await examined.connection.fetchval(
        "SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = $1 AND relkind = 'r' AND relname LIKE 'wh\\_%' AND relpersistence <> 'p'",
        examined.schema,
    )
    if tables is None:
        return []
    problem = f"{tables} is unlogged, so a crash of the server empties it"
    remedy = "Run ALTER TABLE … SET LOGGED for each."
    return [Finding(severity=Severity.DANGER, subject="tables", problem=problem, remedy=remedy)]


async def _clock(examined: _Examined) -> list[Finding]:
    before = examined.clock()
    theirs: datetime = await examined.connection.fetchval("SELECT clock_timestamp()")
    after = examined.clock()
    # The answer was given some time between the two, so a slow line is no wrong clock.
    apart = theirs - after if theirs > after else before - theirs
    if apart <= CLOCKS_APART:
        return []
    problem = f"the database's clock is {apart.total_seconds():.0f} s {'ahead of' if theirs > after else 'behind'} ours"
    remedy = (
        "Leases and retries use the database's clock only and are safe; times that your program sets or logs are not. "
        "Synchronise both machines, for example by NTP."
    )
    return [Finding(severity=Severity.WARNING, subject="clock", problem=problem, remedy=remedy)]


async def _pooler(examined: _Examined) -> list[Finding]:
    sign = await sharing(examined.connection)
    if sign is None:
        return []
    remedy = (
        "Give the address of PostgreSQL itself as direct_dsn (WHIPPLETREE_DIRECT_DSN). Otherwise instances poll "
        "instead of being woken, and the work of one that died is taken over only after the stale threshold."
    )
    return [Finding(severity=Severity.WARNING, subject="pooler", problem=sign, remedy=remedy)]


_CHECKS: tuple[Callable[[_Examined], Awaitable[list[Finding]]], ...] = (
    _writable,
    _schema,
    _settings,
    _unlogged_tables,
    _clock,
    _pooler,
)


def _error(subject: str, problem: str, remedy: str) -> Finding:
    return Finding(severity=Severity.ERROR, subject=subject, problem=problem, remedy=remedy)


def _where(source: str) -> str:
    """Where a setting is to be changed, from where PostgreSQL says that it comes."""
    return {
        "database": "for this database (ALTER DATABASE … SET)",
        "user": "for this role (ALTER ROLE … SET)",
        "database user": "for this role in this database (ALTER ROLE … IN DATABASE … SET)",
        "client": "in the options of the DSN, or in PGOPTIONS",
        "session": "on this connection, where a SET changed it",
        "command line": "in the options with which the server is started",
        "environment variable": "in the server's environment",
    }.get(source, "in postgresql.conf, or by ALTER SYSTEM SET, and reload the server")
