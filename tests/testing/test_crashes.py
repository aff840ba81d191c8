"""Crash injection: safe receptors are found safe, and of the others it is said where they are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

import whippletree as wt
from whippletree.testing import Database, survives_crashes
from whippletree.testing.crashes import Boundary

INSERT = "INSERT INTO public.payments (order_name, total) VALUES ($1, $2)"
ALL = set(Boundary)


@dataclass(frozen=True)
class Pay:
    order: str
    total: int


@dataclass(frozen=True)
class Paid:
    order: str
    payment: UUID


async def tables(connection: asyncpg.Connection) -> None:
    await connection.execute("CREATE TABLE public.payments (id serial, order_name text, total integer)")


@pytest.fixture
def app() -> wt.App:
    app = wt.App("bank")
    app.command(stream="order")(Pay)
    app.event(stream="order")(Paid)
    return app


@pytest.fixture
def crashing(app: wt.App, database: Database) -> Callable[..., Any]:
    async def crashing(outside: Callable[[], list[Any]] = list) -> dict[Boundary, str]:
        report = await survives_crashes(
            app, "pay", Pay("order-1", 5), database=database, prepare=tables, outside=outside
        )
        assert report.safe == (not report.findings)
        assert all(words in str(report) for _, words in report.findings)
        return dict(report.findings)

    return crashing


async def test_a_receptor_that_works_in_its_transaction_is_safe(app: wt.App, crashing: Callable[..., Any]) -> None:
    calls = []

    @app.receptor
    async def pay(command: Pay, tx: wt.Transaction) -> Paid:
        calls.append(command)
        await tx.execute(INSERT, command.order, command.total)
        return Paid(command.order, uuid4())

    assert await crashing() == {}
    # Twice undisturbed; a crash before the call or after the commit costs no further call.
    assert len(calls) == 2 + 1 + 2 + 2 + 1 + 1


async def test_writing_on_another_connection_is_found(app: wt.App, crashing: Callable[..., Any]) -> None:
    @app.receptor
    async def pay(command: Pay, tx: wt.Transaction) -> Paid:
        other = await asyncpg.connect(app.settings.dsn.reveal() if app.settings.dsn else None)
        await other.execute(INSERT, command.order, command.total)
        await other.close()
        return Paid(command.order, uuid4())

    found = await crashing()
    assert set(found) == {Boundary.AFTER_EFFECTS, Boundary.BEFORE_COMMIT}
    assert "public.payments has 2 rows instead of 1" in found[Boundary.AFTER_EFFECTS]


async def test_an_effect_outside_that_happens_twice_is_found(app: wt.App, crashing: Callable[..., Any]) -> None:
    charged: list[str] = []

    @app.receptor
    def pay(command: Pay) -> None:
        charged.append(command.order)

    found = await crashing(lambda: charged)
    assert set(found) == {Boundary.AFTER_EFFECTS, Boundary.BEFORE_COMMIT}
    assert "acted outside 2 times instead of 1" in found[Boundary.BEFORE_COMMIT]


async def test_an_external_receptor_that_hands_on_its_key_is_safe(app: wt.App, crashing: Callable[..., Any]) -> None:
    charged: dict[str, str] = {}

    @app.receptor(effects="external")
    async def pay(command: Pay, key: wt.IdempotencyKey) -> None:
        charged[key] = command.order

    assert await crashing(lambda: list(charged.values())) == {}


async def test_publishing_beside_the_transaction_is_found(app: wt.App, crashing: Callable[..., Any]) -> None:
    @app.receptor
    async def pay(command: Pay, tx: wt.Transaction) -> None:
        await app.publish(Paid(command.order, uuid4()))

    found = await crashing()
    assert set(found) == {Boundary.AFTER_EFFECTS, Boundary.BEFORE_COMMIT}
    assert "it published 2 Paid instead of 1 Paid" in found[Boundary.AFTER_EFFECTS]
