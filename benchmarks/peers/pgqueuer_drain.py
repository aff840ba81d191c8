"""pgqueuer: one worker in drain mode. No order."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop

# Only this script's own environment has it.
from pgqueuer import PgQueuer  # type: ignore[import-not-found,unused-ignore]
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found,unused-ignore]
from pgqueuer.types import QueueExecutionMode  # type: ignore[import-not-found,unused-ignore]

BATCH = 500


async def main(dsn: str, messages: int) -> None:
    connection = await asyncpg.connect(dsn)
    queuer = PgQueuer(AsyncpgDriver(connection))
    await queuer.qm.queries.install()
    drained = 0

    async def handle(_: Any) -> None:
        nonlocal drained
        drained += 1

    queuer.entrypoint("benchmark")(handle)
    for first in range(0, messages, 1_000):
        count = min(1_000, messages - first)
        await queuer.qm.queries.enqueue(["benchmark"] * count, [b'{"order": 4711}'] * count, [0] * count)
    await connection.execute("VACUUM ANALYZE")
    await asyncio.sleep(0.2)

    began = time.perf_counter()
    await queuer.qm.run(dequeue_timeout=timedelta(seconds=1), batch_size=BATCH, mode=QueueExecutionMode.drain)
    print(json.dumps({"drained": drained, "seconds": time.perf_counter() - began}))
    await connection.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], int(sys.argv[2])))
