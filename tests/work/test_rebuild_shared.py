"""A perspective that chooses its keys, rebuilt by several processes at once: each works parts of it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import msgspec
import pytest

import whippletree as wt
from tests.accounts import Pool
from tests.conftest import Connect
from tests.waiting import until
from tests.work.program import process
from tests.work.shop import Placed, new_app
from whippletree.dispatch.rebuild import Rebuilds
from whippletree.settings import Dsn

NAME = "by_color"
COLORS, STREAMS = 23, 17
PROGRAM = f"""
import os
from dataclasses import dataclass
from tests.work.shop import Placed, new_app
from whippletree.settings import Dsn

app = new_app(Dsn(os.environ["WHIPPLETREE_DSN"]))

@dataclass(frozen=True)
class Seen:
    numbers: tuple[int, ...] = ()

@app.perspective(key=lambda event: f"color-{{event.number % {COLORS}}}")
def {NAME}(row: Seen | None, event: Placed) -> Seen:
    return Seen((row or Seen()).numbers + (event.number,))
"""
# Every move of a part is written down with its mover, in the transaction of the move. While the gate of a stage is
# locked, its parts stand in the middle of their transactions.
WATCH = """
CREATE TABLE public.moves (stage text, mover uuid, events bigint);
CREATE FUNCTION public.watch() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE v_stage text := substring(NEW.subscriber_name from '/(sort|fold)-');
BEGIN
  PERFORM pg_advisory_xact_lock_shared(77, CASE v_stage WHEN 'sort' THEN 1 ELSE 2 END);
  INSERT INTO public.moves VALUES (v_stage, NEW.holder, NEW.checkpoint - OLD.checkpoint);
  RETURN NEW;
END; $$;
CREATE TRIGGER watch BEFORE UPDATE ON wh_subscribers FOR EACH ROW
WHEN (NEW.through IS NOT NULL AND NEW.checkpoint > OLD.checkpoint) EXECUTE FUNCTION public.watch();
"""
HOLDERS = "SELECT array_agg(DISTINCT holder) FROM wh_subscribers WHERE subscriber_name LIKE '%/' || $1 || '-%'"
FEED = """
SELECT (e.payload ->> 'number')::bigint FROM wh_event_sequence n JOIN wh_event_store e USING (stream_id, version)
ORDER BY n.number
"""


class Gates:
    """Keep the parts of a stage from moving."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def close(self) -> None:
        await self._connection.execute("SELECT pg_advisory_lock(77, 1), pg_advisory_lock(77, 2)")

    async def open(self, stage: str) -> None:
        await self._connection.execute("SELECT pg_advisory_unlock(77, $1)", 1 if stage == "sort" else 2)

    async def held_by(self, stage: str, count: int) -> set[str]:
        """Who holds parts of a stage, as soon as so many do."""

        async def enough() -> set[str] | None:
            holders = {str(one) for one in await self._connection.fetchval(HOLDERS, stage) or () if one}
            return holders if len(holders) >= count else None

        return set(await until(enough, seconds=120))


async def publish(app: wt.App, first: int, count: int) -> wt.Receipt:
    receipts = await app.publish_all([Placed(f"order-{n % STREAMS}", n) for n in range(first, first + count)])
    return receipts[-1]


@asynccontextmanager
async def publishing(app: wt.App, first: int) -> AsyncIterator[None]:
    """Events come until the context ends, no faster than they reach the live rows."""
    over = asyncio.Event()

    async def go_on() -> None:
        number = first
        while not over.is_set():
            await (await publish(app, number, 10)).applied(NAME, timeout=60)
            number += 10

    flow = asyncio.create_task(go_on())
    try:
        yield
    finally:
        over.set()
        await asyncio.wait_for(flow, 60)


async def rows_are_the_feeds(db: asyncpg.Connection, table: str) -> None:
    """Every event is in the row of its key once, in the order of the feed."""
    expected = defaultdict[str, list[int]](list)
    for (number,) in await db.fetch(FEED):
        expected[f"color-{number % COLORS}"].append(number)
    rows = await db.fetch(f"SELECT key, row FROM {table}")
    assert {key: msgspec.json.decode(row)["numbers"] for key, row in rows} == expected


async def caught_up(db: asyncpg.Connection) -> None:
    await until(
        lambda: db.fetchval("SELECT bool_and(behind = 0) AND bool_and(state = 'live') FROM subscriber_overview()"),
        seconds=120,
    )


@pytest.fixture
async def app(dsn: Dsn, db: asyncpg.Connection) -> AsyncIterator[wt.App]:
    """With four thousand events, and with moves that are watched."""
    await db.execute(WATCH)
    app = new_app(dsn)
    async with app.connected():
        await publish(app, 0, 4_000)
        yield app


@asynccontextmanager
async def three_processes(
    directory: Path, dsn: Dsn, db: asyncpg.Connection
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(process(directory, dsn, PROGRAM)) for _ in range(3)]
        await until(lambda: db.fetchval("SELECT count(*) = 3 FROM wh_service_instances"), seconds=120)
        yield started


async def test_several_processes_share_a_rebuild_while_events_flow_and_fold_every_key_in_the_order_of_the_feed(
    tmp_path: Path, app: wt.App, dsn: Dsn, db: asyncpg.Connection, connect: Connect, pool: Pool
) -> None:
    gates, rebuilds = Gates(await connect()), Rebuilds(pool)
    async with three_processes(tmp_path, dsn, db):
        await caught_up(db)
        await gates.close()
        async with publishing(app, 4_000):
            await rebuilds.start(NAME)
            for stage in ("sort", "fold"):
                held = await gates.held_by(stage, 3)
                await gates.open(stage)
                moves = "SELECT array_agg(DISTINCT mover) FROM public.moves WHERE stage = $1"
                await until(lambda m=moves, s=stage: db.fetchval(f"SELECT count(*) = 3 FROM unnest(({m}))", s))  # type: ignore[misc]
                assert {str(mover) for mover in await db.fetchval(moves, stage)} == held
            await asyncio.wait_for(rebuilds.until_built(NAME), 120)
        await caught_up(db)
        differences = {one.kind: one.count for one in await rebuilds.compare(NAME)}
        assert differences == {"equal": COLORS, "changed": 0, "added": 0, "gone": 0}
        assert await rebuilds.swap(NAME) == 2
    await rows_are_the_feeds(db, f"wh_rows_{NAME}")
    sorted_once = await db.fetchval("SELECT sum(events) FROM public.moves WHERE stage = 'sort'")
    assert 4_000 <= sorted_once <= await db.fetchval("SELECT last_number()")
    assert await db.fetchval(f"SELECT to_regclass('wh_keys_{NAME}_g2')") is None
    assert await db.fetch("SELECT * FROM verify_feed() UNION ALL SELECT * FROM verify_subscribers()") == []


async def test_a_rebuild_whose_processes_are_killed_in_the_middle_of_it_folds_every_event_once(
    tmp_path: Path, app: wt.App, dsn: Dsn, db: asyncpg.Connection, connect: Connect, pool: Pool
) -> None:
    gates, rebuilds = Gates(await connect()), Rebuilds(pool)
    async with three_processes(tmp_path, dsn, db) as started:
        await gates.close()
        await rebuilds.start(NAME)
        for stage, running in (("sort", 3), ("fold", 2)):
            holders = await gates.held_by(stage, running)
            # In the middle of transactions that have written keys or rows, and not moved their checkpoints.
            await until(lambda: db.fetchval("SELECT count(*) > 0 FROM pg_locks WHERE classid = 77 AND NOT granted"))
            pid = await db.fetchval(
                "SELECT process_id FROM wh_service_instances WHERE instance_id = $1::text::uuid", holders.pop()
            )
            (victim,) = [one for one in started if one.pid == pid]
            victim.kill()
            await asyncio.wait_for(victim.wait(), 60)
            await publish(app, 4_000 + 100 * running, 100)
            await gates.open(stage)
        await asyncio.wait_for(rebuilds.until_built(NAME), 120)
        await caught_up(db)
        await rows_are_the_feeds(db, f"wh_rows_{NAME}_g1")
        await rows_are_the_feeds(db, f"wh_rows_{NAME}_g2")
        assert await rebuilds.swap(NAME) == 2
