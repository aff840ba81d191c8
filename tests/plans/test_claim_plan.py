"""A claim costs what it takes, however much waits and whatever the planner believes about the tables."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest

from tests.plans.conftest import LIMIT, PER_STREAM, STREAMS, Backlog, renew
from tests.plans.explained import Plan
from tests.scenario import T0

_CLAIM = "SELECT * FROM claim_work($1, 'outbox', $2, 300, 100, 16777216, 10, '-infinity', $3)"
_BIG = ("wh_messages", "wh_active_streams", "wh_partitions")
_AHEAD = 2
"""What is told of the messages before each one, in its stream and in all, looks one message ahead."""


@pytest.fixture(params=[1, 12], ids=["first call", "after many calls"])
async def claim(request: pytest.FixtureRequest, backlog: Backlog) -> list[Plan]:
    """The plans of a claim; after many calls PostgreSQL uses a plan that does not know the arguments."""
    plans: list[Plan] = []
    for _ in range(request.param):
        await renew(backlog.connection, backlog.instance_id)
        plans = await _explain(backlog)
    return plans


async def test_a_claim_locks_streams_as_it_reads_the_ready_index_and_stops_at_its_limit(claim: list[Plan]) -> None:
    pick = _pick(claim)
    (lock,) = pick.steps("LockRows")
    assert lock.parent is not None
    assert lock.parent.kind == "Limit"
    assert not [node for node in lock.below() if "Sort" in node.kind]
    (scan,) = [node for node in lock.below() if node.table == "wh_active_streams"]
    assert (scan.kind, scan.index) == ("Index Scan", "wh_active_streams_ready")
    assert "ready_at <=" in scan.condition
    assert "ready_at >=" in scan.condition
    assert scan.rows_read <= LIMIT


async def test_a_claim_reads_the_messages_of_a_stream_from_its_head_on(claim: list[Plan]) -> None:
    scans = _pick(claim).steps(table="wh_messages")
    assert {scan.index for scan in scans} == {"wh_messages_pkey"}
    for scan in scans:
        # Before version 17 a plan does not name what it hands down two levels.
        assert re.search(r"version > (c\.head_version|\$\d)", scan.condition)
    assert sum(scan.rows_read for scan in scans) <= LIMIT + _AHEAD


async def test_a_claim_calls_no_function_to_know_whether_a_stream_is_ready(claim: list[Plan]) -> None:
    assert not [plan.statement for plan in claim if plan.asks]


async def test_the_only_instance_looks_up_no_partition(claim: list[Plan], backlog: Backlog) -> None:
    (scan,) = _pick(claim).steps(table="wh_partitions")
    assert scan.facts["Actual Loops"] == 0
    await backlog.connection.execute("SELECT record_heartbeat($1, 'plans', 'test', 1, '{}', false, $2)", uuid4(), T0)
    await backlog.connection.execute("SELECT own_partitions($1, NULL, $2)", backlog.instance_id, T0)
    (scan,) = _pick(await _explain(backlog)).steps(table="wh_partitions")
    assert scan.facts["Actual Loops"] > 0


async def test_an_instance_that_has_nothing_to_hand_over_reads_no_stream_for_its_partitions(backlog: Backlog) -> None:
    """One with a limit is never settled, and looks at every poll."""
    plans = await backlog.explained.plans("SELECT own_partitions($1, 100, $2)", backlog.instance_id, T0)
    assert [node for plan in plans for node in plan.steps(table="wh_partitions")]
    assert not [node for plan in plans for node in plan.steps(table="wh_active_streams") if node.facts["Actual Loops"]]


async def test_a_claim_writes_no_index_of_streams(backlog: Backlog) -> None:
    """Though it takes every stream of every page: each finds room in its page for its lease."""
    async with backlog.connection.transaction():
        await backlog.connection.execute(_CLAIM, backlog.instance_id, STREAMS * PER_STREAM, T0)
        written = await backlog.connection.fetchrow(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'wh_active_streams'"
        )
    assert tuple(written or ()) == (STREAMS, STREAMS)


async def test_no_step_of_a_claim_reads_more_than_it_takes(claim: list[Plan]) -> None:
    scans = [node for plan in claim for table in _BIG for node in plan.steps(table=table)]
    assert scans
    for scan in scans:
        assert scan.kind in ("Index Scan", "Index Only Scan", "Tid Scan", "ModifyTable", "LockRows"), scan.facts
        assert scan.rows_read <= LIMIT + _AHEAD, scan.facts


async def _explain(backlog: Backlog) -> list[Plan]:
    return await backlog.explained.plans(_CLAIM, backlog.instance_id, LIMIT, T0)


def _pick(plans: list[Plan]) -> Plan:
    (plan,) = [plan for plan in plans if "candidate AS MATERIALIZED" in plan.statement]
    return plan
