"""The database lacks something for a while: no message is to blame for it, and none is given up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import asyncpg
import pytest

import whippletree as wt
from tests.waiting import until
from tests.work.shop import Placed, Reserve, drained, new_app, running
from whippletree.complete.retry import Next, decide
from whippletree.dispatch.policy import OnPoison, Retry
from whippletree.settings import Dsn

Lacks: TypeAlias = Callable[[str], Awaitable[None]]

# Its attempts would be used up long before the outage is over.
TWICE = wt.Retry(attempts=2, first_pause=0.001, longest_pause=0.002)
OUTAGES = ["53100", "53300", "25006", "57P03", "58030", "08006"]
INSERT = "INSERT INTO public.effects VALUES ($1)"


@pytest.fixture
async def lacks(db: asyncpg.Connection) -> Lacks:
    """A table that the server cannot write ten times in a row, for want of something; then it can."""
    await db.execute("CREATE TABLE public.effects (name text); CREATE TABLE public.lack (state text)")
    await db.execute("CREATE SEQUENCE public.refusals")

    async def begin(state: str) -> None:
        await db.execute("INSERT INTO public.lack VALUES ($1)", state)
        await db.execute(_TRIGGER)

    return begin


_TRIGGER = """
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- What is drawn from a sequence is not undone.
  IF nextval('public.refusals') <= 10 THEN
    RAISE EXCEPTION 'not now' USING ERRCODE = (SELECT state FROM public.lack);
  END IF;
  RETURN NEW;
END;
$$;
CREATE TRIGGER refuse BEFORE INSERT ON public.effects FOR EACH ROW EXECUTE FUNCTION public.refuse();
"""


async def _all_is_well(db: asyncpg.Connection) -> None:
    """Everything was done once, and nothing given up."""
    assert await db.fetchval("SELECT last_value FROM public.refusals") > 10
    assert await db.fetchval("SELECT count(*) FROM wh_dead_letters") == 0
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams") == 0


@pytest.mark.parametrize("state", OUTAGES)
async def test_a_receptor_is_not_to_blame(dsn: Dsn, db: asyncpg.Connection, lacks: Lacks, state: str) -> None:
    app = new_app(dsn)
    await lacks(state)

    @app.receptor(retry=TWICE, on_poison="skip")
    async def reserve(command: Reserve, tx: wt.Transaction) -> None:
        await tx.execute(INSERT, f"{command.order} {command.number}")

    async with running(app):
        await app.publish_all([Reserve("order-1", n) for n in range(3)])
        await drained(db)
    assert await db.fetchval("SELECT array_agg(name) FROM public.effects") == [f"order-1 {n}" for n in range(3)]
    await _all_is_well(db)


async def test_neither_is_a_receptor_that_acts_outside(dsn: Dsn, db: asyncpg.Connection, lacks: Lacks) -> None:
    app = new_app(dsn)
    await lacks("53100")

    @app.receptor(retry=TWICE, on_poison="skip", effects="external")
    async def reserve(command: Reserve) -> None:
        connection = await asyncpg.connect(dsn.reveal())
        try:
            await connection.execute(INSERT, command.order)
        finally:
            await connection.close()

    async with running(app):
        await app.publish(Reserve("order-1"))
        await drained(db)
    assert await db.fetchval("SELECT array_agg(name) FROM public.effects") == ["order-1"]
    await _all_is_well(db)


async def test_nor_a_perspective_or_a_subscriber(dsn: Dsn, db: asyncpg.Connection, lacks: Lacks) -> None:
    app = new_app(dsn)
    await lacks("53100")

    @app.perspective(retry=TWICE, tables=["public.effects"])
    async def effects(event: Placed, tx: wt.Transaction) -> None:
        await tx.execute(INSERT, "perspective")

    @app.subscriber("diary", retry=TWICE)
    async def diary(event: Placed, tx: wt.Transaction) -> None:
        await tx.execute(INSERT, "subscriber")

    async with running(app):
        await app.publish(Placed("order-1"))
        await until(lambda: db.fetchval("SELECT count(*) = 2 FROM public.effects"))
        await drained(db)
    assert await db.fetchval("SELECT array_agg(name ORDER BY name) FROM public.effects") == [
        "perspective",
        "subscriber",
    ]
    await _all_is_well(db)


def test_an_outage_costs_no_attempt_unless_the_policy_says_otherwise() -> None:
    full, wrong = asyncpg.DiskFullError(), asyncpg.UniqueViolationError()
    assert decide(Retry(attempts=1), OnPoison.SKIP, full, 1).next is Next.POSTPONE
    assert decide(Retry(attempts=1), OnPoison.SKIP, wrong, 1).next is Next.SKIP
    assert decide(Retry(never=(asyncpg.DiskFullError,)), OnPoison.PARK, full, 1).next is Next.PARK
    # A message that asks for too much is to blame itself.
    assert decide(Retry(), OnPoison.PARK, asyncpg.exceptions.OutOfMemoryError(), 10).next is Next.PARK
