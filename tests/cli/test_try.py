"""`whippletree try`: today's code on a message that has stopped, without a trace."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

import whippletree as wt
from tests.cli.conftest import Done, run
from tests.work.shop import Placed, Reserve, new_app
from whippletree.settings import Dsn
from whippletree.testing.draining import NotDrained, drained

MODULE = """
import whippletree as wt
from tests.work.shop import Placed, Reserve, Reserved

app = wt.App("shop")
app.event(stream="order")(Placed)
app.command(stream="order")(Reserve)
app.event(stream="order")(Reserved)

@app.receptor
async def reserve(command: Reserve, tx: wt.Transaction) -> Reserved:
    await tx.execute("INSERT INTO public.effects VALUES ($1)", command.order)
    return Reserved(command.order, 7 // command.number)

@app.receptor{options}
async def look(event: Placed{transaction}) -> None:
    ...
"""


@pytest.fixture
async def stopped(dsn: Dsn, db: asyncpg.Connection) -> dict[str, UUID]:
    """Messages at which the receptors of yesterday stopped."""
    await db.execute("CREATE TABLE public.effects (name text)")
    app = new_app(dsn)

    @app.receptor(retry=wt.Retry(attempts=1))
    async def reserve(command: Reserve) -> None:
        raise ValueError("yesterday")

    @app.receptor(retry=wt.Retry(attempts=1))
    async def look(event: Placed) -> None:
        raise ValueError("yesterday")

    async with app.connected():
        await drained(app)
        messages = {"good": Reserve("good", 1), "bad": Reserve("bad", 0), "event": Placed("event")}
        receipts = {name: await app.publish(message) for name, message in messages.items()}
        with pytest.raises(NotDrained, match="yesterday"):
            await drained(app)
    return {name: UUID(str(receipt.message_id)) for name, receipt in receipts.items()}


async def trying(thing: object, dsn: Dsn, place: Path, options: str = "", transaction: str = "") -> Done:
    (place / "today.py").write_text(MODULE.replace("{options}", options).replace("{transaction}", transaction))
    return await run(dsn, "try", str(thing), "today:app", place=place)


async def test_rows_and_messages_are_shown_and_nothing_is_left(
    stopped: dict[str, UUID], dsn: Dsn, db: asyncpg.Connection, tmp_path: Path
) -> None:
    done = await trying(stopped["good"], dsn, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "public.effects" in done.stdout
    assert 'would send event Reserved: {"order":"good","number":7}' in done.stdout
    assert await db.fetchval("SELECT count(*) FROM public.effects") == 0
    assert await db.fetchval("SELECT count(*) FROM wh_event_store WHERE event_type = 'Reserved'") == 0
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams WHERE ready_at = 'infinity'") == 3


async def test_the_traceback_is_shown(stopped: dict[str, UUID], dsn: Dsn, tmp_path: Path) -> None:
    done = await trying(stopped["bad"], dsn, tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stdout
    assert "7 // command.number" in done.stdout


async def test_a_stored_event_is_tried_with_its_receptor(stopped: dict[str, UUID], dsn: Dsn, tmp_path: Path) -> None:
    done = await trying(stopped["event"], dsn, tmp_path, transaction=", tx: wt.Transaction")
    assert (done.returncode, done.stderr) == (0, "")
    assert "receptor/look: it would succeed" in done.stdout


async def test_what_cannot_be_undone_is_not_called(stopped: dict[str, UUID], dsn: Dsn, tmp_path: Path) -> None:
    done = await trying(stopped["event"], dsn, tmp_path, options='(effects="external")')
    assert done.returncode == 2
    assert "look has effects='external', which cannot be undone" in done.stderr


async def test_a_stopped_stream_is_named_by_its_key(stopped: dict[str, UUID], dsn: Dsn, tmp_path: Path) -> None:
    done = await trying("good", dsn, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "inbox: it would succeed" in done.stdout


async def test_what_has_not_stopped_is_not_tried(stopped: dict[str, UUID], dsn: Dsn, tmp_path: Path) -> None:
    done = await trying(UUID(int=7), dsn, tmp_path)
    assert done.returncode == 2
    assert "nothing has stopped at" in done.stderr
