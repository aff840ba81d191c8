"""Wires between a client and the server that a test can cut, freeze or refuse, and a pooler made of them."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg

from whippletree.settings import Dsn

_SSL_REQUEST = 80877103
_BIND = b"B"
"""A call of a prepared statement goes out in one piece that begins with its arguments."""
_READY = b"Z\x00\x00\x00\x05"
"""How an answer ends, but for the state of the transaction."""
_VERSION = b"server_version\0"


@dataclass(frozen=True)
class Cut:
    """Where the next call is to be cut. Counted in bytes from its beginning, or from that of its answer."""

    after: int
    side: str = "request"


class Wire:
    """Passes on what both sides say, until the test intervenes."""

    def __init__(self, dsn: Dsn) -> None:
        self.refusing = False
        self.refused = 0
        self._dsn = dsn
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._next_cut: Cut | None = None
        self._answer_left: int | None = None

    def cut_next_call(self, cut: Cut) -> None:
        self._next_cut = cut

    def freeze(self) -> None:
        """What is connected stays so, but nothing comes through: what a lost network looks like. New wires work."""
        self._flowing.clear()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            self.refused += 1
            writer.transport.abort()
            return
        flowing = self._flowing
        server_reader, server_writer = await _connect(self._dsn)
        ways = [
            asyncio.create_task(self._requests(reader, server_writer, flowing)),
            asyncio.create_task(self._answers(server_reader, writer, flowing)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            # The far end of a frozen wire stays open: the server has not noticed anything.
            await flowing.wait()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.transport.abort()
            server_writer.close()

    async def _requests(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, flowing: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 20):
            await flowing.wait()
            cut = self._next_cut
            if cut is not None and data[:1] == _BIND:
                self._next_cut = None
                if cut.side == "request":
                    server.write(data[: cut.after])
                    await server.drain()
                    return
                self._answer_left = cut.after
            server.write(data)
            await server.drain()

    async def _answers(
        self, server: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event
    ) -> None:
        held = b""
        while data := await server.read(1 << 20):
            await flowing.wait()
            if self._answer_left is None:
                writer.write(data)
                continue
            # The whole answer is awaited, so that the call has certainly happened; the client gets part of it.
            held += data
            if held[-6:-1] == _READY:
                writer.write(held[: min(self._answer_left, len(held) - 1)])
                await writer.drain()
                self._answer_left = None
                return


@asynccontextmanager
async def wire(dsn: Dsn) -> AsyncIterator[tuple[Wire, Dsn]]:
    """A wire to the server, and the address of its near end."""
    own = Wire(dsn)
    async with _listening(own.serve, dsn) as address:
        yield own, address


@asynccontextmanager
async def pooler(dsn: Dsn, *, backends: int, honest: bool, version: str | None = None) -> AsyncIterator[Dsn]:
    """A pooler in transaction mode: each transaction gets the next of several server connections.

    With one backend it is a quiet one. It greets with a process id of its own making, unless it is honest, and as a
    server of another version, if one is given.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _pool(reader, writer, [await _connect(dsn) for _ in range(backends)], honest, version)

    async with _listening(serve, dsn) as address:
        yield address


async def _pool(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    servers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]],
    honest: bool,
    version: str | None,
) -> None:
    try:
        startup = await _startup(reader, writer)
        greetings = []
        for server_reader, server_writer in servers:
            server_writer.write(startup)
            greetings.append([frame async for frame in _frames(server_reader, until=b"Z")])
        for kind, body in greetings[0]:
            greeting = body if kind != b"K" or honest else struct.pack("!i", 4711) + body[4:]
            if version is not None and body.startswith(_VERSION):
                greeting = _VERSION + version.encode() + b"\0"
            writer.write(_frame(kind, greeting))
        turn = 0
        while True:
            server_reader, server_writer = servers[turn % len(servers)]
            idle = False
            while not idle:
                kind, body = await _read_frame(reader)
                if kind == b"X":
                    return
                server_writer.write(_frame(kind, body))
                if kind in b"SQ":
                    async for answer, content in _frames(server_reader, until=b"Z"):
                        writer.write(_frame(answer, content))
                        idle = answer == b"Z" and content == b"I"
                elif kind == b"H":
                    async for answer, content in _frames(server_reader, until=b"TnE"):
                        writer.write(_frame(answer, content))
            turn += 1
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.transport.abort()
        for _, server_writer in servers:
            server_writer.close()


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    while True:
        length, code = struct.unpack("!ii", await reader.readexactly(8))
        rest = await reader.readexactly(length - 8)
        if code != _SSL_REQUEST:
            return struct.pack("!ii", length, code) + rest
        writer.write(b"N")


async def _frames(reader: asyncio.StreamReader, until: bytes) -> AsyncIterator[tuple[bytes, bytes]]:
    while True:
        kind, body = await _read_frame(reader)
        yield kind, body
        if kind in until:
            return


async def _read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind, length = struct.unpack("!ci", await reader.readexactly(5))
    return kind, await reader.readexactly(length - 4)


def _frame(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


@asynccontextmanager
async def _listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any], dsn: Dsn
) -> AsyncIterator[Dsn]:
    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(serve(reader, writer)))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 22)
    port = listener.sockets[0].getsockname()[1]
    parts = {**psycopg.conninfo.conninfo_to_dict(dsn.reveal())}
    login = quote(str(parts.get("user", ""))) + (f":{quote(str(parts['password']))}" if parts.get("password") else "")
    try:
        yield Dsn(f"postgresql://{login}@127.0.0.1:{port}/{parts['dbname']}?sslmode=disable")
    finally:
        listener.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _connect(dsn: Dsn) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = psycopg.conninfo.conninfo_to_dict(dsn.reveal())
    host, port = str(parts["host"]), int(parts.get("port") or 5432)
    if host.startswith("/"):
        return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}", limit=1 << 22)
    return await asyncio.open_connection(host, port, limit=1 << 22)


def cuts(seed: int, count: int) -> Iterator[Cut]:
    """Cuts at the edges, and at random places of requests and answers."""
    yield Cut(0)
    yield Cut(0, "answer")
    choose = random.Random(seed)
    for _ in range(count):
        yield Cut(choose.randrange(1, 2500), choose.choice(["request", "answer"]))
