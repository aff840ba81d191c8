"""Bounded waiting for what can be observed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress


async def until(condition: Callable[[], Awaitable[object] | object], seconds: float = 60) -> None:
    """Until the condition holds, looked at fifty times a second."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await _a_moment()


async def _a_moment() -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.02):
            await asyncio.Event().wait()
