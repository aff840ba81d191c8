"""kill -9 of a process that folds: another takes over, and rows and checkpoints tell the same of every stream."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import asyncpg

import whippletree as wt
from tests.conftest import Connect
from tests.waiting import until, until_somebody_waits
from tests.work.program import process
from tests.work.shop import Placed, new_app
from whippletree.settings import Dsn

PROGRAM = """
import os
from dataclasses import dataclass
import whippletree as wt
from tests.work.shop import Placed, new_app
from whippletree.settings import Dsn

app = new_app(Dsn(os.environ["WHIPPLETREE_DSN"]))

@dataclass(frozen=True)
class Seen:
    numbers: tuple[int, ...] = ()

@app.perspective
def seen(row: Seen | None, event: Placed) -> Seen:
    return Seen(((row or Seen()).numbers) + (event.number,))

@app.perspective(tables=["public.log"])
async def log(event: Placed, tx: wt.Transaction) -> None:
    await tx.execute("INSERT INTO log (stream, number) VALUES ($1, $2)", event.order, event.number)

@app.perspective(key=lambda event: "all")
def together(row: Seen | None, event: Placed) -> Seen:
    return Seen(((row or Seen()).numbers) + (event.number,))
"""
LOG = "CREATE TABLE public.log (id bigint GENERATED ALWAYS AS IDENTITY, stream text, number bigint)"
STREAMS = 7


async def publish(app: wt.App, first: int, count: int) -> None:
    await app.publish_all([Placed(f"order-{n % STREAMS}", n) for n in range(first, first + count)])


async def all_applied(db: asyncpg.Connection, count: int) -> None:
    """Until every perspective has every event."""
    await until(
        lambda: db.fetchval(
            "SELECT (SELECT sum(version) FROM wh_checkpoints) = 2 * $1"
            " AND (SELECT checkpoint FROM wh_subscribers) = $1",
            count,
        ),
        seconds=120,
    )


async def rows_and_checkpoints_agree(db: asyncpg.Connection, count: int) -> None:
    """Every event is in the rows once, in order, and the checkpoints say so."""
    expected = {
        await db.fetchval("SELECT stream_id_of($1)", f"order-{k}"): list(range(k, count, STREAMS))
        for k in range(STREAMS)
    }
    rows = await db.fetch(
        "SELECT r.key, r.row #>> '{numbers}' AS numbers, r.version, c.version AS checkpoint FROM wh_rows_seen r"
        " JOIN wh_checkpoints c ON c.stream_id = r.key AND c.perspective_name = 'seen'"
    )
    assert {row["key"]: [int(n) for n in row["numbers"].strip("[]").split(",")] for row in rows} == expected
    assert all(row["version"] == row["checkpoint"] == len(expected[row["key"]]) for row in rows)
    for stream, numbers in expected.items():
        written = await db.fetch("SELECT number FROM public.log WHERE stream_id_of(stream) = $1 ORDER BY id", stream)
        assert [row[0] for row in written] == numbers
    together = await db.fetchval("SELECT row #>> '{numbers}' FROM wh_rows_together")
    fed = await db.fetch(
        "SELECT (e.payload ->> 'number')::bigint FROM wh_event_sequence n"
        " JOIN wh_event_store e USING (stream_id, version) ORDER BY n.number"
    )
    assert [int(n) for n in together.strip("[]").split(",")] == [row[0] for row in fed]
    assert await db.fetch("SELECT * FROM verify_events()") == []


async def test_killed_between_its_rows_and_its_checkpoint_neither_is_there_and_another_folds_it_all(
    tmp_path: Path, dsn: Dsn, db: asyncpg.Connection, connect: Connect
) -> None:
    await db.execute(LOG)
    app = new_app(dsn)
    async with app.connected(), process(tmp_path, dsn, PROGRAM) as first:
        await until(lambda: db.fetchval("SELECT count(*) = 2 FROM wh_perspective_mappings"))
        other = await connect()
        async with other.transaction():
            # It writes its rows, and comes to a stand at its checkpoints, in the middle of its transaction.
            await other.execute("LOCK TABLE wh_checkpoints IN SHARE MODE")
            await publish(app, 0, 100)
            await until_somebody_waits(db)
            first.kill()
            await asyncio.wait_for(first.wait(), 60)
            assert await db.fetchval("SELECT count(*) FROM wh_rows_seen") == 0
            assert await db.fetchval("SELECT count(*) FROM public.log") == 0
        async with process(tmp_path, dsn, PROGRAM):
            await all_applied(db, 100)
    await rows_and_checkpoints_agree(db, 100)


async def test_killed_at_any_time_every_event_is_folded_once_and_in_order(
    tmp_path: Path, dsn: Dsn, db: asyncpg.Connection
) -> None:
    await db.execute(LOG)
    app = new_app(dsn)
    chance = random.Random(4)
    published = 0
    async with app.connected():
        for _ in range(4):
            async with process(tmp_path, dsn, PROGRAM) as one, process(tmp_path, dsn, PROGRAM) as two:
                await publish(app, published, 300)
                published += 300
                some = published - 300 + chance.randrange(1, 299)
                await until(lambda some=some: db.fetchval("SELECT count(*) >= $1 FROM public.log", some))  # type: ignore[misc]
                one.kill()
                two.kill()
        async with process(tmp_path, dsn, PROGRAM):
            await all_applied(db, published)
    await rows_and_checkpoints_agree(db, published)
