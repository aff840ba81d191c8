"""Receptors through the whole runtime: claim, decode, call, complete."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import asyncpg

from benchmarks.place import Run, connected, settle
from benchmarks.table import Figure, median
from whippletree.app import App
from whippletree.service import Service, ServiceSettings
from whippletree.store.transaction import Transaction


@dataclass(frozen=True)
class Count:
    stream: str
    number: int


async def measure(run: Run) -> list[Figure]:
    async with run.database() as dsn, connected(dsn) as connection:
        await connection.execute("CREATE TABLE public.counts (stream text, number integer)")

        async def rate(transactional: bool, messages: int) -> float:
            await connection.execute("TRUNCATE public.counts")
            await _fill(connection, run.size(1_000, 20), messages)
            await settle(connection)
            return await _drain_rate(dsn, messages, transactional=transactional)

        return [
            Figure(
                name="no-op receptor, 1,000 streams",
                value=await median(run.repeat, lambda: rate(False, run.size(200_000, 400))),
                unit="messages/s",
                target=40_000,
            ),
            Figure(
                name="transactional receptor, one insert each, grouped",
                value=await median(run.repeat, lambda: rate(True, run.size(30_000, 400))),
                unit="messages/s",
                target=5_000,
            ),
        ]


async def _fill(connection: asyncpg.Connection, streams: int, messages: int) -> None:
    chunk = 2_000
    for first in range(0, messages, chunk):
        await connection.execute(_STORE, streams, first + 1, min(first + chunk, messages))


_STORE = """
    SELECT store_messages('inbox', array_agg(stream_id_of(s.key)), array_agg(s.key), array_agg(gen_random_uuid()),
      array_agg('Count'::text), array_agg(''::text),
      array_agg(json_build_object('stream', s.key, 'number', s.n)), array_agg(NULL::json), array_agg(NULL::uuid),
      array_agg(NULL::uuid), array_agg(NULL::timestamptz))
    FROM (SELECT n, 's' || (n % $1::integer) AS key FROM generate_series($2::integer, $3::integer) n) s
"""


async def _drain_rate(dsn: str, messages: int, *, transactional: bool) -> float:
    """Messages per second, from the first that is handled to the last that is committed."""
    app = App("benchmark", dsn=dsn)
    app.command(stream="stream")(Count)
    began = 0.0
    handled, done = 0, asyncio.Event()

    def count() -> None:
        nonlocal handled, began
        began = began or time.perf_counter()
        handled += 1
        if handled == messages:
            done.set()

    async def inside(command: Count, tx: Transaction) -> None:
        count()
        await tx.execute("INSERT INTO public.counts VALUES ($1, $2)", command.stream, command.number)

    async def outside(command: Count) -> None:
        count()

    app.receptor(name="count")(inside if transactional else outside)
    async with Service(app, ServiceSettings(kinds=("receptors",))).running():
        await done.wait()
        async with connected(dsn) as connection:
            while await connection.fetchval("SELECT EXISTS (SELECT FROM wh_messages)"):
                pass
        return messages / (time.perf_counter() - began)
