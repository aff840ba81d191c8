"""Database roles that last as long as a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from os import getpid
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.conftest import SCHEMA
from whippletree.settings import Dsn
from whippletree.store.roles import RoleKind, grant

_numbers = count(1)


@asynccontextmanager
async def a_role(dsn: Dsn, *kinds: RoleKind) -> AsyncIterator[str]:
    """The name of a new role that was granted these kinds by the owner. It can log in, and is its own password."""
    name = f"wh_test_{getpid()}_{next(_numbers)}"
    owner = await asyncpg.connect(dsn.reveal())
    await owner.execute(f"CREATE ROLE {name} LOGIN NOSUPERUSER PASSWORD '{name}'")
    try:
        for kind in kinds:
            await grant(owner, SCHEMA, kind, name)
        yield name
    finally:
        await owner.execute(f"DROP OWNED BY {name} CASCADE")
        await owner.execute(f"DROP ROLE {name}")
        await owner.close()


def login(dsn: Dsn, role: str) -> Dsn:
    """The same database, as the role."""
    parts = urlsplit(dsn.reveal())
    host = parts.netloc.rpartition("@")[2]
    return Dsn(urlunsplit(parts._replace(netloc=f"{role}:{role}@{host}")))
