"""A perspective of an app is folded by its instances, and a receipt waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

import asyncpg
import pytest

import whippletree as wt
from tests.waiting import until
from tests.work.shop import Placed, Reserve, new_app, running
from whippletree.errors import DuplicateName, UnknownName, UsageError
from whippletree.settings import Dsn


@dataclass(frozen=True)
class Summary:
    count: int = 0


async def test_a_receipt_waits_until_the_perspective_has_the_event(dsn: Dsn) -> None:
    app = new_app(dsn)

    @app.perspective(name="order_summary")
    def summary(row: Summary | None, event: Placed) -> Summary | None:
        return Summary((row or Summary()).count + 1)

    @app.receptor
    async def reserve(command: Reserve) -> None: ...

    async with running(app):
        for _ in range(3):
            receipt = await app.publish(Placed("order-1"))
        await receipt.applied("order_summary", timeout=60)
        assert await app.rows(summary).get("order-1") == Summary(3)
        command = await app.publish(Reserve("order-1"))
        with pytest.raises(UsageError, match="wait for the event"):
            await command.applied("order_summary")


async def test_an_app_builds_rows_again_compares_swaps_undoes_and_tells_what_was(dsn: Dsn) -> None:
    app = new_app(dsn)

    @app.perspective(name="summary")
    def counted(row: Summary | None, event: Placed) -> Summary | None:
        return Summary((row or Summary()).count + 1)

    @app.perspective(key=lambda event: "all")
    def everything(row: Summary | None, event: Placed) -> Summary | None:
        return Summary((row or Summary()).count + 1)

    async with running(app):
        for _ in range(3):
            receipt = await app.publish(Placed("order-1"))
        await receipt.applied("summary", timeout=60)
        await receipt.applied(everything, timeout=60)
        rebuilds = app.perspective_rebuilds
        for perspective, key in ((counted, "order-1"), (everything, "all")):
            assert await rebuilds.start(perspective) == 2
            stands = await asyncio.wait_for(rebuilds.until_built(perspective), 60)
            assert (stands.building_generation, stands.rebuild_parked) == (2, 0)
            assert [found.count for found in await rebuilds.compare(perspective)] == [1, 0, 0, 0]
            assert await rebuilds.swap(perspective) == 2
            assert await app.rows(perspective).get(key) == Summary(3)
            assert await rebuilds.undo(perspective) == 1
            assert await rebuilds.forget(perspective) == 2
            assert await rebuilds.abandon(perspective) is None
            assert await app.rows(perspective).get(key) == Summary(3)
        await rebuilds.rebuild_stream(counted, "order-1")
        assert await rebuilds.state_at(counted, "order-1", version=2) == Summary(2)
        assert await rebuilds.state_at(everything, "all") == Summary(3)
        assert await rebuilds.state_at(everything, "nobody") is None
        before = datetime.fromisoformat("2001-01-01T00:00:00+00:00")
        assert await rebuilds.state_at(everything, "all", time=before) is None
        with pytest.raises(UsageError, match="a key has no versions"):
            await rebuilds.state_at(everything, "all", version=2)
        assert [one.perspective_name for one in await rebuilds.overview()] == ["everything", "summary"]
        await rebuilds.rebuild_stream(everything, "all")
        assert await app.rows(everything).get("all") == Summary(3)
        with pytest.raises(UnknownName, match="no perspective of the name other"):
            await rebuilds.start("other")


async def test_a_perspective_says_how_often_and_after_which_errors_an_event_is_tried(
    dsn: Dsn, db: asyncpg.Connection
) -> None:
    app = new_app(dsn)
    tried: dict[str, int] = {}
    quick = wt.Retry(attempts=12, first_pause=0.001, longest_pause=0.002, never=(KeyError,))

    def stumble(name: str, number: int) -> None:
        tried[f"{name} {number}"] = tried.get(f"{name} {number}", 0) + 1
        if number == 1:
            raise KeyError("never again")
        if number == 2 or tried[f"{name} {number}"] < 11:
            raise ValueError("perhaps later")

    @app.perspective(retry=quick)
    def folded(row: Summary | None, event: Placed) -> Summary | None:
        stumble("folded", event.number)
        return Summary(event.number)

    @app.perspective(retry=quick)
    async def written(event: Placed, tx: wt.Transaction) -> None:
        stumble("written", event.number)

    async with running(app):
        for number in (1, 2, 3):
            last = await app.publish(Placed(f"order-{number}", number))
        for name in ("folded", "written"):
            await last.applied(name, timeout=60)
        await until(lambda: db.fetchval("SELECT count(*) = 4 FROM wh_perspective_checkpoints WHERE parked"))
    assert tried == {f"{name} {n}": times for name in ("folded", "written") for n, times in ((1, 1), (2, 12), (3, 11))}


async def test_a_perspective_with_a_key_is_retried_as_it_says(dsn: Dsn, db: asyncpg.Connection) -> None:
    app = new_app(dsn)
    tried: list[int] = []

    @app.perspective(key=lambda event: "all", retry=wt.Retry(attempts=2, first_pause=0.001))
    def everything(row: Summary | None, event: Placed) -> Summary | None:
        tried.append(event.number)
        raise ValueError("less than nothing")

    async with running(app):
        await app.publish(Placed("order-1", 1))
        await until(lambda: db.fetchval("SELECT state = 'parked' FROM wh_subscribers"))
    assert tried == [1, 1]


def test_a_perspective_is_registered_once_under_its_name(dsn: Dsn) -> None:
    app = new_app(dsn)

    def summary(row: Summary | None, event: Placed) -> Summary | None:
        return row

    assert app.perspective(summary) is summary
    with pytest.raises(DuplicateName, match="another name="):
        app.perspective(summary)
    with pytest.raises(UnknownName, match=r"@app\.perspective"):
        app.rows("other")
