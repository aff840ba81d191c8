"""`whippletree try` on an event at which a perspective and a subscriber have stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

import whippletree as wt
from tests.cli.conftest import Done, run
from tests.work.shop import Placed, new_app
from whippletree.settings import Dsn
from whippletree.testing.draining import NotDrained, drained

MODULE = """
from dataclasses import dataclass
import whippletree as wt
from tests.work.shop import Placed

@dataclass
class Total:
    number: int

app = wt.App("shop")
app.event(stream="order")(Placed)

@app.perspective
def total(row: Total | None, event: Placed) -> Total:
    return Total(7 // {number})

@app.subscriber("diary")
async def write(event: Placed, {parameter}) -> None:
    await tx.execute("INSERT INTO public.effects VALUES ($1)", event.order)
    7 // {number}
"""
ONCE = wt.Retry(attempts=1)


@dataclass
class Total:
    number: int


@pytest.fixture
async def stopped(dsn: Dsn, db: asyncpg.Connection) -> UUID:
    """An event at which the code of yesterday stopped."""
    await db.execute("CREATE TABLE public.effects (name text)")
    app = new_app(dsn)

    @app.perspective(retry=ONCE)
    def total(row: Total | None, event: Placed) -> Total:
        raise ValueError("yesterday")

    @app.subscriber("diary", retry=ONCE)
    async def write(event: Placed, tx: wt.Transaction) -> None:
        raise ValueError("yesterday")

    async with app.connected():
        await drained(app)
        receipt = await app.publish(Placed("order-17"))
        with pytest.raises(NotDrained, match="yesterday"):
            await drained(app)
    return UUID(str(receipt.message_id))


async def trying(
    thing: object, dsn: Dsn, place: Path, number: str = "1", parameter: str = "tx: wt.Transaction"
) -> Done:
    (place / "today.py").write_text(MODULE.replace("{number}", number).replace("{parameter}", parameter))
    return await run(dsn, "try", str(thing), "today:app", place=place)


async def test_the_row_and_the_effects_are_shown_and_nothing_is_left(
    stopped: UUID, dsn: Dsn, db: asyncpg.Connection, tmp_path: Path
) -> None:
    done = await trying(stopped, dsn, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'perspective/total: it would succeed; nothing was written\nwould make the row {"number":7}' in done.stdout
    assert "subscriber/diary: it would succeed; everything was rolled back" in done.stdout
    assert "public.effects" in done.stdout
    assert await db.fetchval("SELECT count(*) FROM public.effects") == 0
    assert await db.fetchval("SELECT count(*) FROM wh_rows_total") == 0
    assert await db.fetchval("SELECT state FROM wh_subscribers") == "parked"


async def test_both_tracebacks_are_shown(stopped: UUID, dsn: Dsn, tmp_path: Path) -> None:
    done = await trying(stopped, dsn, tmp_path, number="0")
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("ZeroDivisionError") == 2
    assert done.stdout.count("7 // 0") == 2


@pytest.mark.usefixtures("stopped")
async def test_a_subscriber_is_named_by_its_name(dsn: Dsn, tmp_path: Path) -> None:
    done = await trying("diary", dsn, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("subscriber/diary: it would succeed")


async def test_one_that_cannot_be_undone_does_not_keep_the_others(stopped: UUID, dsn: Dsn, tmp_path: Path) -> None:
    done = await trying(stopped, dsn, tmp_path, parameter="key: wt.IdempotencyKey")
    assert (done.returncode, done.stderr) == (0, "")
    assert "perspective/total: it would succeed" in done.stdout
    assert "subscriber/diary: diary takes no Transaction" in done.stdout


@pytest.mark.usefixtures("stopped")
async def test_a_subscriber_whose_effects_cannot_be_undone_is_not_called(dsn: Dsn, tmp_path: Path) -> None:
    done = await trying("diary", dsn, tmp_path, parameter="key: wt.IdempotencyKey")
    assert done.returncode == 2
    assert "diary takes no Transaction: what it does cannot be undone, so it is not called" in done.stderr
