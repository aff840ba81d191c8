"""A text names the same stream in Python and in SQL."""

from __future__ import annotations

import asyncpg
import pytest

from whippletree.store.new_messages import stream_id_of


@pytest.mark.parametrize(
    "key",
    [
        "order-17",
        "ä 😀",
        "5eed0000-0000-4000-8000-00000000000a",
        "5EED0000-0000-4000-8000-00000000000A",
        "5eed0000-0000-4000-8000-00000000000g",
        "5eed0000-0000-4000-8000-0000000000-1",
        "-eed0000-0000-4000-8000-00000000000a",
        "5eed000000004000800000000000000a",
        "{5eed0000-0000-4000-8000-00000000000a}",
        "5eed0000-0000-4000-8000-00000000000a\n",
        "5eed0000-0000-4000-8000-0000000000\u0660\u0661",
    ],
)
async def test_a_text_names_the_same_stream_everywhere(db: asyncpg.Connection, key: str) -> None:
    assert await db.fetchval("SELECT stream_id_of($1)", key) == stream_id_of(key)
