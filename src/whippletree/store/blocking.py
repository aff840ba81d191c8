"""The database for callers that do not await: an event loop in a thread of its own, started by the first call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import asyncpg

T = TypeVar("T")


class BlockingPool:
    """Runs coroutines on a pool, from any thread. A process that ends without `close` leaves the server to notice."""

    def __init__(self, open_pool: Callable[[], AbstractAsyncContextManager[asyncpg.Pool[asyncpg.Record]]]) -> None:
        self._open_pool = open_pool
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._context: AbstractAsyncContextManager[asyncpg.Pool[asyncpg.Record]] | None = None
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    def run(self, work: Callable[[asyncpg.Pool[asyncpg.Record]], Coroutine[Any, Any, T]]) -> T:
        """The value of a coroutine that is given the pool. Must not be called on an event loop's own thread."""
        with self._starting:
            if self._loop is None:
                self._start()
            loop, pool = self._loop, self._pool
        assert loop is not None
        assert pool is not None
        return asyncio.run_coroutine_threadsafe(work(pool), loop).result()

    def close(self) -> None:
        with self._starting:
            if self._loop is None or self._context is None or self._thread is None:
                return
            asyncio.run_coroutine_threadsafe(self._context.__aexit__(None, None, None), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = self._context = self._pool = None

    def _start(self) -> None:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="whippletree publish_sync", daemon=True)
        thread.start()
        context = self._open_pool()
        try:
            self._pool = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result()
        except BaseException:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
            raise
        self._loop, self._thread, self._context = loop, thread, context
