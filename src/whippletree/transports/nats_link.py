"""One connection to NATS, opened when it is needed and again when it is lost.

The client's own reconnecting is off: it would keep what we publish meanwhile and send it later, when the message may
long have gone another way. Here a lost connection is a plain error, and whoever met it decides when to try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import api

from whippletree.errors import TransportUnavailable
from whippletree.transports import log

_T = TypeVar("_T")
_NOT_FOUND = 404


class NatsRefused(Exception):
    """The server answered, with an error. `code` is as in HTTP, `err_code` is JetStream's own."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"NATS refused: {description} ({err_code})")
        self.code = code
        self.err_code = err_code


class NatsClient(Client):
    """The client, and a way to send what is in the protocol's words already."""

    async def send(self, frames: bytes) -> None:
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        await self._send_command(frames)


class NatsLink:
    """The connection, or `TransportUnavailable`, within a bounded time."""

    def __init__(self, servers: Sequence[str], *, timeout: float, options: Mapping[str, Any]) -> None:
        self.timeout = timeout
        self._servers = list(servers)
        self._options = dict(options)
        self._client: NatsClient | None = None
        self._closed = asyncio.Event()
        self._opening = asyncio.Lock()

    async def open(self) -> NatsClient:
        async with self._opening:
            if self._client is None or self._client.is_closed:
                self._client = await self._connect()
            return self._client

    async def close(self) -> None:
        if self._client is not None and not self._client.is_closed:
            await self._client.close()

    async def during(self, work: Awaitable[_T]) -> _T:
        """The result of work on the open connection. When the connection is lost it is not waited for any longer."""
        task = asyncio.ensure_future(work)
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            done, _ = await asyncio.wait((task, closed), timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
            if task in done:
                return task.result()
        except (nats.errors.Error, OSError) as error:
            raise TransportUnavailable(f"NATS did not answer: {error or type(error).__name__}") from error
        finally:
            for pending in (task, closed):
                pending.cancel()
        raise TransportUnavailable(
            "NATS did not answer" + (": the connection is lost" if closed.done() else " in time")
        )

    async def arrival(self, queue: asyncio.Queue[_T], seconds: float) -> _T | None:
        """The next of a queue that the open connection fills; None when nothing came in time."""
        if not queue.empty():
            return queue.get_nowait()
        getter = asyncio.ensure_future(queue.get())
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((getter, closed), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if getter.done():
                return getter.result()
            if closed.done():
                raise TransportUnavailable("NATS: the connection is lost")
            return None
        finally:
            getter.cancel()
            closed.cancel()

    async def request(self, subject: str, body: bytes = b"", headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Ask JetStream. Raises `NatsRefused` when it answers with an error."""
        client = await self.open()
        answer = await self.during(client.request(subject, body, timeout=self.timeout, headers=headers))
        return answer_of(answer.data)

    async def api(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Call JetStream's API; None when what is asked for is not there."""
        try:
            return await self.request(f"{api.DEFAULT_PREFIX}.{name}", msgspec.json.encode(body) if body else b"")
        except NatsRefused as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    async def _connect(self) -> NatsClient:
        closed = asyncio.Event()

        async def on_closed() -> None:
            closed.set()

        client = NatsClient()
        try:
            async with asyncio.timeout(self.timeout):
                await client.connect(
                    **{"name": "whippletree", "ping_interval": 10, "max_outstanding_pings": 2, **self._options},
                    servers=self._servers,
                    allow_reconnect=False,
                    # Once more after the first refusal, and then it is for the caller to try again.
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=max(1, int(self.timeout)),
                    error_cb=_note,
                    closed_cb=on_closed,
                )
        except (nats.errors.Error, OSError) as error:
            raise TransportUnavailable(
                f"cannot connect to NATS: {error or type(error).__name__}. Check its address, and that it runs."
            ) from error
        self._closed = closed
        return client


def answer_of(data: bytes) -> dict[str, Any]:
    """JetStream's answer, unless it is an error."""
    answer: dict[str, Any] = msgspec.json.decode(data)
    if error := answer.get("error"):
        raise NatsRefused(error.get("code", 0), error.get("err_code", 0), error.get("description", "unknown"))
    return answer


async def _note(error: Exception) -> None:
    log.nats_noted(error)
