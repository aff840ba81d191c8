"""Reports, stores and questions find their rows by key, however many others there are."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from tests.conftest import Connect
from tests.plans.conftest import LIMIT, PER_STREAM, TABLES, Backlog, fill
from tests.plans.explained import Explained, Plan
from tests.scenario import T0
from whippletree.message.envelope import OutboxMessage
from whippletree.message.ids import new_message_id
from whippletree.store.new_messages import as_json

_CLAIM = "SELECT * FROM claim_messages($1, 'outbox', $2, 300, 100, 16777216, 10, '-infinity', $3)"
_BIG = ("wh_messages", "wh_active_streams", "wh_streams")
_CALLS = 8
"""After so many calls PostgreSQL no longer looks at the arguments when it plans."""


async def test_completing_finds_messages_and_streams_by_key(backlog: Backlog) -> None:
    for _ in range(_CALLS):
        streams, tokens = await _claimed(backlog)
        plans = await backlog.explained.plans(
            "SELECT complete_messages($1, $2, $3, $4, $5, false, $6)",
            *(backlog.instance_id, _outbox(streams), streams, tokens, [PER_STREAM] * len(streams), T0),
        )
        _assert_by_key(plans, LIMIT)
    assert not await backlog.connection.fetchval("SELECT count(*) FROM wh_active_streams WHERE head_version > 0")


async def test_removing_drained_streams_looks_for_the_next_message_only(backlog: Backlog) -> None:
    for _ in range(_CALLS):
        streams, _ = await _claimed(backlog)
        rows = await backlog.connection.fetchval(
            "SELECT array_agg(ctid) FROM wh_active_streams WHERE stream_id = ANY ($1)", streams
        )
        plans = await backlog.explained.plans("SELECT remove_drained_streams($1, $2)", rows, [0] * len(streams))
        _assert_by_key(plans, LIMIT)


async def test_renewing_failing_and_releasing_find_their_streams_by_key(backlog: Backlog) -> None:
    for _ in range(_CALLS):
        streams, tokens = await _claimed(backlog)
        held = (backlog.instance_id, _outbox(streams), streams, tokens)
        plans = await backlog.explained.plans("SELECT renew_leases($1, $2, $3, $4, 300, $5)", *held, T0)
        plans += await backlog.explained.plans("SELECT lock_streams($1, $2)", _outbox(streams), streams)
        plans += await backlog.explained.plans(
            "SELECT release_messages($1, $2, $3, $4, $5, $6)", *held, [None] * len(streams), T0
        )
        _assert_by_key(plans, LIMIT)


async def test_reports_in_json_are_looked_up_by_key(backlog: Backlog) -> None:
    for _ in range(_CALLS):
        rows = await backlog.connection.fetch(_CLAIM, backlog.instance_id, LIMIT, T0)
        reports = json.dumps([{"message_id": str(row["message_id"]), "status": 4} for row in rows])
        plans = await backlog.explained.plans(
            "SELECT * FROM read_all_reports($1, jsonb_build_object('p_outbox_completions', $2::text::jsonb))",
            *(backlog.instance_id, reports),
        )
        _assert_by_key(plans, LIMIT)


async def test_messages_in_json_are_looked_up_by_key(backlog: Backlog) -> None:
    stream = await backlog.connection.fetchval("SELECT stream_id FROM wh_streams LIMIT 1")
    for _ in range(_CALLS):
        plans = await _stored_in_json(backlog.explained, stream) + await _stored_in_json(backlog.explained, None)
        _assert_by_key(plans, 2)


async def test_storing_finds_its_streams_by_key(backlog: Backlog) -> None:
    streams: list[UUID] = [
        row[0] for row in await backlog.connection.fetch("SELECT stream_id FROM wh_streams LIMIT $1", LIMIT)
    ]
    count = len(streams)
    nothing: list[Any] = [None] * count
    for _ in range(_CALLS):
        plans = await backlog.explained.plans(
            "SELECT store_outbox($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            *(streams, nothing, [new_message_id() for _ in streams], ["Happened"] * count, ["topic"] * count),
            *(["{}"] * count, nothing, nothing, nothing, nothing, T0),
        )
        _assert_by_key(plans, LIMIT)


@pytest.mark.parametrize("store", ["alone", "in JSON"])
async def test_a_plan_made_while_everything_was_done_finds_a_stream_among_many(connect: Connect, store: str) -> None:
    producer, other = await connect(), await connect()
    for table in TABLES:
        await other.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    explained = await Explained.on(producer)
    stored = _stored_one if store == "alone" else _stored_in_json
    stream = new_message_id()
    for _ in range(_CALLS):
        await stored(explained, stream)
        await stored(explained, None)
        await other.execute("DELETE FROM wh_messages")
        await other.execute("DELETE FROM wh_active_streams")
        await other.execute(f"VACUUM (ANALYZE) {', '.join(TABLES)}")
    await stored(explained, stream)
    await stored(explained, None)
    await fill(other)
    _assert_by_key(await stored(explained, stream) + await stored(explained, None), 2)


async def test_asking_why_a_stream_waits_does_not_read_all_messages(backlog: Backlog) -> None:
    stream = await backlog.connection.fetchval("SELECT stream_id FROM wh_streams LIMIT 1")
    plans = await backlog.explained.plans("SELECT why($1)", str(stream))
    steps = [node for plan in plans for node in plan.steps(table="wh_messages")]
    assert steps
    assert not [node.facts for node in steps if not node.condition]


async def _stored_one(explained: Explained, stream: UUID | None) -> list[Plan]:
    return await explained.plans(
        "SELECT store_message('outbox', $1, NULL, $2, 'Happened', 'topic', '{}', NULL, NULL, NULL, NULL)",
        stream,
        new_message_id(),
    )


async def _stored_in_json(explained: Explained, stream: UUID | None) -> list[Plan]:
    messages = [OutboxMessage(message_type="Happened", payload="{}", stream=stream) for _ in range(2)]
    return await explained.plans("SELECT store_outbox_batch($1::text::jsonb)", as_json(messages))


async def _claimed(backlog: Backlog) -> tuple[list[UUID], list[int]]:
    rows = await backlog.connection.fetch(_CLAIM, backlog.instance_id, LIMIT, T0)
    tokens = {row["stream_id"]: row["lease_token"] for row in rows}
    return list(tokens), list(tokens.values())


def _outbox(streams: list[UUID]) -> list[str]:
    return ["outbox"] * len(streams)


def _assert_by_key(plans: list[Plan], rows: int) -> None:
    touched = [node for plan in plans for table in _BIG for node in plan.steps(table=table)]
    assert touched
    for node in touched:
        assert node.kind in ("Index Scan", "Index Only Scan", "Tid Scan", "ModifyTable"), node.facts
        if node.kind != "ModifyTable":
            assert node.condition, node.facts
            assert node.rows_read <= rows, node.facts
