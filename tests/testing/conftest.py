"""The fixtures of the kit itself, on the server of this run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from whippletree.testing.database import Database, Template


@pytest.fixture(scope="session")
def kit(server: str) -> Iterator[Template]:
    with Template.made(server) as template:
        yield template


@pytest.fixture
async def database(kit: Template) -> AsyncIterator[Database]:
    database = await kit.copy()
    yield database
    await database.drop()
