"""Small functions that every message passes are put in the place of their call, which would cost more than they do."""

from __future__ import annotations

import asyncpg
import pytest

_ARGUMENTS = """
    SELECT array(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) t) FROM pg_proc p
    WHERE p.pronamespace = 'whippletree'::regnamespace AND p.proname = $1
"""


@pytest.mark.parametrize(
    "function",
    [
        *("body_hash", "envelope_fault", "is_ahead", "is_leased", "is_open_to", "is_parked", "is_ready", "is_uuid"),
        *("message_fault", "next_scan", "partition_of", "run_length", "scan_since", "stream_hash", "stream_id_of"),
        *("uuid_or_null", "works_queue"),
    ],
)
async def test_a_small_function_is_put_in_the_place_of_its_call(db: asyncpg.Connection, function: str) -> None:
    types = await db.fetchval(_ARGUMENTS, function)
    columns = ", ".join(f"NULL::{name} AS c{number}" for number, name in enumerate(types))
    call = f"{function}({', '.join(f't.c{number}' for number in range(len(types)))})"
    rows = await db.fetch(
        f"EXPLAIN (VERBOSE) SELECT {call} FROM (SELECT {columns} FROM generate_series(1, 2) OFFSET 0) t"
    )
    assert not [row[0] for row in rows if f"{function}(" in row[0]]
