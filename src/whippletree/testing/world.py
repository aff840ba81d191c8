"""What a receptor has left behind: rows, messages, effects outside, or an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from whippletree.store.statements import call

_TABLES = r"""
    SELECT format('%I.%I', schemaname, relname) FROM pg_stat_user_tables
    WHERE NOT (schemaname = $1 AND relname LIKE 'wh\_%') ORDER BY 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What can be seen after a message was handled."""

    rows: Mapping[str, int]
    messages: Sequence[tuple[str, str]]
    """Type and payload of what was returned or published, in any order."""
    outside: Sequence[object]
    error: str | None

    def differences(self, usual: World, *, steady: bool) -> Iterator[str]:
        """How this differs from an undisturbed run, in words. Contents are compared where they are always the same."""
        if self.error != usual.error:
            yield f"it failed: {self.error}" if self.error else f"it did not fail, as it usually does: {usual.error}"
        for table in sorted({*self.rows, *usual.rows}):
            if (count := self.rows.get(table, 0)) != (expected := usual.rows.get(table, 0)):
                yield f"{table} has {count} rows instead of {expected}; write to it on the Transaction only"
        types, expected_types = (Counter(kind for kind, _ in world.messages) for world in (self, usual))
        if types != expected_types:
            yield f"it published {_counted(types)} instead of {_counted(expected_types)}; return messages instead"
        elif steady and Counter(self.messages) != Counter(usual.messages):
            yield f"it published other contents: {self.messages} instead of {usual.messages}"
        if len(self.outside) != len(usual.outside):
            yield (
                f"it acted outside {len(self.outside)} times instead of {len(usual.outside)}; say effects='external' "
                "and hand on the IdempotencyKey, or return a message to somebody who does"
            )
        elif steady and list(self.outside) != list(usual.outside):
            yield f"it acted otherwise outside: {self.outside} instead of {usual.outside}"


async def look(connection: asyncpg.Connection, schema: str, message_id: UUID, outside: Sequence[object]) -> World:
    """What there is to be seen of a message that was handled."""
    tables = [row[0] for row in await connection.fetch(_TABLES, schema)]
    rows = {table: await connection.fetchval(f"SELECT count(*) FROM {table}") for table in tables}
    published = await connection.fetch(
        f"""
        SELECT event_type, payload::text FROM {schema}.wh_event_store
        UNION ALL SELECT message_type, payload::text FROM {schema}.wh_messages WHERE message_id <> $1
        UNION ALL SELECT message ->> 'message_type', message ->> 'payload' FROM {schema}.wh_scheduled_messages
        ORDER BY 1, 2
        """,
        message_id,
    )
    stopped = await connection.fetch(call(schema, "stopped_streams", 3), None, True, 100)
    letters = await connection.fetch(call(schema, "dead_letters", 1), 100)
    errors = [row["error"] for row in [*stopped, *letters] if row["message_id"] == message_id]
    return World(
        rows=rows,
        messages=[tuple(row) for row in published],
        outside=outside,
        error=errors[0] if errors else None,
    )


def _counted(types: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(types.items())) or "nothing"
