"""Instances that crash, sleep, lose answers and disagree about the time keep every stream in order and lose nothing."""

from __future__ import annotations

import os

import asyncpg
import pytest

from tests.proof.simulation import simulate
from whippletree.settings import Dsn

_FIRST = int(os.environ.get("WHIPPLETREE_SEED", "0"))
"""The first seed. Every run of the tests takes the same ones, unless it is told otherwise."""
_SCHEDULES = 125
_TESTS = 16
_FOUND = (704_835,)
"""Seeds that found a fault once."""


@pytest.mark.parametrize("part", range(_TESTS))
async def test_every_schedule_keeps_order_and_drains(dsn: Dsn, part: int) -> None:
    first = _FIRST + part * _SCHEDULES
    assert await simulate(dsn, range(first, first + _SCHEDULES)) > 20 * _SCHEDULES


async def test_a_schedule_that_found_a_fault_finds_none(dsn: Dsn) -> None:
    await simulate(dsn, _FOUND)


async def test_a_seed_makes_the_same_schedule_wherever_it_runs(dsn: Dsn, server: str) -> None:
    seeds = range(_FIRST, _FIRST + 10)
    forwards: list[str] = []
    await simulate(dsn, seeds, tell=forwards.append)
    backwards: list[str] = []
    stranger = await asyncpg.connect(server)
    # Somebody who writes in another database: until he ends, the server clears away less, and rows lie elsewhere.
    async with stranger.transaction():
        await stranger.execute("SELECT pg_current_xact_id()")
        await simulate(dsn, reversed(seeds), tell=backwards.append)
    await stranger.close()
    assert forwards == backwards[::-1]
