"""procrastinate: one worker that handles ten messages at a time, and stops when it has caught up. No order."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

# Only this script's own environment has it.
from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found,unused-ignore]

CONCURRENCY = 10


async def main(dsn: str, messages: int) -> None:
    app = App(connector=PsycopgConnector(conninfo=dsn))
    drained = 0

    async def handle(order: int) -> None:
        nonlocal drained
        drained += 1

    task = app.task(name="benchmark")(handle)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await task.batch_defer_async(*({"order": number} for number in range(messages)))
        await app.connector.execute_query_async("ANALYZE procrastinate_jobs")

        began = time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=CONCURRENCY, install_signal_handlers=False)
        print(json.dumps({"drained": drained, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], int(sys.argv[2])))
