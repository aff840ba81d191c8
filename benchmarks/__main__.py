"""`./dev bench`: every benchmark, or those named with --only, as a table or as JSON."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console

from benchmarks import (
    claim_cost,
    drain,
    feed,
    idle,
    latency,
    limits,
    pair,
    perspectives,
    receptors,
    runtime,
    snapshot,
    store,
    transports,
)
from benchmarks.loop import loop_factory
from benchmarks.peers import drains
from benchmarks.place import Run, private_server
from benchmarks.table import Figure, as_json, show

BENCHMARKS: dict[str, Callable[[Run], Awaitable[list[Figure]]]] = {
    "limits": limits.measure,
    "store": store.measure,
    "drain": drain.measure,
    "runtime": runtime.measure,
    "pair": pair.measure,
    "receptors": receptors.measure,
    "claim": claim_cost.measure,
    "idle": idle.measure,
    "latency": latency.measure,
    "feed": feed.measure,
    "snapshot": snapshot.measure,
    "perspectives": perspectives.measure,
    "transports": transports.measure,
}


def main() -> None:
    arguments = _parse()
    notes = Console(stderr=True, highlight=False)
    chosen = arguments.only or list(BENCHMARKS)
    server: AbstractContextManager[str] = nullcontext(arguments.dsn) if arguments.dsn else private_server()
    with server as dsn, asyncio.Runner(loop_factory=loop_factory()) as runner:
        run = Run(server=dsn, repeat=arguments.repeat, quick=arguments.quick)
        figures = []
        for name in chosen:
            notes.print(f"measuring {name} …")
            figures += runner.run(_measured(name, run))
        if arguments.peers:
            figures += runner.run(drains.measure(run, notes))
    if arguments.quick:
        notes.print("a small run: it shows that everything works, not how fast it is")
    if arguments.json:
        print(as_json(figures))
    else:
        show(figures, Console(highlight=False))


async def _measured(name: str, run: Run) -> list[Figure]:
    return list(await BENCHMARKS[name](run))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print a list of {name, value, unit, target, met}")
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="may be given several times")
    parser.add_argument("--repeat", type=int, default=3, help="measure so many times; the median counts")
    parser.add_argument("--dsn", help="a server on which databases may be created; otherwise a private one is started")
    parser.add_argument("--quick", action="store_true", help="a small version: shows that it runs, not how fast")
    parser.add_argument("--peers", action="store_true", help="also drain other queues on the same server")
    return parser.parse_args()


if __name__ == "__main__":
    main()
