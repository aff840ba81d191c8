"""What the operator sees on a terminal: aligned, whole where it is copied, coloured where it matters."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import TypeAlias

import asyncpg
from rich.console import Console

from examples.screenshots.drawing import said_on_a_terminal
from tests.cli.conftest import PROGRAM, Command
from tests.house.tree import ROOT
from tests.scenario import Given, RowsWorker, failure
from tests.waiting import until
from tests.work.following import Diary, append, make_effects, running
from whippletree.cli import console
from whippletree.settings import Dsn
from whippletree.work.subscriber_row import SubscriptionState

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


async def on_a_terminal(dsn: Dsn, *words: str, columns: int = 80) -> str:
    environment = os.environ | {"WHIPPLETREE_DSN": dsn.reveal(), "PYTHONPATH": str(ROOT / "src")}
    environment.pop("NO_COLOR", None)
    return await asyncio.to_thread(said_on_a_terminal, words, environment, ROOT, columns)


def drawn(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    screen = Console(width=width, force_terminal=False)
    with screen.capture() as capture:
        screen.print(console.table(columns, rows, empty=""))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_sentence_stands_beside_its_row_where_there_is_room_and_below_where_there_is_none() -> None:
    columns = ("queue", "stream", "since", "error")
    rows = [("perspective/order_summary", "order-17", "12 min", "KeyError: 'total' in the third line of the order")]
    assert drawn(columns, rows, 100)[2].startswith("perspective/order_summary  order-17  12 min  KeyError: 'total'")
    assert drawn(columns, rows, 60)[2:] == [
        "perspective/order_summary  order-17  12 min",
        "    KeyError: 'total' in the third line of the order",
    ]


def test_a_row_is_a_list_where_its_names_would_be_cut_off() -> None:
    columns = ("queue", "stream", "since", "error")
    rows = [("perspective/order_summary", "order-40", "12 min", "KeyError"), ("inbox", "order-4", "9 s", "-")]
    assert drawn(columns, rows, 36) == [
        "queue   perspective/order_summary",
        *("stream  order-40", "since   12 min", "error   KeyError", ""),
        *("queue   inbox", "stream  order-4", "since   9 s", "error   -", ""),
    ]


def test_numbers_and_times_stand_to_the_right_and_ids_to_the_left_in_one_piece() -> None:
    rows = [("5", "10,000", "01a1e2ba-fcf2-750f-b217-ec06e7cc34b2"), ("12 min", "-", "01a1e2bb-0241")]
    lines = drawn(("age", "behind", "id"), rows, 80)
    assert lines[2:] == [
        "     5  10,000  01a1e2ba-fcf2-750f-b217-ec06e7cc34b2",
        "12 min       -  01a1e2bb-0241",
    ]


async def test_no_line_is_wider_than_the_terminal_and_names_stay_whole(dsn: Dsn, pool: Pool, given: Given) -> None:
    alice = RowsWorker(pool, "orders", max_attempts=1)
    (first,) = await given.outbox("order-with-a-rather-long-name-17")
    await alice.claims()
    await alice.reports(failure(first, error="KeyError: 'total' is missing from a message that somebody else made"))
    for words in (("status",), ("parked",), ("why", "outbox"), ("streams", "show", "order-with-a-rather-long-name-17")):
        lines = CODES.sub("", await on_a_terminal(dsn, *words)).splitlines()
        assert max(map(len, lines)) <= 80, lines
    assert "order-with-a-rather-long-name-17" in CODES.sub("", await on_a_terminal(dsn, "parked"))


async def test_what_is_wrong_is_red_and_what_is_well_is_green(dsn: Dsn, db: asyncpg.Connection, given: Given) -> None:
    assert "\x1b[32mall is well" in await on_a_terminal(dsn, "status")
    await given.outbox("order-17")
    await db.execute("UPDATE wh_active_streams SET ready_at = clock_timestamp()")
    assert "\x1b[1;31mcritical: nobody works outbox" in await on_a_terminal(dsn, "status")
    assert "\x1b[1;31mpartition " in await on_a_terminal(dsn, "why", "order-17")


async def test_a_pipe_gets_plain_sentences_in_one_piece(whippletree: Command, given: Given, pool: Pool) -> None:
    alice = RowsWorker(pool, "orders", max_attempts=1)
    (first,) = await given.outbox("order-17")
    await alice.claims()
    await alice.reports(failure(first, error="no " * 300 + "more"))
    said = (await whippletree("why", "order-17")).stdout
    assert "no " * 300 + "more" in said
    assert "\x1b" not in said


async def test_status_is_watched_as_lines_of_json(dsn: Dsn, given: Given) -> None:
    words = ("status", "--watch", "--json")
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *words),
        env=os.environ | {"WHIPPLETREE_DSN": dsn.reveal(), "PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert json.loads(await program.stdout.readline())["alerts"] == []
            await given.outbox("order-17")
            while not json.loads(await program.stdout.readline())["alerts"]:
                pass
    finally:
        program.kill()
        await program.wait()


async def test_watching_and_checking_exclude_each_other(whippletree: Command) -> None:
    done = await whippletree("status", "--watch", "--check")
    assert (done.returncode, "use one of them" in done.stderr) == (2, True)


async def test_status_tells_of_subscribers_that_are_paused_or_that_nobody_follows(
    whippletree: Command, dsn: Dsn, pool: Pool, db: asyncpg.Connection
) -> None:
    await make_effects(db)
    await append(pool, "First")
    async with running(dsn, Diary()) as follower:
        await until(lambda: follower.state() is SubscriptionState.LIVE)
    await append(pool, "Second", "Third")
    done = await whippletree("status", "--check")
    assert "critical: nobody follows subscriber diary, 2 events behind; start `whippletree run`" in done.stdout
    assert done.returncode == 1
    await whippletree("subscribers", "pause", "diary")
    told = (await whippletree("status")).stdout
    assert "warning: subscriber diary is paused, 2 events behind; `whippletree subscribers resume diary`" in told


async def test_status_tells_that_all_who_could_work_are_draining(
    whippletree: Command, pool: Pool, db: asyncpg.Connection, given: Given
) -> None:
    alice = RowsWorker(pool, "orders")
    await alice.polls()
    await given.outbox("order-17")
    await db.execute("UPDATE wh_active_streams SET ready_at = clock_timestamp()")
    assert "nobody works" not in (await whippletree("status")).stdout
    await db.execute("SELECT drain_instance($1)", alice.instance_id)
    assert "critical: nobody works outbox, and work waits there" in (await whippletree("status")).stdout


async def test_a_parked_subscriber_is_named_among_what_is_parked(
    whippletree: Command, db: asyncpg.Connection, pool: Pool
) -> None:
    await append(pool, "First")
    await db.execute("SELECT number_events()")
    await db.execute("SELECT register_subscriber('diary', 0, false)")
    await db.execute("UPDATE wh_subscribers SET state = 'parked', failed_number = 1, error = 'spoilt', attempts = 3")
    assert "subscriber diary is parked too" in (await whippletree("parked")).stdout


async def test_perspectives_are_listed_with_their_lag_in_events_and_seconds(
    whippletree: Command, db: asyncpg.Connection, pool: Pool
) -> None:
    await db.execute("SELECT register_perspective('summary', '{OrderPlaced}')")
    await append(pool, "OrderPlaced", "OrderPlaced")
    (seen,) = json.loads((await whippletree("perspectives", "list", "--json")).stdout)
    assert (seen["waiting"], seen["lag"] > 0) == (2, True)
    (queue,) = [
        queue
        for queue in json.loads((await whippletree("status", "--json")).stdout)["queues"]
        if queue["queue"] == "perspective/summary"
    ]
    assert (queue["waiting"], queue["oldest"] > 0) == (2, True)


async def test_what_waits_for_a_receptor_are_the_events_that_it_wants(
    whippletree: Command, db: asyncpg.Connection, pool: Pool
) -> None:
    await db.execute("SELECT register_receptor('mail', '{OrderPlaced}')")
    await append(pool, "Noted", "OrderPlaced", "Noted", "OrderPlaced", "Noted")
    seen = json.loads((await whippletree("status", "--json")).stdout)["queues"]
    assert {queue["queue"]: queue["waiting"] for queue in seen}["receptor/mail"] == 2
