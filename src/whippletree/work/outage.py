"""A transport that is down is asked now and then whether it is back, by one task, with growing and scattered pauses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from whippletree.dispatch.log import transport_raised
from whippletree.dispatch.transport import Transport
from whippletree.errors import TransportUnavailable
from whippletree.work import log


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """How long to wait before trying again. Times are seconds; each pause is doubled, and scattered by half."""

    first_pause: float = 0.2
    longest_pause: float = 5

    def pause(self, tries: int) -> float:
        longest = min(self.longest_pause, self.first_pause * 2 ** min(tries, 30))
        return random.uniform(longest / 2, longest)  # noqa: S311 - jitter


class Outage:
    """Whether the transport is down. While it is, `over` is called once, when it answers again."""

    def __init__(self, transport: Transport, over: Callable[[], None], back_off: BackOff) -> None:
        self.probes = 0
        """How often the transport was asked, in all."""
        self._transport = transport
        self._over = over
        self._back_off = back_off
        self._tries = 0
        self._prober: asyncio.Task[None] | None = None

    @property
    def ongoing(self) -> bool:
        return self._prober is not None

    def begin(self, reason: str) -> None:
        if self._prober is None:
            log.transport_down(reason)
            self._prober = asyncio.create_task(self._probe(), name="whippletree transport probe")

    def end(self) -> None:
        """A message got through: the next outage begins with the shortest pause again."""
        self._tries = 0

    async def stop(self) -> None:
        if self._prober is not None:
            self._prober.cancel()
            await asyncio.wait([self._prober])

    async def _probe(self) -> None:
        while True:
            # An answer does not end the outage, a published message does: else one that answers and takes nothing
            # would be tried without a pause.
            await asyncio.sleep(self._back_off.pause(self._tries))
            self._tries += 1
            self.probes += 1
            try:
                await self._transport.probe()
            except TransportUnavailable as error:
                log.transport_still_down(error)
                continue
            except Exception:
                transport_raised()
                continue
            break
        self._prober = None
        log.transport_back()
        self._over()
