"""Keeps an instance's leases while its event loop is blocked, from a thread with a connection of its own.

The loop of an instance renews its leases itself, long before they end. When a function holds up the event loop, no
other lease is to be lost by it: this thread notices leases that the loop should have renewed, and does it for it. It
opens its connection only then. A lease is kept up to a longest age, so that what hangs for ever is taken over.
"""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType
from typing import Self

import asyncpg

from whippletree.claim import log
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.held import Run
from whippletree.settings import Dsn
from whippletree.store.database import open_connection
from whippletree.store.statements import call


class LeaseKeeper:
    """A thread that renews what the loop does not. Use it as a context."""

    def __init__(
        self, dsn: Dsn, coordinator: WorkCoordinator, *, longest_lease: float = 3600, schema: str = "whippletree"
    ) -> None:
        self.renewed = 0
        """Leases that this thread has renewed: each is a sign of a blocked event loop."""
        self._dsn = dsn
        self._coordinator = coordinator
        self._longest_lease = longest_lease
        self._keep_alive = call(schema, "keep_alive", 5)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="whippletree keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ending.wait(self._coordinator.settings.lease_seconds / 12):
            if overdue := self._overdue():
                log.loop_is_blocked(len(overdue))
                try:
                    asyncio.run(self._renew_while_overdue())
                except Exception as error:
                    # Whatever it is: the next round tries again, and without this thread nobody would.
                    log.not_renewed(error)

    def _overdue(self) -> list[Run]:
        """Leases that the loop should have renewed. It does so at a third of their life."""
        now, life = time.monotonic(), self._coordinator.settings.lease_seconds
        return [
            run
            for run in self._coordinator.held.runs()
            if now - run.renewed_at > life / 2 and now - run.claimed_at < self._longest_lease
        ]

    async def _renew_while_overdue(self) -> None:
        life = self._coordinator.settings.lease_seconds
        async with asyncio.timeout(life / 4):
            connection = await open_connection(self._dsn)
        try:
            while (overdue := self._overdue()) and not self._ending.is_set():
                async with asyncio.timeout(life / 4):
                    await self._renew(connection, overdue)
                await asyncio.sleep(life / 6)
        finally:
            connection.terminate()

    async def _renew(self, connection: asyncpg.Connection, runs: list[Run]) -> None:
        asked = time.monotonic()
        places = await connection.fetchval(
            self._keep_alive,
            self._coordinator.instance.instance_id,
            [run.queue for run in runs],
            [run.stream_id for run in runs],
            [run.lease_token for run in runs],
            self._coordinator.settings.lease_seconds,
        )
        for place in places:
            runs[place - 1].renewed_at = asked
        self.renewed += len(places)
