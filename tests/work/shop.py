"""A small service whose receptors do what a test tells them to, in the words of the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import asyncpg

import whippletree as wt
from tests.waiting import until
from whippletree.claim.coordinator import CoordinatorSettings
from whippletree.service import Service, ServiceSettings
from whippletree.settings import Dsn
from whippletree.work.loop import LoopSettings
from whippletree.work.settings import ReceptorSettings

QUICK = wt.Retry(attempts=3, first_pause=0.01, longest_pause=0.02)


@dataclass(frozen=True)
class Placed:
    order: str
    number: int = 0


@dataclass(frozen=True)
class Reserve:
    order: str
    number: int = 0


@dataclass(frozen=True)
class Reserved:
    order: str
    number: int = 0


def new_app(dsn: Dsn) -> wt.App:
    """An app that knows its messages and nobody who handles them."""
    app = wt.App("shop", dsn=dsn.reveal())
    app.event(stream="order")(Placed)
    app.command(stream="order")(Reserve)
    app.event(stream="order")(Reserved)
    return app


def settings(**receptors: Any) -> ServiceSettings:
    return ServiceSettings(
        receptors=ReceptorSettings(**receptors),
        coordinator=CoordinatorSettings(lease_seconds=10),
        loop=LoopSettings(polling_interval=0.05),
        grace=10,
    )


@asynccontextmanager
async def running(app: wt.App, chosen: ServiceSettings | None = None, **changes: Any) -> AsyncIterator[Service]:
    service = Service(app, replace(chosen or settings(), **changes))
    async with service.running():
        yield service


async def drained(db: asyncpg.Connection) -> None:
    """Until no message waits, but for those that are parked."""
    await until(lambda: db.fetchval("SELECT NOT EXISTS (SELECT FROM wh_active_streams WHERE ready_at < 'infinity')"))
