"""Which server a connection goes to."""

from __future__ import annotations

import asyncio

import pytest

from tests.claim.wire import pooler
from whippletree.errors import StoreUnavailable
from whippletree.settings import Dsn, Settings
from whippletree.store.database import connect, open_pool

NOBODY = Dsn("postgresql://whippletree:secret@127.0.0.1:1/nothing")


async def test_the_direct_address_is_used_where_there_is_one(dsn: Dsn) -> None:
    async with connect(Settings(dsn=NOBODY, direct_dsn=dsn)) as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnavailable, match="cannot connect to postgresql://whippletree:") as refusal:
        async with connect(Settings(dsn=NOBODY)):
            pass
    assert "secret" not in str(refusal.value)


async def test_behind_a_pooler_nothing_is_kept_prepared(dsn: Dsn) -> None:
    async def prepared(address: Dsn) -> int:
        async with asyncio.timeout(30), open_pool(address, size=1) as pool:
            await pool.fetchval("SELECT $1::integer", 1)
            return int(await pool.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''"))

    assert await prepared(dsn) > 0
    async with pooler(dsn, backends=1, honest=False) as address:
        assert await prepared(address) == 0
