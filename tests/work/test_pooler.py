"""A whole service behind a pooler in transaction mode that knows nothing of prepared statements."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
import pytest

import whippletree as wt
from tests.claim.wire import pooler
from tests.waiting import until
from tests.work.shop import Reserve, Reserved, new_app, running
from whippletree.errors import InvalidSetting
from whippletree.settings import Dsn

STREAMS, EACH = 5, 4
SINGLE, COORDINATED = wt.InstanceMode.SINGLE_INSTANCE, wt.InstanceMode.COORDINATED


@dataclass(frozen=True)
class Count:
    count: int


@asynccontextmanager
async def _shop(dsn: Dsn, db: asyncpg.Connection, mode: wt.InstanceMode) -> AsyncIterator[wt.App]:
    """A service whose receptor and subscriber write down what they see, and whose perspective counts it."""
    await db.execute("CREATE TABLE public.seen (id serial, who text, stream text, number integer)")
    write = "INSERT INTO public.seen (who, stream, number) VALUES ($1, $2, $3)"
    async with pooler(dsn, backends=2, honest=False) as address:
        app = new_app(address)

        @app.receptor
        async def reserve(command: Reserve, tx: wt.Transaction) -> Reserved:
            await tx.execute(write, "receptor", command.order, command.number)
            return Reserved(command.order, command.number)

        @app.perspective
        def reservations(row: Count | None, event: Reserved) -> Count:
            return Count(1 if row is None else row.count + 1)

        @app.subscriber("diary", mode=mode)
        async def diary(event: Reserved, tx: wt.Transaction) -> None:
            await tx.execute(write, "subscriber", event.order, event.number)

        async with app.connected(), running(app):
            yield app


@pytest.mark.parametrize(("mode", "direct"), [(SINGLE, False), (SINGLE, True), (COORDINATED, True)])
async def test_behind_a_pooler_everything_is_handled_in_order(
    dsn: Dsn, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, mode: wt.InstanceMode, direct: bool
) -> None:
    if direct:
        monkeypatch.setenv("WHIPPLETREE_DIRECT_DSN", dsn.reveal())
    async with _shop(dsn, db, mode) as app:
        for number in range(EACH):
            await app.publish_all([Reserve(f"order-{stream}", number) for stream in range(STREAMS)])
        await until(lambda: db.fetchval("SELECT count(*) = $1 FROM public.seen", 2 * STREAMS * EACH))
        seen = await db.fetch("SELECT who, stream, array_agg(number ORDER BY id) AS n FROM public.seen GROUP BY 1, 2")
        assert [row["n"] for row in seen] == [list(range(EACH))] * 2 * STREAMS

        async def counted() -> bool:
            return {await app.rows("reservations").get(f"order-{n}") for n in range(STREAMS)} == {Count(EACH)}

        await until(counted)


async def test_behind_a_pooler_without_a_direct_address_coordination_is_refused(
    dsn: Dsn, db: asyncpg.Connection
) -> None:
    with pytest.raises(InvalidSetting, match=r"diary is coordinated.*pooler.*WHIPPLETREE_DIRECT_DSN"):
        async with _shop(dsn, db, COORDINATED):
            pass
