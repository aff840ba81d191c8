"""What only one instance may follow at a time: session locks on the instance's dedicated connection.

Every instance stands by for what it could follow and keeps trying. A lock is free as soon as its holder gives it up or
its process ends; the session of a holder that has fallen silent, because its process is stopped or cut off, is ended.
A lock alone proves nothing to a process that was stopped: whoever writes under it names an epoch besides.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import asyncpg

from whippletree.claim import log
from whippletree.claim.session import InstanceSession
from whippletree.claim.wake import WakeListener
from whippletree.store.database import translated
from whippletree.store.statements import call


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveSettings:
    """How locks are taken and watched. Times are seconds."""

    try_every: float = 0.5
    """How often what is free is tried for, and what is held is verified."""
    silent_after: float = 10
    """When a holder's session has said nothing for so long, another ends it and takes over."""
    answer_within: float = 5
    """After how long without an answer the connection, and with it every lock, is given up for lost."""
    balance_every: float = 5
    """How often one that is held in excess is given up, when another instance has fewer."""


class ExclusiveLocks:
    """The locks of one instance. `gained` and `lost` are told of each name, in the loop's task, and return at once."""

    def __init__(
        self,
        session: InstanceSession,
        gained: Callable[[str], None],
        lost: Callable[[str], None],
        settings: ExclusiveSettings | None = None,
        *,
        schema: str = "whippletree",
    ) -> None:
        self.held: set[str] = set()
        self.surplus: Callable[[str], None] = lambda name: None
        """Told of a name that should be given up, because another instance has fewer."""
        self.feed_wake = WakeListener()
        """Hears of new events, on the same connection."""
        self._session = session
        self._gained = gained
        self._lost = lost
        self._settings = settings or ExclusiveSettings()
        self._wanted: set[str] = set()
        self._unshared: set[str] = set()
        self._free_before: set[str] = set()
        self._wake = WakeListener()
        self._balanced_at = time.monotonic()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._stand_by = call(schema, "stand_by", 1)
        self._take = call(schema, "take_subscribers", 3)
        self._release = call(schema, "release_subscribers", 2)
        self._channels = [(call(schema, "subscriber_channel", 0), self._wake)]
        self._channels.append((call(schema, "feed_channel", 0), self.feed_wake))

    async def start(self, names: set[str]) -> None:
        """Stand by for the names from now on."""
        self._wanted = set(names)
        await self._session.invite(self)
        self._task = asyncio.create_task(self._keep_trying(), name="whippletree exclusive locks")

    async def add(self, name: str, *, unshared: bool = False) -> None:
        """Stand by for one more name. Unshared: take it as soon as it is free, and let it count for nobody's share."""
        self._wanted.add(name)
        if unshared:
            self._unshared.add(name)
        # When it fails, the next connection stands by for all of them.
        await self._call(self._stand_by, [name])
        self._wake.wake()

    async def stop(self) -> None:
        """Give everything up, so that others take it at once."""
        # Not cancelled: a call cut off in the middle costs the connection, and the standbys would not be told.
        self._stopping = True
        self._wake.deaf()
        if self._task is not None:
            await asyncio.wait([self._task])
        await self.release(set(self._wanted), for_good=True)
        self._session.dismiss(self)

    async def release(self, names: set[str], *, for_good: bool = False) -> None:
        """Give names up. For good: do not stand by for them any more."""
        self.held -= names
        if for_good:
            self._wanted -= names
            self._unshared -= names
        try:
            await self._call(self._release, sorted(names), for_good)
        except Exception as error:
            log.locks_not_given_up(error)

    async def opened(self, connection: asyncpg.Connection) -> None:
        for channel, wake in self._channels:
            await wake.listen(connection, await connection.fetchval(channel))
        if self._wanted:
            await connection.fetch(self._stand_by, sorted(self._wanted))

    def closed(self) -> None:
        for _, wake in self._channels:
            wake.deaf()
        lost, self.held = self.held, set()
        for name in lost:
            self._lost(name)

    async def _keep_trying(self) -> None:
        while not self._stopping:
            if self._wanted:
                try:
                    await self._try()
                except Exception as error:
                    log.locks_cannot_be_tried_for(error)
            await self._wake.wait(self._settings.try_every * random.uniform(0.7, 1))  # noqa: S311 - jitter

    async def _try(self) -> None:
        standing = await self._take_of(self._wanted - self._unshared, self._free_before)
        surplus = sorted(name for name, how in standing.items() if how == "surplus")
        standing |= await self._take_of(self._unshared, self._unshared)
        self._free_before = {name for name, how in standing.items() if how == "free"}
        # Some may have been given up for good meanwhile.
        now_held = {name for name, how in standing.items() if how in ("held", "surplus") and name in self._wanted}
        for name in self.held - now_held:
            self.held.discard(name)
            self._lost(name)
        for name in now_held - self.held:
            self.held.add(name)
            self._gained(name)
        if time.monotonic() - self._balanced_at > self._settings.balance_every:
            self._balanced_at = time.monotonic()
            if surplus:
                self.surplus(surplus[0])

    async def _take_of(self, names: set[str], anyway: set[str]) -> dict[str, str]:
        if not names:
            return {}
        rows = await self._call(self._take, sorted(names), sorted(anyway), self._settings.silent_after)
        return {row[0]: row[1] for row in rows}

    async def _call(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self._session.exchange() as connection:
            try:
                with translated():
                    async with asyncio.timeout(self._settings.answer_within):
                        return list(await connection.fetch(statement, *arguments))
            except BaseException:
                # What the server made of the call is unknown, so every lock is: start again on another connection.
                connection.terminate()
                raise
