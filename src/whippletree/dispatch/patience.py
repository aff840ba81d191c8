"""Trying again, for a while, while others hold the locks that are needed: they are let through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from whippletree.errors import StoreUnavailable

T = TypeVar("T")

LOCK_TIMEOUT = "SET LOCAL lock_timeout = '500ms'"
"""What the transaction of an attempt begins with."""
_PATIENCE = 30.0
_PAUSE = 0.1


async def patiently(attempt: Callable[[], Awaitable[T]], hindrance: str) -> T:
    """What the attempt returns once it got its locks. `StoreUnavailable` names the hindrance that stays."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return await attempt()
        except asyncpg.LockNotAvailableError:
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{hindrance}; `whippletree doctor` names long transactions. Nothing was changed"
                ) from None
        await asyncio.sleep(_PAUSE)
