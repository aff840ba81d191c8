"""pgmq, by its SQL functions and a thin client: read 500 messages, delete them, until none is left. No order."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import asyncpg
import uvloop

# Only this script's own environment has it.
from pgmq.install import get_embedded_install_sql  # type: ignore[import-not-found,unused-ignore]

BATCH = 500


async def main(dsn: str, messages: int) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(get_embedded_install_sql())
    await connection.execute("SELECT pgmq.create('benchmark')")
    for first in range(0, messages, 1_000):
        bodies = ['{"order": 4711}'] * min(1_000, messages - first)
        await connection.execute("SELECT pgmq.send_batch('benchmark', $1::jsonb[])", bodies)
    await connection.execute("VACUUM ANALYZE")
    await asyncio.sleep(0.2)

    drained = 0
    began = time.perf_counter()
    while rows := await connection.fetch("SELECT * FROM pgmq.read('benchmark', 30, $1)", BATCH):
        await connection.fetch("SELECT pgmq.delete('benchmark', $1::bigint[])", [row["msg_id"] for row in rows])
        drained += len(rows)
    print(json.dumps({"drained": drained, "seconds": time.perf_counter() - began}))
    await connection.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], int(sys.argv[2])))
