"""Fixtures of the proofs."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import asyncpg
import pytest

from tests.conftest import Connect
from tests.proof.interleaving import Script, explore
from tests.proof.world import PARTITIONS, State, World


class Interleave(Protocol):
    def __call__(self, state: State, *scripts: Script) -> Awaitable[int]:
        """Run every schedule of the scripts from the state; say how many there were."""


@pytest.fixture
async def interleave(connect: Connect) -> Interleave:
    db = await connect()
    await db.execute("SELECT change_partition_count($1)", PARTITIONS)
    sessions: list[asyncpg.Connection] = [await connect() for _ in range(3)]

    async def run(state: State, *scripts: Script) -> int:
        return await explore(World(db, state), sessions, scripts, f"from {state.__name__}:")

    return run
