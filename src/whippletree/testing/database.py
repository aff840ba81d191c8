"""A real database for one test: a copy of a template that has the schema, gone when the test is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from whippletree.app import App
from whippletree.service import Service
from whippletree.settings import Dsn, Settings
from whippletree.store.database import open_pool
from whippletree.store.schema import migrate
from whippletree.testing.draining import make_all_known

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A database with the schema installed, to be copied. `server` is a database that is there anyway."""

    server: Dsn
    name: str
    schema: str

    @classmethod
    @contextmanager
    def made(cls, server: str) -> Iterator[Template]:
        """A template that lasts as long as the context. The schema's name is that of the settings."""
        template = cls(server=Dsn(server), name=_new_name("template"), schema=Settings.load(dsn=server).schema)
        in_a_loop_of_its_own(template._install())
        try:
            yield template
        finally:
            in_a_loop_of_its_own(_execute(template.server, f'DROP DATABASE "{template.name}" WITH (FORCE)'))

    async def copy(self) -> Database:
        """A new database."""
        name = _new_name("test")
        await _execute(self.server, f'CREATE DATABASE "{name}" TEMPLATE "{self.name}"')
        return Database(template=self, name=name)

    def at(self, name: str) -> Dsn:
        """The address of another database of the server."""
        return Dsn(urlunsplit(urlsplit(self.server.reveal())._replace(path=f"/{name}")))

    async def _install(self) -> None:
        await _execute(self.server, f'CREATE DATABASE "{self.name}"')
        connection = await asyncpg.connect(self.at(self.name).reveal())
        await migrate(connection, self.schema)
        await connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database of a test's own."""

    template: Template
    name: str

    @property
    def dsn(self) -> str:
        """Its address, for any client."""
        return self.template.at(self.name).reveal()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection, to prepare tables and to look at what has become of them."""
        connection = await asyncpg.connect(self.dsn)
        try:
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def serves(self, app: App) -> AsyncIterator[App]:
        """Let the app use this database, and publish, while the context is open. It handles nothing: `drained` does.

        The database knows its receptors, perspectives and subscribers, as if an instance had been started before.
        """
        settings = replace(app.settings, dsn=Dsn(self.dsn), direct_dsn=None)
        if settings.schema != self.template.schema:
            async with self.connect() as connection:
                await migrate(connection, settings.schema)
        with app.instead(settings):
            async with app.connected(), open_pool(Dsn(self.dsn), size=1) as pool:
                await make_all_known(Service(app), pool)
                yield app

    @asynccontextmanager
    async def another(self) -> AsyncIterator[Database]:
        """One more, as new as this one was."""
        database = await self.template.copy()
        try:
            yield database
        finally:
            await database.drop()

    async def drop(self) -> None:
        """Remove it, whoever is connected."""
        await _execute(self.template.server, f'DROP DATABASE "{self.name}" WITH (FORCE)')


def in_a_loop_of_its_own(work: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine, in a thread: whatever pytest does with the loop of this one is left alone."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def _new_name(kind: str) -> str:
    return f"wh_{kind}_{uuid4().hex}"


async def _execute(dsn: Dsn, statement: str) -> None:
    connection = await asyncpg.connect(dsn.reveal())
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
