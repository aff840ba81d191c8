"""Makes docs/images: runs the shop, two workers and the real commands, and draws what these say on a terminal.

Runs on the embedded PostgreSQL, or on that of WHIPPLETREE_DSN, in a schema of its own that is gone at the end.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg

from examples.screenshots.drawing import draw, said_on_a_terminal
from examples.screenshots.shop import OrderPlaced, Ship, app
from whippletree.service import Service
from whippletree.store import database, schema

ROOT = Path(__file__).parents[2]
PATIENCE = 300
CUSTOMERS = ("ada", "ben", "cleo", "dora")
REGISTERED = "SELECT count(*) = 2 FROM wh_service_instances WHERE 'receptor/invoice' = ANY (queues)"
STOPPED = """
SELECT (SELECT count(*) FROM wh_active_streams WHERE ready_at = 'infinity') = 2
  AND NOT EXISTS (SELECT FROM wh_active_streams WHERE ready_at <= clock_timestamp())
  AND (SELECT count(*) FROM wh_active_streams WHERE error LIKE '%tax office%') = 3
  AND (SELECT state = 'parked' FROM wh_subscribers WHERE subscriber_name = 'mailer')
"""

BAD = "SELECT event_id FROM wh_event_store JOIN wh_streams USING (stream_id) WHERE stream_key = 'order-217'"


async def main(directory: Path) -> None:
    name = app.settings.schema
    async with database.serving(app.settings) as dsn, AsyncExitStack() as stack:
        db = await database.open_connection(dsn)
        stack.push_async_callback(db.close)
        await db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        await schema.migrate(db, name)
        stack.push_async_callback(db.execute, f"DROP SCHEMA {name} CASCADE")
        await db.execute(f"SET search_path TO {name}")
        await db.execute("CREATE TABLE stock (order_key text, total integer)")
        environment = os.environ | {"WHIPPLETREE_DSN": dsn.reveal(), "WHIPPLETREE_SCHEMA": name}
        for host in ("shop-1", "shop-2"):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "examples.screenshots", "--worker", host), cwd=ROOT, env=environment
            )
            stack.push_async_callback(process.wait)
            stack.callback(process.terminate)
        await until(db, REGISTERED)
        await place_orders()
        await until(db, STOPPED)
        await photograph(directory, str(await db.fetchval(BAD)), environment)


async def place_orders() -> None:
    """Many good ones, and a few that cannot go on."""
    async with app.connected():
        for number in range(1, 104):
            await app.publish(OrderPlaced(f"order-{number}", CUSTOMERS[number % 4], {"total": 100 + number}))
        await app.publish(OrderPlaced("order-217", "ada", {"sum": 40}))
        await app.publish_all([Ship("order-17", 480), Ship("order-17", 3), Ship("order-17", 12)])
        await app.publish(OrderPlaced("order-218", "nobody", {"total": 12}))
        await app.publish(Ship("order-18", 4), after=7200)


async def photograph(directory: Path, event_id: str, environment: dict[str, str]) -> None:
    pictures: dict[str, Sequence[Sequence[str]]] = {
        "status": [("status",)],
        "why": [("why", "order-17"), ("why", "order-18"), ("why", "mailer"), ("why", event_id)],
        "mend": [
            ("parked",),
            ("try", "order-217", "examples.screenshots.mended:app"),
            ("skip", "order-17", "--queue", "inbox", "--reason", "sent by lorry", "--yes"),
            ("dead-letters",),
        ],
        "verify": [("perspectives", "list"), ("verify",)],
    }
    for name, commands in pictures.items():
        said = [(words, await asyncio.to_thread(said_on_a_terminal, words, environment, ROOT)) for words in commands]
        (directory / f"{name}.svg").write_text(draw(name, said), encoding="utf-8")
        print(directory / f"{name}.svg")


async def until(db: asyncpg.Connection, condition: str) -> None:
    while not await db.fetchval(condition):  # noqa: ASYNC110 - the database is what is looked at
        await asyncio.sleep(0.05)


def work(host: str) -> None:
    """One instance, until it is asked to end. It says another host than this one, which is nobody's business."""
    import logging
    import signal

    # What fails here is meant to.
    logging.disable()

    async def run() -> None:
        service = Service(app)
        service.instance = dataclasses.replace(service.instance, host_name=host)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, service.stop)
        await service.run()

    asyncio.run(run())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2])
    else:
        directory = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs" / "images"
        asyncio.run(asyncio.wait_for(main(directory), PATIENCE))
