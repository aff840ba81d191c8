"""Given, when, then for receptors, on a real database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

import whippletree as wt
from whippletree.errors import UnknownName, UsageError
from whippletree.testing import Database, receptor
from whippletree.work.trial import ChangedRows


@dataclass(frozen=True)
class Stocked:
    article: str
    count: int


@dataclass(frozen=True)
class Reserve:
    article: str
    count: int


@dataclass(frozen=True)
class Reserved:
    article: str
    count: int


async def stock_up(event: Stocked, tx: wt.Transaction) -> None:
    await tx.execute("INSERT INTO public.stock VALUES ($1, $2)", event.article, event.count)


async def reserve(command: Reserve, tx: wt.Transaction) -> Reserved:
    await tx.execute("UPDATE public.stock SET count = count - $2 WHERE article = $1", command.article, command.count)
    return Reserved(command.article, command.count)


@pytest.fixture
async def app(database: Database) -> AsyncIterator[wt.App]:
    app = wt.App("stock")
    app.event(stream="article")(Stocked)
    app.command(stream="article")(Reserve)
    app.event(stream="article")(Reserved)
    app.receptor(stock_up)
    app.receptor(reserve)
    async with database.connect() as connection, database.serves(app):
        await connection.execute(
            "CREATE TABLE public.stock (article text PRIMARY KEY, count integer CHECK (count >= 0))"
        )
        yield app


async def test_what_a_receptor_returned_and_changed_is_told(app: wt.App, database: Database) -> None:
    handled = await receptor(app, reserve).given(Stocked("bolt", 5)).when(Reserve("bolt", 2))
    handled.then(Reserved("bolt", 2), changed=[ChangedRows(table="public.stock", updated=1)])
    with pytest.raises(AssertionError, match="reserve returned"):
        handled.then()
    async with database.connect() as connection:
        assert await connection.fetchval("SELECT count FROM public.stock") == 3
        types = await connection.fetch("SELECT event_type FROM whippletree.wh_event_store ORDER BY version")
        assert [row[0] for row in types] == ["Stocked", "Reserved"]


async def test_a_receptor_of_an_event_is_called_alone(app: wt.App) -> None:
    handled = await receptor(app, stock_up).when(Stocked("nut", 1))
    handled.then(changed=[ChangedRows(table="public.stock", inserted=1)])


async def test_a_receptor_that_raises_leaves_nothing(app: wt.App, database: Database) -> None:
    handled = await receptor(app, "reserve").given(Stocked("bolt", 1)).when(Reserve("bolt", 2))
    assert "stock_count_check" in str(handled.then_raises(Exception))
    with pytest.raises(AssertionError, match="reserve raised CheckViolationError"):
        handled.then()
    async with database.connect() as connection:
        assert await connection.fetchval("SELECT count FROM public.stock") == 1


async def test_what_is_no_receptor_of_the_message_is_said(app: wt.App) -> None:
    with pytest.raises(UsageError, match="reserve does not handle Stocked"):
        await receptor(app, reserve).when(Stocked("bolt", 1))
    with pytest.raises(UnknownName, match="is no receptor of stock"):
        receptor(app, print)
