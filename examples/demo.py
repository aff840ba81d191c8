"""Two workers pack orders, one of them is killed in the middle, and everything is counted afterwards.

Runs on the embedded PostgreSQL, or on that of WHIPPLETREE_DSN, in a schema of its own that is gone at the end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

import asyncpg

from examples.orders import OrderPlaced, account, app
from whippletree.cli import console
from whippletree.errors import Error, StoreUnavailable
from whippletree.settings import Dsn
from whippletree.store import database, schema

ROOT = Path(__file__).parents[1]
CUSTOMERS = ("ada", "ben", "cleo", "dora", "emil", "fay", "gus", "hana", "ivo", "jule", "kai", "lena")
ORDERS = 40
ANNA, BERT = "anna", "bert"
PARCELS = "CREATE TABLE parcels (id serial PRIMARY KEY, customer text, number integer, packed_by text)"
HELD = """
SELECT w.stream_key, s.head_version FROM wh_active_streams s
JOIN wh_streams w USING (stream_id) JOIN wh_service_instances i USING (instance_id)
WHERE s.queue = 'receptor/pack' AND i.process_id = $1 ORDER BY w.stream_key
"""
TAKEN_OVER = "SELECT count(DISTINCT customer) FROM parcels WHERE packed_by = $1 AND id > $2 AND customer = ANY ($3)"
DONE = "SELECT NOT EXISTS (SELECT FROM wh_active_streams)"
IN_ORDER = """
SELECT count(*) FROM (SELECT array_agg(number ORDER BY id) AS numbers FROM parcels GROUP BY customer) p
WHERE numbers = (SELECT array_agg(n) FROM generate_series(1, $1::integer) n)
"""
EFFECTS = "SELECT count(*) AS parcels, count(DISTINCT (customer, number)) AS orders FROM parcels"
PACKED_BY = "SELECT count(*) FROM parcels WHERE packed_by = $1"


async def main() -> bool:
    started = perf_counter()
    async with database.serving(app.settings) as dsn, own_schema(dsn) as db:
        where = str(dsn) if app.settings.dsn else "embedded"
        version = (await db.fetchval("SHOW server_version")).split()[0]
        print(f"PostgreSQL {version} ({where}), ready in {perf_counter() - started:.1f} s")
        async with worker(dsn, ANNA) as anna, worker(dsn, BERT) as bert:
            await until(db, "SELECT count(*) = 2 FROM wh_service_instances", while_runs=(anna, bert))
            print(f"two workers run: {ANNA}, process {anna.pid}, and {BERT}, process {bert.pid}")
            published = await place_orders()
            await show_progress(db, until_packed=len(CUSTOMERS) * ORDERS // 3)
            await kill_in_the_middle(db, anna)
            await show_progress(db, until_packed=len(CUSTOMERS) * ORDERS)
            await until(db, DONE, while_runs=(bert,))
        return await count_everything(db, dsn, published)


async def place_orders() -> int:
    """Every round of orders is one transaction. Returns what all of them cost."""
    rounds = [
        [OrderPlaced(customer, number, 10 * number + len(customer)) for customer in CUSTOMERS]
        for number in range(1, ORDERS + 1)
    ]
    async with app.connected():
        for orders in rounds:
            await app.publish_all(orders)
    total = sum(order.total for orders in rounds for order in orders)
    print(f"published: {ORDERS} orders of each of {len(CUSTOMERS)} customers, {total:,} in all\n")
    return total


async def show_progress(db: asyncpg.Connection, *, until_packed: int) -> None:
    while True:
        anna, bert = [await db.fetchval(PACKED_BY, name) for name in (ANNA, BERT)]
        print(f"  packed {anna + bert:4}   {ANNA} {anna:4} {bar(anna):24} {BERT} {bert:4} {bar(bert)}")
        if anna + bert >= until_packed:
            return
        await asyncio.sleep(0.4)


async def kill_in_the_middle(db: asyncpg.Connection, anna: asyncio.subprocess.Process) -> None:
    held = [row["stream_key"] for row in await db.fetch(HELD, anna.pid)]
    anna.kill()
    killed, last = perf_counter(), await db.fetchval("SELECT max(id) FROM parcels")
    print(f"\n  kill -9 {anna.pid}: {ANNA} dies, with the orders of {', '.join(held) or 'nobody'} in hand")
    while await db.fetchval(TAKEN_OVER, BERT, last, held) < len(held):
        await asyncio.sleep(0.02)
    print(f"  {BERT} has packed for each of them {perf_counter() - killed:.1f} s later\n")


async def count_everything(db: asyncpg.Connection, dsn: Dsn, published: int) -> bool:
    orders = len(CUSTOMERS) * ORDERS
    in_order = await db.fetchval(IN_ORDER, ORDERS)
    effects = await db.fetchrow(EFFECTS)
    assert effects is not None
    async with app.connected():
        accounts = [await app.rows(account).get(customer) for customer in CUSTOMERS]
    total = sum(row.total for row in accounts if row)
    packed = sum(row.packed for row in accounts if row)
    verify = await start(dsn, "verify", stdout=asyncio.subprocess.PIPE)
    words = (await verify.communicate())[0].decode().strip()
    print()
    return all(
        [
            say(in_order == len(CUSTOMERS), f"{in_order} of {len(CUSTOMERS)} customers: in order, without a gap"),
            say(effects == (orders, orders), f"{effects['parcels']} parcels for {effects['orders']} orders: each once"),
            say((packed, total) == (orders, published), f"accounts: {packed} packed, {total:,} in all, as published"),
            say(verify.returncode == 0, f"whippletree verify: {words}"),
        ]
    )


@asynccontextmanager
async def own_schema(dsn: Dsn) -> AsyncIterator[asyncpg.Connection]:
    """Our schema, new; dropped at the end. What a killed demonstration left behind goes first."""
    name = app.settings.schema
    db = await database.open_connection(dsn)
    try:
        if not await db.fetchval("SELECT pg_try_advisory_lock(hashtext($1))", name):
            raise StoreUnavailable("the demonstration is already running on this server; wait for its end")
        await db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        await schema.migrate(db, name)
        await db.execute(f"SET search_path TO {name}")
        await db.execute(PARCELS)
        try:
            yield db
        finally:
            await db.execute(f"DROP SCHEMA {name} CASCADE")
    finally:
        await db.close()


@asynccontextmanager
async def worker(dsn: Dsn, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`whippletree run` in a process of its own, asked to end when it is no longer needed."""
    process = await start(dsn, "run", "examples.orders:app", "--log-level", "error", packer=name)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def start(dsn: Dsn, *command: str, packer: str = "", stdout: int | None = None) -> asyncio.subprocess.Process:
    environment = {**os.environ, "WHIPPLETREE_DSN": dsn.reveal(), "WHIPPLETREE_SCHEMA": app.settings.schema}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "whippletree", *command),
        cwd=ROOT,
        env={**environment, "PACKER": packer},
        stdout=stdout,
    )


async def until(db: asyncpg.Connection, condition: str, *, while_runs: Sequence[asyncio.subprocess.Process]) -> None:
    while not await db.fetchval(condition):
        if any(process.returncode is not None for process in while_runs):
            raise StoreUnavailable("a worker has ended; see above")
        await asyncio.sleep(0.02)


def bar(count: int) -> str:
    return "█" * (count // 20)


def say(true: bool, words: str) -> bool:
    print(f"  {'✓' if true else '✗'} {words}")
    return true


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(main()) else 1)
    except Error as error:
        console.show_error(error, sys.argv)
        sys.exit(1)
