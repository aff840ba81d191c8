"""The one dedicated connection of an instance: while it lives it holds the instance's session lock, and it listens.

The lock is the second witness of the instance's life, next to its heartbeat: when the process dies the server frees the
lock, and the others need not wait for the stale threshold. Behind a pooler that lends one server connection to many
clients neither the lock nor LISTEN mean anything. That is found out at the start, and said; the instance then polls,
and only the stale threshold tells the others of its death.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import asyncpg

from whippletree.claim import log
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.wake import WakeListener
from whippletree.errors import StoreUnavailable
from whippletree.settings import Dsn
from whippletree.store.database import open_connection, translated
from whippletree.store.pooler import sharing
from whippletree.store.statements import call


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How the connection is watched. Times are seconds."""

    probe_every: float = 5
    """How often the connection and the lock are verified."""
    probe_timeout: float = 5
    """After how long without an answer a connection that looks open is taken for dead."""
    first_pause: float = 0.1
    """Before the second attempt to reconnect; doubled each time, and scattered, lest all instances come at once."""
    longest_pause: float = 10


class Guest(Protocol):
    """Somebody else who keeps locks or listens on the session's connection."""

    async def opened(self, connection: asyncpg.Connection) -> None:
        """A new connection is there, on which the guest holds nothing yet. An error here closes it again."""

    def closed(self) -> None:
        """The connection is gone, and with it every lock."""


class InstanceSession:
    """Keeps the session of one instance, and tells its coordinator whether the session lock is held.

    Use it as a context. Opening raises `StoreUnavailable` when there is no server; a connection lost later is replaced
    for as long as it takes.
    """

    def __init__(
        self,
        dsn: Dsn,
        coordinator: WorkCoordinator,
        settings: SessionSettings | None = None,
        *,
        schema: str = "whippletree",
        beside: Iterable[asyncpg.Connection] = (),
    ) -> None:
        """`beside` are connections that go the same way. When this one falls silent, they are closed with it: only this
        one is watched, and who waits for an answer on another would wait for ever."""
        self.wake = WakeListener()
        self.lost = asyncio.Event()
        """Set while a lock that was held is not: the others may take this instance for dead."""
        self.held = asyncio.Event()
        """Set while the lock is held."""
        self.degraded: str | None = None
        """Why there is neither lock nor waking, in words; None when there is."""
        self.lost_connections = 0
        self.process_id: int | None = None
        """The server's process behind the connection."""
        self._dsn = dsn
        self._coordinator = coordinator
        self._settings = settings or SessionSettings()
        self._connection: asyncpg.Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._beside = beside
        self._guests: list[Guest] = []
        self._in_use = asyncio.Lock()
        self._take_session_lock = call(schema, "take_session_lock", 2)
        self._holds_session_lock = call(schema, "holds_session_lock", 1)
        self._wake_channel = call(schema, "wake_channel", 0)

    async def __aenter__(self) -> Self:
        with translated():
            connection = await self._open()
        if connection is not None:
            self._keeper = asyncio.create_task(self._keep(connection), name="whippletree session")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        self._let_go()

    def renew(self) -> None:
        """Begin again with a new connection: the instance has another id, whose lock is to be taken."""
        if self._connection is not None:
            self._connection.terminate()

    async def invite(self, guest: Guest) -> None:
        """Let a guest use this connection and every later one."""
        self._guests.append(guest)
        if self._connection is not None:
            async with self.exchange() as connection:
                await guest.opened(connection)

    def dismiss(self, guest: Guest) -> None:
        """The guest has gone."""
        self._guests.remove(guest)

    @asynccontextmanager
    async def exchange(self) -> AsyncIterator[asyncpg.Connection]:
        """The connection, for a short call: it serves one at a time. Raises `StoreUnavailable` while there is none."""
        async with self._in_use:
            if self._connection is None:
                raise StoreUnavailable("the instance's session has no connection at present")
            yield self._connection

    async def _keep(self, connection: asyncpg.Connection | None) -> None:
        while connection is not None:
            reason = await self._watch(connection)
            self.lost_connections += 1
            log.session_lost(self._instance_id, reason)
            self._let_go()
            connection = await self._reopen()

    async def _watch(self, connection: asyncpg.Connection) -> str:
        """Wait until the connection or the lock is gone; say what happened."""
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _: closed.set())
        while not connection.is_closed():
            try:
                async with asyncio.timeout(self._settings.probe_every):
                    await closed.wait()
                break
            except TimeoutError:
                pass
            try:
                async with asyncio.timeout(self._settings.probe_timeout), self._in_use:
                    verified = await self._verify(connection)
            except Exception as error:
                for other in list(self._beside):
                    other.terminate()
                return f"the connection does not answer ({type(error).__name__})"
            if not verified:
                return "the lock is gone though the connection is not"
        return "the connection was closed"

    async def _verify(self, connection: asyncpg.Connection) -> bool:
        if self.held.is_set():
            return bool(await connection.fetchval(self._holds_session_lock, self._instance_id))
        await self._take_lock(connection)
        return True

    async def _reopen(self) -> asyncpg.Connection | None:
        pause = self._settings.first_pause
        while True:
            try:
                with translated():
                    return await self._open()
            except Exception as error:
                # Whatever it is: a keeper that gave up would leave the instance without its witness, silently.
                log.cannot_reconnect(self._instance_id, error)
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - jitter
            pause = min(2 * pause, self._settings.longest_pause)

    async def _open(self) -> asyncpg.Connection | None:
        """A connection that holds the lock and listens; None behind a pooler. A failure leaves no connection behind."""
        async with asyncio.timeout(self._settings.probe_timeout):
            connection = await open_connection(self._dsn)
            try:
                self.degraded = await sharing(connection)
                if self.degraded is None:
                    await self._take_lock(connection)
                    await self.wake.listen(connection, await connection.fetchval(self._wake_channel))
                    for guest in self._guests:
                        await guest.opened(connection)
            except BaseException:
                connection.terminate()
                raise
        if self.degraded is not None:
            connection.terminate()
            log.without_a_session(self._instance_id, self.degraded)
            return None
        self._connection = connection
        return connection

    async def _take_lock(self, connection: asyncpg.Connection) -> None:
        held = await connection.fetchval(self._take_session_lock, self._instance_id, self.process_id)
        self._coordinator.session_locked = held
        if held:
            self.process_id = connection.get_server_pid()
            self.held.set()
            self.lost.clear()

    def _let_go(self) -> None:
        if self.held.is_set():
            self.held.clear()
            self.lost.set()
        self._coordinator.session_locked = False
        self.wake.deaf()
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
        for guest in self._guests:
            guest.closed()

    @property
    def _instance_id(self) -> object:
        return self._coordinator.instance.instance_id
