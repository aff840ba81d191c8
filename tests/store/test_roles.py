"""Least privilege: what each kind of role may do, and that it may do nothing else."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

import whippletree
from tests.conftest import SCHEMA
from tests.roles import a_role, login
from whippletree.errors import InvalidSetting
from whippletree.settings import Dsn
from whippletree.store import schema
from whippletree.store.roles import RoleKind, grant, revoke

NEW = {"wh_migrations": {"SELECT"}, "wh_installation": {"SELECT"}}
STORED = {"wh_outbox": {"INSERT"}, "wh_inbox": {"INSERT"}} | NEW
STORING = {
    *("store_message", "store_outbox", "store_outbox_batch", "store_inbox", "store_inbox_batch", "receive_messages"),
    *("append_event", "append_events", "stream_id_of", "is_uuid", "awaited_version", "has_applied", "why_not_applied"),
    *("follows_feed", "number_events", "last_number", "awaited_number", "has_followed", "why_subscriber"),
    *("append_events_batch", "publish_messages", "cancel_message"),
}
WORKING = STORING | {
    *("process_work", "process_work_batch", "report_work", "leave", "require_partition_count", "forget_messages"),
    *("deduplication_retention", "park_deliveries", "set_aside", "keep_alive", "store_due_messages", "stopped_work"),
    *("register_perspective", "register_receptor", "resolve_event_types", "read_events"),
    *("register_perspective_rows", "live_generation", "read_perspective_events", "read_rows", "write_rows", "row_of"),
    *(
        "find_rows",
        "lock_for_folding",
        "take_over_streams",
        "save_checkpoints",
        "keep_from_appends",
        "unworked_perspectives",
        "followed_through",
        "take_over_follower",
        "stream_names",
    ),
    *("register_perspective_tables", "enter_generation", "live_writes", "feed_rebuilds", "sort_events", "read_sorted"),
    *("end_lost_calls", "resume_claims", "finished_messages", "end_silent_transactions", "is_heard_of"),
    *("take_session_lock", "holds_session_lock", "session_lock_key", "lock_key", "wake_channel"),
    *("number_events", "last_number", "read_feed", "register_subscriber", "hold_subscriber", "require_epoch"),
    *("advance_subscriber", "fail_subscriber", "record_subscriber", "leave_subscriber", "require_read_committed"),
    *("enter_subscriber", "stand_by", "take_subscribers", "release_subscribers", "subscriber_lock"),
    *("subscriber_locks", "subscriber_channel", "feed_channel"),
}
VIEWING = {
    *(
        "read_events",
        "stream_id_of",
        "is_uuid",
        "partition_of",
        "instance_overview",
        "queue_overview",
        "perspective_overview",
        "count_dead_letters",
    ),
    *(
        "dead_letters",
        "stopped_streams",
        "stream_contents",
        "why",
        "ailments",
        "stream_names",
        "is_parked",
        "is_leased",
    ),
    *("is_gone", "session_lock_key"),
    *("verify_streams", "verify_finished", "verify_events", "verify_perspectives", "verify_feed", "verify_subscribers"),
    *("read_feed", "last_number", "subscriber_lock", "subscriber_locks", "subscriber_overview", "number_events"),
}
FOR_THE_OWNER = {
    *("revoke_access", "drain_instance"),
    *("start_rebuild", "compare_rebuild", "swap_rebuild", "undo_swap", "abandon_rebuild", "forget_previous"),
    "drop_generations",
}

_PRIVILEGES = """
    SELECT c.relname, p.privilege
    FROM pg_class c
    CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p(privilege)
    WHERE c.relnamespace = $2::text::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
      AND (has_table_privilege($1::text, c.oid, p.privilege)
        OR p.privilege NOT IN ('DELETE', 'TRUNCATE', 'TRIGGER')
          AND has_any_column_privilege($1::text, c.oid, p.privilege))
    UNION ALL
    SELECT c.relname, p.privilege
    FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'USAGE', 'UPDATE']) p(privilege)
    WHERE c.relnamespace = $2::text::regnamespace AND c.relkind = 'S'
      AND has_sequence_privilege($1::text, c.oid, p.privilege)
"""
_FUNCTIONS = """
    SELECT DISTINCT p.proname FROM pg_proc p
    WHERE p.pronamespace = $2::text::regnamespace AND has_function_privilege($1::text, p.oid, 'EXECUTE')
"""


async def tables_of(db: asyncpg.Connection, role: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for table, privilege in await db.fetch(_PRIVILEGES, role, SCHEMA):
        found.setdefault(table, set()).add(privilege)
    return found


async def functions_of(db: asyncpg.Connection, role: str) -> set[str]:
    return {row[0] for row in await db.fetch(_FUNCTIONS, role, SCHEMA)}


@pytest.fixture
async def somebody(dsn: Dsn) -> AsyncIterator[str]:
    async with a_role(dsn) as name:
        yield name


async def test_nobody_may_do_anything_by_himself(db: asyncpg.Connection, somebody: str) -> None:
    assert await tables_of(db, somebody) == {}
    assert await functions_of(db, somebody) == set()
    for privilege in ("USAGE", "CREATE"):
        assert not await db.fetchval("SELECT has_schema_privilege($1::text, $2, $3)", somebody, SCHEMA, privilege)


@pytest.mark.parametrize(
    ("kind", "functions"),
    [(RoleKind.PRODUCER, STORING), (RoleKind.WORKER, WORKING), (RoleKind.VIEWER, VIEWING)],
)
async def test_a_role_may_do_what_its_kind_needs_and_nothing_else(
    db: asyncpg.Connection, somebody: str, kind: RoleKind, functions: set[str]
) -> None:
    await grant(db, SCHEMA, kind, somebody)
    tables = STORED
    if kind == RoleKind.VIEWER:
        names = "SELECT relname FROM pg_class WHERE relnamespace = $1::text::regnamespace AND relkind IN ('r', 'v')"
        tables = {row[0]: {"SELECT"} for row in await db.fetch(names, SCHEMA)}
    assert await tables_of(db, somebody) == tables
    assert await functions_of(db, somebody) == functions
    assert await db.fetchval("SELECT has_schema_privilege($1::text, $2, 'USAGE')", somebody, SCHEMA)
    assert not await db.fetchval("SELECT has_schema_privilege($1::text, $2, 'CREATE')", somebody, SCHEMA)


async def test_granting_again_changes_nothing_and_revoking_takes_everything(
    db: asyncpg.Connection, somebody: str
) -> None:
    for kind in [*RoleKind, *RoleKind]:
        await grant(db, SCHEMA, kind, somebody)
    assert await functions_of(db, somebody) == WORKING | VIEWING
    await revoke(db, SCHEMA, somebody)
    assert (await tables_of(db, somebody), await functions_of(db, somebody)) == ({}, set())
    assert not await db.fetchval("SELECT has_schema_privilege($1::text, $2, 'USAGE')", somebody, SCHEMA)


async def test_an_upgrade_gives_each_role_what_its_kind_needs_by_then(db: asyncpg.Connection, dsn: Dsn) -> None:
    async with a_role(dsn, RoleKind.WORKER) as worker, a_role(dsn, RoleKind.VIEWER) as viewer, a_role(dsn) as other:
        await db.execute(f"REVOKE ALL ON FUNCTION forget_messages FROM {worker}")
        await db.execute(f"REVOKE ALL ON wh_inbox FROM {viewer}")
        await db.execute("GRANT EXECUTE ON FUNCTION forget_messages, process_work_batch TO PUBLIC")
        await db.execute(f"GRANT CREATE ON SCHEMA {SCHEMA} TO PUBLIC")
        await db.execute("UPDATE wh_installation SET version = '0.0.1', digest = 'older'")
        await schema.migrate(db, SCHEMA)
        assert await functions_of(db, worker) == WORKING
        assert await functions_of(db, viewer) == VIEWING
        assert (await tables_of(db, viewer))["wh_inbox"] == {"SELECT"}
        assert await functions_of(db, other) == set()
        assert not await db.fetchval("SELECT has_schema_privilege($1::text, $2, 'CREATE')", other, SCHEMA)


async def test_a_viewer_can_read_every_table_and_view(db: asyncpg.Connection, dsn: Dsn) -> None:
    """Also subscribers of both kinds, whose state is asked of functions."""
    await db.execute("SELECT register_subscriber('one', 0, true), register_subscriber('other', 0, false)")
    await db.execute("SELECT hold_subscriber(name, gen_random_uuid()) FROM unnest(ARRAY['one', 'other']) AS name")
    async with a_role(dsn, RoleKind.VIEWER) as name:
        viewer = await asyncpg.connect(login(dsn, name).reveal(), server_settings={"search_path": SCHEMA})
        for relation in await tables_of(db, name):
            await viewer.fetch(f"SELECT * FROM {relation}")
        states = await viewer.fetch("SELECT state FROM wh_subscriptions")
        await viewer.close()
    assert [row["state"] for row in states] == ["lost", "lost"]


@pytest.mark.parametrize("role", ["nobody_at_all", "public", 'x"; DROP TABLE wh_messages; --'])
async def test_a_role_that_does_not_exist_is_refused(db: asyncpg.Connection, role: str) -> None:
    with pytest.raises(InvalidSetting, match=r"there is no role .*CREATE ROLE"):
        await grant(db, SCHEMA, RoleKind.PRODUCER, role)
    with pytest.raises(InvalidSetting, match="there is no role"):
        await revoke(db, SCHEMA, role)


async def test_a_role_with_a_strange_name_is_a_role(db: asyncpg.Connection, dsn: Dsn) -> None:
    name = f'strange "{os.getpid()}"; DROP'
    quoted = await db.fetchval("SELECT quote_ident($1)", name)
    await db.execute(f"CREATE ROLE {quoted}")
    try:
        await grant(db, SCHEMA, RoleKind.WORKER, name)
        await db.execute("UPDATE wh_installation SET digest = 'older'")
        await schema.migrate(db, SCHEMA)
        assert await functions_of(db, name) == WORKING
    finally:
        await db.execute(f"DROP OWNED BY {quoted}; DROP ROLE {quoted}")


async def test_only_the_owner_grants(dsn: Dsn) -> None:
    async with a_role(dsn, *RoleKind) as name:
        connection = await asyncpg.connect(login(dsn, name).reveal())
        for call in (
            "grant_worker(current_user)",
            "grant_functions(current_user, '{}')",
            "revoke_access(current_user)",
            "renew_grants('{}')",
            "skip_message('outbox', NULL, 1, '')",
            "change_deduplication_retention('1 second')",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f"SELECT {SCHEMA}.{call}")
        await connection.close()


async def test_the_command_line_grants_and_revokes(db: asyncpg.Connection, dsn: Dsn, somebody: str) -> None:
    async def run(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "whippletree", "roles", *words, "--dsn", dsn.reveal()]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert await run("grant", "producer", somebody) == (0, f"{somebody} is a producer in schema {SCHEMA}\n")
    assert await functions_of(db, somebody) == STORING
    assert await run("revoke", somebody) == (0, f"{somebody} has no rights in schema {SCHEMA}\n")
    assert await functions_of(db, somebody) == set()
    code, said = await run("grant", "worker", "nobody_at_all")
    assert code == 2
    assert said == "error: there is no role nobody_at_all. Create it first: CREATE ROLE nobody_at_all LOGIN.\n"
    assert (await run("grant", "dictator", somebody))[0] == 2


def test_every_function_that_python_calls_is_granted_to_somebody() -> None:
    sources = "\n".join(file.read_text() for file in Path(whippletree.__path__[0]).rglob("*.py"))
    called = set(re.findall(r'\bcall\(\s*[\w.]+,\s*"(\w+)"', sources))
    assert called
    assert not called - WORKING - VIEWING - FOR_THE_OWNER, "add them to grant_worker and to this test, or keep them"
