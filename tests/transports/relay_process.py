"""A process that publishes what is in the outbox, says so, and never completes it: it waits to be killed."""

from __future__ import annotations

import asyncio
import sys

import asyncpg

from tests.transports.bus import Bus, InProcessBus, NatsBus, PostgresBus
from tests.transports.mail import claim
from tests.transports.relay import coordinator_of


class _At:
    """A server that somebody else has started."""

    def __init__(self, url: str) -> None:
        self.url = url


async def main(dsn: str, kind: str, address: str) -> None:
    async with asyncpg.create_pool(dsn, min_size=0, max_size=4) as pool:
        bus: Bus
        if kind == "nats":
            bus = NatsBus(pool, _At(address))  # type: ignore[arg-type] # only its address is used
        else:
            bus = InProcessBus(pool) if kind == "in_process" else PostgresBus(pool)
        coordinator = coordinator_of(pool)
        async with bus.receiving():
            outcomes = await bus.transport(coordinator).publish_batch(await claim(coordinator))
            assert all(outcome.result in ("published", "completed") for outcome in outcomes), outcomes
            sys.stdout.write("published\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
