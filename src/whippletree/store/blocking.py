"""The database for callers that do not await: an event loop in a thread of its own, started by the first call."""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import asyncpg

T = TypeVar("T")


class BlockingPool:
    """Runs coroutines on a pool, from any thread. A process that ends without `close` leaves the server to notice.

    A process that is forked begins anew, whatever its parent had open.
    """

    def __init__(self, open_pool: Callable[[], AbstractAsyncContextManager[asyncpg.Pool[asyncpg.Record]]]) -> None:
        self._open_pool = open_pool
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._context: AbstractAsyncContextManager[asyncpg.Pool[asyncpg.Record]] | None = None
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._selector: selectors.BaseSelector | None = None
        self._inherited: tuple[object, ...] = ()
        forked = weakref.WeakMethod(self._forked)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: begin() if (begin := forked()) else None)

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
            self._loop = self._thread = self._context = self._pool = self._selector = None

    def _start(self) -> None:
        selector = selectors.DefaultSelector()
        loop = asyncio.SelectorEventLoop(selector)
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
        self._loop, self._thread, self._context, self._selector = loop, thread, context, selector

    def _forked(self) -> None:
        """The thread has stayed behind, and the connections are the parent's: nothing may be done with them here, not
        even at the end of their life. The selector is shared: what it were told here would hold for the parent."""
        self._starting = threading.Lock()
        if self._selector is not None:
            self._selector.close()
        self._inherited = (*self._inherited, self._loop, self._context, self._pool)
        self._loop = self._thread = self._context = self._pool = self._selector = None
