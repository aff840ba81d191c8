"""The end of the feed, as one process knows it: one asks, and all subscriptions learn."""

from __future__ import annotations

import asyncio
import time

from whippletree.claim.wake import WakeListener
from whippletree.store.feed import Feed
from whippletree.work import log

_HURRIED = 20
"""Notifications a second from which polling is cheaper for everybody who appends."""


class FeedHead:
    """Knows the last number. Woken by appends, with polling as the floor."""

    def __init__(self, feed: Feed, wake: WakeListener, poll_every: float) -> None:
        self.last = 0
        self._feed = feed
        self._wake = wake
        self._poll_every = poll_every
        self._looked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._quiet_since = time.monotonic()
        self._heard = wake.notifications
        self._rate = 0.0

    @property
    def hurried(self) -> bool:
        """Whether events come so fast that nobody should ask to be woken: the head polls often instead."""
        return self._rate > _HURRIED

    @property
    def listening(self) -> bool:
        return self._wake.listening

    async def keep_looking(self) -> None:
        """Look for ever."""
        while True:
            before = self.last
            try:
                self.last = await self._feed.last_number()
            except Exception as error:
                log.feed_unreadable(error)
            self._measure(self.last - before)
            self.tell()
            await self._wake.wait(1 / _HURRIED if self.hurried else self._poll_every)

    def tell(self) -> None:
        """Let everybody who waits look at once."""
        looked, self._looked = self._looked, asyncio.get_running_loop().create_future()
        looked.set_result(None)

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - the timeout is no error here
        """Until the head has been looked at again, or the time is up."""
        await asyncio.wait([self._looked], timeout=timeout)

    def _measure(self, new: int) -> None:
        """How often something new was there: a running mean over about a second."""
        now = time.monotonic()
        passed, self._quiet_since = now - self._quiet_since, now
        share = min(1.0, passed)
        rate = (1 / passed if passed > 0 else 2.0 * _HURRIED) if new else 0.0
        self._rate += share * (rate - self._rate)
