"""Rebuilding a perspective, as an operator does it, while its program runs."""

from __future__ import annotations

import json

import asyncpg

from tests.cli.test_operating import Command, whippletree
from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, Pool, Shop, Summary

__all__ = ["whippletree"]
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
        assert "generation 2: 1 events, 0 to go" in (await whippletree("perspectives", "list")).stdout
        compared = await whippletree("perspectives", "compare", NAME)
        assert f'changed   {S}   {{"total": 9' in " ".join(compared.stdout.split()).replace(" ", " ") or compared.stdout
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
    assert "built but for 1 parked streams; `whippletree parked --queue perspective/order_summary@2`" in waited.stderr
    shown = await whippletree("parked", "--queue", "perspective/order_summary@2", "--json")
    assert "event 2 (OrderChanged)" in json.loads(shown.stdout)[0]["error"]
    why = await whippletree("why", str(S))
    assert "has work in perspective/order_summary@2" in why.stdout
    gone = await whippletree("perspectives", "abandon", NAME, "--yes")
    assert gone.stdout == "dropped: generation 2 of order_summary\n", gone.stderr
    assert (await whippletree("perspectives", "abandon", NAME, "--yes")).returncode == 2
    assert (await whippletree("perspectives", "rebuild", "nothing")).returncode == 2
