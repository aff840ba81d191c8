from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from tests.transports.bus import RECEIVER, Bus, NatsBus, open_bus
from whippletree.store.schema import migrate


@pytest.fixture(params=["in_process", "postgres", "nats"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def receiver_schema(db: asyncpg.Connection) -> str:
    await migrate(db, RECEIVER)
    return RECEIVER


@pytest.fixture
async def bus(
    kind: str, pool: asyncpg.Pool[asyncpg.Record], receiver_schema: str, tmp_path: Path
) -> AsyncIterator[Bus]:
    """One of the transports, with the schema of a receiving service beside the sender's."""
    async with open_bus(kind, pool, tmp_path) as bus:
        yield bus


@pytest.fixture
async def nats_bus(pool: asyncpg.Pool[asyncpg.Record], receiver_schema: str, tmp_path: Path) -> AsyncIterator[NatsBus]:
    async with open_bus("nats", pool, tmp_path) as bus:
        assert isinstance(bus, NatsBus)
        yield bus
