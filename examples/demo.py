"""Two workers pack orders, one of them is killed in the middle, and everything is counted afterwards.

Runs on the embedded PostgreSQL, or on that of WHIPPLETREE_DSN, in a schema of its own that is gone at the end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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
PAUSE = 0.4
PATIENCE = 300
PARCELS = "CREATE TABLE parcels (id serial PRIMARY KEY, customer text, number integer, packed_by text)"
PLACED = "SELECT count(*) FROM wh_event_store WHERE event_type = 'OrderPlaced'"
PACKED_BY_ANNA = "SELECT count(*) FROM parcels WHERE packed_by = 'anna'"
PACKED_BY_BERT = "SELECT count(*) FROM parcels WHERE packed_by = 'bert'"
HELD = """
SELECT w.stream_key FROM wh_active_streams s
JOIN wh_streams w USING (stream_id) JOIN wh_service_instances i USING (instance_id)
WHERE s.queue = 'receptor/pack' AND i.process_id = $1 ORDER BY w.stream_key
"""
# In its first 10 seconds a server takes nobody for dead who may only be reconnecting after its restart.
READY_FOR_A_DEATH = f"""
SELECT clock_timestamp() > pg_postmaster_start_time() + interval '10 seconds'
  AND (SELECT count(*) FROM parcels) >= 150 AND EXISTS ({HELD})
"""
TAKEN_OVER = """
SELECT count(DISTINCT customer) = cardinality($2::text[]) FROM parcels
WHERE packed_by = 'bert' AND id > $1 AND customer = ANY ($2)
"""
PACKED = "SELECT count(*) >= $1 FROM parcels"
DONE = "SELECT NOT EXISTS (SELECT FROM wh_active_streams)"
IN_ORDER = """
SELECT count(*) FROM (SELECT array_agg(number ORDER BY id) AS numbers FROM parcels GROUP BY customer) p
WHERE numbers = (SELECT array_agg(n) FROM generate_series(1, $1::integer) n)
"""
EFFECTS = "SELECT count(*), count(DISTINCT (customer, number)) FROM parcels"

Show = Callable[[asyncpg.Connection], Awaitable[None]]


async def main() -> bool:
    started = perf_counter()
    async with database.serving(app.settings) as dsn, own_schema(dsn) as db:
        where = str(dsn) if app.settings.dsn else "embedded"
        version = (await db.fetchval("SHOW server_version")).split()[0]
        print(f"PostgreSQL {version} ({where}), ready in {perf_counter() - started:.1f} s")
        async with worker(dsn, "anna") as anna, worker(dsn, "bert") as bert:
            await until(db, "SELECT count(*) = 2 FROM wh_service_instances", workers=(anna, bert))
            print(f"two workers run: anna, process {anna.pid}, and bert, process {bert.pid}\n")
            enough = asyncio.Event()
            placing = asyncio.create_task(place_orders(enough))
            await until(db, READY_FOR_A_DEATH, anna.pid, workers=(anna, bert), show=show_progress)
            await kill(db, anna, bert)
            enough.set()
            placed = await placing
            await until(db, PACKED, len(placed), workers=(bert,), show=show_progress)
            await until(db, DONE, workers=(bert,))
        return await count_everything(db, dsn, placed)


async def place_orders(enough: asyncio.Event) -> list[OrderPlaced]:
    """An order of every customer now and then, each round in one transaction."""
    placed: list[OrderPlaced] = []
    async with app.connected():
        while not enough.is_set():
            number = len(placed) // len(CUSTOMERS) + 1
            orders = [OrderPlaced(customer, number, 10 * number + len(customer)) for customer in CUSTOMERS]
            await app.publish_all(orders)
            placed += orders
            await asyncio.sleep(PAUSE)
    return placed


async def show_progress(db: asyncpg.Connection) -> None:
    placed, anna, bert = [await db.fetchval(query) for query in (PLACED, PACKED_BY_ANNA, PACKED_BY_BERT)]
    print(f"  {placed:3} orders placed   anna packed {anna:3} {bar(anna)}   bert packed {bert:3} {bar(bert)}")


async def kill(db: asyncpg.Connection, anna: Process, bert: Process) -> None:
    held = [row["stream_key"] for row in await db.fetch(HELD, anna.pid)]
    anna.kill()
    killed, last = perf_counter(), await db.fetchval("SELECT max(id) FROM parcels")
    print(f"\n  kill -9 {anna.pid}: anna dies with orders of {', '.join(held)} in hand")
    await until(db, TAKEN_OVER, last, held, workers=(bert,))
    print(f"  {perf_counter() - killed:.1f} s later bert has packed for each of them\n")


async def count_everything(db: asyncpg.Connection, dsn: Dsn, placed: Sequence[OrderPlaced]) -> bool:
    orders, cost = len(placed), sum(order.total for order in placed)
    in_order = await db.fetchval(IN_ORDER, orders // len(CUSTOMERS))
    parcels, different = await db.fetchrow(EFFECTS) or (0, 0)
    async with app.connected():
        accounts = [await app.rows(account).get(customer) for customer in CUSTOMERS]
    packed, total = sum(row.packed for row in accounts if row), sum(row.total for row in accounts if row)
    verify = await start(dsn, "verify", stdout=asyncio.subprocess.PIPE)
    words = (await verify.communicate())[0].decode().strip()
    print()
    return all(
        [
            say(in_order == len(CUSTOMERS), f"order: {in_order} of {len(CUSTOMERS)} customers in order, without a gap"),
            say((parcels, different) == (orders, orders), f"effects: {parcels} parcels for {orders} orders, each once"),
            say((packed, total) == (orders, cost), f"totals: {total:,} in the perspective, {cost:,} placed"),
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
async def worker(dsn: Dsn, name: str) -> AsyncIterator[Process]:
    """`whippletree run` in a process of its own, asked to end when it is no longer needed."""
    process = await start(dsn, "run", "examples.orders:app", "--log-level", "error", packer=name)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def start(dsn: Dsn, *command: str, packer: str = "", stdout: int | None = None) -> Process:
    environment = {**os.environ, "WHIPPLETREE_DSN": dsn.reveal(), "WHIPPLETREE_SCHEMA": app.settings.schema}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "whippletree", *command),
        cwd=ROOT,
        env={**environment, "PACKER": packer},
        stdout=stdout,
    )


async def until(
    db: asyncpg.Connection, condition: str, *arguments: object, workers: Sequence[Process], show: Show | None = None
) -> None:
    """Until the condition is true, showing something now and then."""
    shown = 0.0
    while not await db.fetchval(condition, *arguments):
        if any(process.returncode is not None for process in workers):
            raise StoreUnavailable("a worker has ended; see above")
        if show and perf_counter() - shown > 2:
            shown = perf_counter()
            await show(db)
        await asyncio.sleep(0.02)
    if show:
        await show(db)


def bar(count: int) -> str:
    return f"{'█' * (count // 10):20}"


def say(true: bool, words: str) -> bool:
    print(f"  {'✓' if true else '✗'} {words}")
    return true


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(asyncio.wait_for(main(), PATIENCE)) else 1)
    except TimeoutError:
        sys.exit(f"not done after {PATIENCE} seconds")
    except KeyboardInterrupt:
        sys.exit(130)
    except Error as error:
        console.show_error(error, sys.argv)
        sys.exit(1)
