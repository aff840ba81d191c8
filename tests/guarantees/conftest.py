"""Few partitions, so that the stories are told fast; what holds for 64 holds for 10,000."""

from __future__ import annotations

import asyncpg
import pytest

from tests.guarantees.ownership import PARTITIONS


@pytest.fixture(autouse=True)
async def few_partitions(db: asyncpg.Connection) -> None:
    await db.execute(f"SELECT change_partition_count({PARTITIONS})")
