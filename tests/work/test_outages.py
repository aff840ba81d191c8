"""The database lacks something for a while: no message is to blame for it, and none is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import asyncpg
import pytest

import whippletree as wt
from tests.claim.wire import wire
from tests.conftest import Connect
from tests.waiting import until
from tests.work.shop import Placed, Reserve, drained, new_app, running
from whippletree.complete.retry import Next, decide
from whippletree.dispatch.policy import OnPoison, Retry
from whippletree.settings import Dsn
from whippletree.store.database import is_gone

Lacks: TypeAlias = Callable[[str], Awaitable[None]]
Cut: TypeAlias = Callable[[wt.Transaction], Awaitable[None]]

# Its attempts would be used up long before the outage is over.
TWICE = wt.Retry(attempts=2, first_pause=0.001, longest_pause=0.002)
ONCE = wt.Retry(attempts=1)
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


@pytest.fixture
async def cut(db: asyncpg.Connection, connect: Connect) -> Cut:
    """Ends the connection of the first transaction that asks for it, and waits until its process knows."""
    await db.execute("CREATE TABLE public.effects (name text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    other = await connect()
    cuts = iter([True])

    async def once(tx: wt.Transaction) -> None:
        if next(cuts, False):
            await other.execute("SELECT pg_terminate_backend($1)", tx.connection.get_server_pid())
            await until(lambda: is_gone(tx.connection))

    return once


@pytest.mark.parametrize("refused", [0, 1])
async def test_a_receptor_survives_its_connection(dsn: Dsn, db: asyncpg.Connection, cut: Cut, refused: int) -> None:
    """Also when its message is tried alone, because a commit was refused."""
    app = new_app(dsn)
    attempts = 0

    @app.receptor(retry=TWICE, on_poison="skip")
    async def reserve(command: Reserve, tx: wt.Transaction) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= refused:
            await tx.execute(INSERT, command.order)
        else:
            await cut(tx)
        await tx.execute(INSERT, command.order)

    async with running(app):
        await app.publish(Reserve("order-1"))
        await drained(db)
    assert await db.fetchval("SELECT array_agg(name) FROM public.effects") == ["order-1"]
    assert (attempts, await db.fetchval("SELECT count(*) FROM wh_dead_letters")) == (2 + refused, 0)


async def test_so_does_a_perspective(dsn: Dsn, db: asyncpg.Connection, cut: Cut) -> None:
    app = new_app(dsn)

    @app.perspective(retry=ONCE, tables=["public.effects"])
    async def effects(event: Placed, tx: wt.Transaction) -> None:
        try:
            await cut(tx)
            await tx.execute(INSERT, "perspective")
        except asyncpg.InterfaceError as error:
            raise ValueError("what a user makes of it") from error

    async with running(app):
        await app.publish(Placed("order-1"))
        await drained(db)
    assert await db.fetchval("SELECT array_agg(name) FROM public.effects") == ["perspective"]


async def test_so_does_a_subscriber(dsn: Dsn, db: asyncpg.Connection, cut: Cut) -> None:
    app = new_app(dsn)

    @app.subscriber("diary", retry=ONCE)
    async def diary(event: Placed, tx: wt.Transaction) -> None:
        await cut(tx)
        await tx.execute(INSERT, "subscriber")

    async with running(app):
        await app.publish(Placed("order-1"))
        await until(lambda: db.fetchval("SELECT count(*) = 1 FROM public.effects"))
    assert await db.fetchval("SELECT checkpoint FROM wh_subscriptions") == 1


def test_an_outage_costs_no_attempt_unless_the_policy_says_otherwise() -> None:
    full, wrong = asyncpg.DiskFullError(), asyncpg.UniqueViolationError()
    assert decide(Retry(attempts=1), OnPoison.SKIP, full, 1).next is Next.POSTPONE
    assert decide(Retry(attempts=1), OnPoison.SKIP, wrong, 1).next is Next.SKIP
    assert decide(Retry(never=(asyncpg.DiskFullError,)), OnPoison.PARK, full, 1).next is Next.PARK
    # A message that asks for too much is to blame itself.
    assert decide(Retry(), OnPoison.PARK, asyncpg.exceptions.OutOfMemoryError(), 10).next is Next.PARK


async def test_an_instance_whose_connections_all_fall_silent_goes_on(dsn: Dsn, db: asyncpg.Connection) -> None:
    """As when a firewall forgets them. What a receptor was just doing is done again."""
    await db.execute("CREATE TABLE public.effects (name text)")
    silent = asyncio.Event()
    async with wire(dsn) as (line, address):
        app = new_app(address)

        @app.receptor
        async def reserve(command: Reserve, tx: wt.Transaction) -> None:
            if not silent.is_set():
                line.freeze()
                silent.set()
            await tx.execute(INSERT, f"{command.order} {command.number}")

        async with running(app):
            await app.publish_all([Reserve("order-1", n) for n in range(3)], on=db)
            await drained(db)
    assert await db.fetchval("SELECT array_agg(name) FROM public.effects") == [f"order-1 {n}" for n in range(3)]
    assert await db.fetchval("SELECT count(*) FROM wh_dead_letters") == 0
