"""Rebuilding a perspective, as an operator does it, while its program runs."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest

from tests.accounts import Account, account
from tests.accounts import Shop as Accounts
from tests.cli.conftest import Command
from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, Pool, Shop, Summary
from tests.work.following import running
from whippletree.settings import Dsn

NAME = "order_summary"


async def test_a_perspective_is_rebuilt_compared_swapped_and_undone(
    whippletree: Command, pool: Pool, db: asyncpg.Connection
) -> None:
    shop = Shop(pool)
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1))
    async with shop.worker().running() as instance:
        await instance.idle()
        await db.execute("""UPDATE wh_rows_order_summary_g1 SET row = row || '{"total": 9}'""")
        built = await whippletree("perspectives", "rebuild", NAME)
        assert (built.returncode, built.stdout) == (
            0,
            "generation 2 of order_summary is built: compare it, then swap it\n",
        ), built.stderr
        listed = json.loads((await whippletree("perspectives", "list", "--json")).stdout)
        assert (listed[0]["building_generation"], listed[0]["rebuilt"], listed[0]["rebuild_waiting"]) == (2, 1, 0)
        assert "generation 2: 1 event, 0 to go" in (await whippletree("perspectives", "list")).stdout
        compared = await whippletree("perspectives", "compare", NAME)
        shown = compared.stdout.split()
        assert [shown[shown.index(kind) + 1] for kind in ("equal", "changed", "added", "gone")] == ["0", "1", "0", "0"]
        assert str(S) in shown
        assert json.loads((await whippletree("perspectives", "compare", NAME, "--json")).stdout)[1]["count"] == 1

        asked = await whippletree("perspectives", "swap", NAME, answer="n\n")
        assert asked.returncode == 1
        assert await rows.get(S) == Summary("Ada", 9)
        swapped = await whippletree("perspectives", "swap", NAME, "--yes")
        assert swapped.stdout == "swapped: generation 2 of order_summary is live\n", swapped.stderr
        assert await rows.get(S) == Summary("Ada", 1)
        undone = await whippletree("perspectives", "undo", NAME, "--yes")
        assert undone.stdout == "undone: generation 1 of order_summary is live\n", undone.stderr
        assert await rows.get(S) == Summary("Ada", 9)
        dropped = await whippletree("perspectives", "abandon", NAME, "--kept", "--yes")
        assert dropped.stdout == "dropped: generation 2 of order_summary\n", dropped.stderr
    refused = await whippletree("perspectives", "undo", NAME, "--yes")
    assert (refused.returncode, refused.stderr.split(".")[0]) == (
        2,
        "error: order_summary has no rows from before a swap",
    )


async def test_a_rebuild_that_is_parked_says_so_and_can_be_abandoned(whippletree: Command, pool: Pool) -> None:
    shop = Shop(pool)
    await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1), OrderChanged(S, -1))
    begun = await whippletree("perspectives", "rebuild", NAME, "--no-wait")
    assert begun.stdout == "generation 2 of order_summary is being built: 2 events to go\n", begun.stderr
    await shop.catches_up()
    await pool.execute("UPDATE whippletree.wh_active_streams SET ready_at = 'infinity'")
    waited = await whippletree("perspectives", "rebuild", NAME)
    assert waited.returncode == 1
    assert "built but for 1 parked stream; `whippletree parked --queue perspective/order_summary@2`" in waited.stderr
    shown = await whippletree("parked", "--queue", "perspective/order_summary@2", "--json")
    assert "event 2 (OrderChanged)" in json.loads(shown.stdout)[0]["error"]
    why = await whippletree("why", str(S))
    assert "has work in perspective/order_summary@2" in why.stdout
    gone = await whippletree("perspectives", "abandon", NAME, "--yes")
    assert gone.stdout == "dropped: generation 2 of order_summary\n", gone.stderr
    assert (await whippletree("perspectives", "abandon", NAME, "--yes")).returncode == 2
    assert (await whippletree("perspectives", "rebuild", "nothing")).returncode == 2


PROGRAM = """
from dataclasses import dataclass
from uuid import UUID
import whippletree as wt

app = wt.App("orders")

@app.event(stream="order_id")
@dataclass(frozen=True)
class OrderPlaced:
    order_id: UUID
    customer: str
    total: int

@dataclass(frozen=True)
class Summary:
    customer: str
    total: int

@app.perspective
def order_summary(row: Summary | None, event: OrderPlaced) -> Summary:
    return Summary(event.customer, event.total)
"""


async def test_the_state_of_a_stream_is_shown_as_the_program_folds_it(
    whippletree: Command, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    shop = Shop(pool)
    await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1), OrderPlaced(S, "Ada", 2))
    show = ("perspectives", "show", NAME, str(S), "--app", "shop_program:app")
    for at, row in (("1", {"customer": "Ada", "total": 1}), ("2001-01-01T00:00:00+00:00", None)):
        shown = await whippletree(*show, "--at", at)
        assert json.loads(shown.stdout) == row, shown.stderr
    assert json.loads((await whippletree(*show)).stdout)["total"] == 2
    assert (await whippletree(*show, "--at", "yesterday")).returncode == 2


async def test_the_row_of_one_stream_is_made_anew_by_the_program(
    whippletree: Command, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: asyncpg.Connection
) -> None:
    (tmp_path / "shop_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    shop = Shop(pool)
    rows = await shop.opens()
    await shop.append(S, OrderPlaced(S, "Ada", 1), OrderPlaced(S, "Ada", 2))
    await shop.catches_up()
    await db.execute(f"""UPDATE wh_rows_{NAME}_g1 SET row = row || '{{"total": 9}}'""")
    command = ("perspectives", "rebuild", NAME, "--stream", str(S))
    done = await whippletree(*command, "--app", "shop_program:app")
    assert done.stdout == f"the row of {S} in {NAME} is made anew\n", done.stderr
    assert await rows.find() == [Summary("Ada", 2)]
    alone = await whippletree(*command)
    assert (alone.returncode, "give both --stream and --app" in alone.stderr) == (2, True)
    unknown = await whippletree("perspectives", "rebuild", NAME, "--stream", "nobody", "--app", "shop_program:app")
    assert (unknown.returncode, "has no events" in unknown.stderr) == (2, True)


KEY_PROGRAM = """
import whippletree as wt
from tests.accounts import Bought, account

app = wt.App("shop")
app.event(stream="order")(Bought)
app.perspective(key=lambda event: event.customer)(account)
"""


async def test_the_row_of_one_key_is_made_anew_by_the_program(
    whippletree: Command, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: asyncpg.Connection, dsn: Dsn
) -> None:
    (tmp_path / "key_program.py").write_text(KEY_PROGRAM)
    monkeypatch.chdir(tmp_path)
    accounts = Accounts(pool, account)
    live, rows = await accounts.opens()
    async with running(dsn, live):
        for order in ("order-1", "order-2"):
            receipt = await accounts.sells(order, "Ada", 2)
        await receipt.applied("account", timeout=60)
    await db.execute("""UPDATE wh_rows_account_g1 SET row = row || '{"total": 9}'""")
    command = ("perspectives", "rebuild", "account", "--app", "key_program:app", "--stream")
    done = await whippletree(*command, "Ada")
    assert done.stdout == "the row of Ada in account is made anew\n", done.stderr
    assert await rows.find() == [Account(("order-1", "order-2"), 4)]
    unknown = await whippletree(*command, "nobody")
    assert (unknown.returncode, "has the key nobody" in unknown.stderr) == (2, True)
