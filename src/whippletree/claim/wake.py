"""Waiting for work without polling hard: a notification wakes, and the timeout is the floor.

A notification is a hint to poll; losing one costs a timeout at most. Storers notify only instances that wait, so an
instance goes to sleep in three steps. It polls, asking to be woken. It polls once more, because a storer that looked
just before the first poll was committed has not seen it waiting. Only then it waits. With the first work that it gets
it still counts as waiting, until it reports and gets more. What was stored while it did not wait, and is committed
later, wakes nobody: so its first waits are short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg


class WakeListener:
    """Hears the storers of one schema. Needs a connection to listen on, but works without one: then only time wakes."""

    def __init__(self) -> None:
        self.listening = False
        """Whether asking to be woken makes sense."""
        self.notifications = 0
        self.on_wake: Callable[[], None] = lambda: None
        """Told whenever there is a reason to poll, for whoever waits for other things besides."""
        self._woken = asyncio.Event()

    async def listen(self, connection: asyncpg.Connection, channel: str) -> None:
        """Listen from now on. The next wait returns at once, so that what came before is polled for."""
        await connection.add_listener(channel, self._notified)
        self.listening = True
        self.wake()

    def deaf(self) -> None:
        """The connection is gone. Who waits polls at once, and then at the pace of the timeout."""
        self.listening = False
        self.wake()

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the timeout is an outcome here, not an error
        """Whether there is a reason to poll before the time is up. What came since the last wait counts."""
        try:
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    def _notified(self, *_: Any) -> None:
        self.notifications += 1
        self.wake()

    def wake(self) -> None:
        """Let whoever waits poll at once."""
        self._woken.set()
        self.on_wake()
