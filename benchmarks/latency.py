"""From a commit to the start of its receptor, while nothing else is going on."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from dataclasses import dataclass

import asyncpg

from benchmarks.place import Run, connected
from benchmarks.table import Aim, Figure
from whippletree.app import App
from whippletree.service import Service, ServiceSettings

_WAITING = "SELECT bool_and(waiting) AND NOT EXISTS (SELECT FROM wh_active_streams) FROM wh_service_instances"
_LONGEST = 0.05
"""Seconds for which a transaction is open after it has published."""


@dataclass(frozen=True)
class Ping:
    stream: str


async def measure(run: Run) -> list[Figure]:
    async with run.database() as dsn:
        times, late = await _latencies(dsn, run.size(1_000, 20))
        bare = statistics.quantiles(await _bare(dsn, run.size(1_000, 20)), n=100)
    of_commit = statistics.quantiles([begun - committed for _, committed, begun in times], n=100)
    of_late = statistics.quantiles(late, n=100)
    of_publish = statistics.quantiles([begun - published for published, _, begun in times], n=100)
    return [
        _figure("commit → receptor, idle system, p50", of_commit[49], 3),
        _figure("commit → receptor, idle system, p99", of_commit[98], 8),
        _figure("commit → receptor, published up to 50 ms before, behind another, p50", of_late[49], None),
        _figure("commit → receptor, published up to 50 ms before, behind another, p99", of_late[98], None),
        _figure("publish → receptor, with the commit, p50", of_publish[49], None),
        _figure("publish → receptor, with the commit, p99", of_publish[98], None),
        _figure("bare wake-up and one update, p50", bare[49], None),
        _figure("bare wake-up and one update, p99", bare[98], None),
    ]


def _figure(name: str, seconds: float, target: float | None) -> Figure:
    return Figure(name=name, value=seconds * 1_000, unit="ms", aim=Aim.UNDER, target=target)


async def _latencies(dsn: str, count: int) -> tuple[list[tuple[float, float, float]], list[float]]:
    """When each message was published, when its commit was answered, and when its receptor began: in that order, but
    for a receptor that began before the answer was here. Each is published when the instance sleeps again. And how
    long it took from the commit of a transaction that published while there was other work, and stayed open a while."""
    app = App("benchmark", dsn=dsn)
    app.command(stream="stream")(Ping)
    begun: dict[str, asyncio.Future[float]] = {}

    async def ping(command: Ping) -> None:
        begun[command.stream].set_result(time.perf_counter())

    async def publish(stream: str) -> asyncio.Future[float]:
        begun[stream] = asyncio.get_running_loop().create_future()
        await app.publish(Ping(stream), on=connection)
        return begun[stream]

    app.receptor(ping)
    times, late = [], []
    async with Service(app, ServiceSettings(kinds=("receptors",))).running(), connected(dsn) as connection:
        for number in range(count):
            await _asleep(connection)
            published = time.perf_counter()
            beginning = await publish(f"s{number % 100}")
            committed = time.perf_counter()
            times.append((published, committed, await beginning))
        for number in range(count // 4):
            other = await publish("another")
            async with connection.transaction():
                beginning = await publish(f"s{number % 100}")
                await asyncio.sleep(random.uniform(0, _LONGEST))
            committed = time.perf_counter()
            late.append(await beginning - committed)
            await other
    return times, late


async def _bare(dsn: str, count: int) -> list[float]:
    """The least that anybody needs who is woken by PostgreSQL and writes down who has the work."""
    times = []
    async with connected(dsn) as sender, connected(dsn) as listener:
        await sender.execute("CREATE TABLE public.bare (id integer PRIMARY KEY, held integer)")
        await sender.execute("INSERT INTO public.bare VALUES (1, 0)")
        woken = asyncio.Event()
        await listener.add_listener("bare", lambda *_: woken.set())
        for _ in range(count):
            await asyncio.sleep(0.005)
            woken.clear()
            await sender.execute("NOTIFY bare; UPDATE public.bare SET held = 0")
            committed = time.perf_counter()
            await woken.wait()
            await listener.execute("UPDATE public.bare SET held = 1")
            times.append(time.perf_counter() - committed)
    return times


async def _asleep(connection: asyncpg.Connection) -> None:
    asleep = False
    while not asleep:
        # After it has said that it waits, it looks once more.
        await asyncio.sleep(0.005)
        asleep = await connection.fetchval(_WAITING)
