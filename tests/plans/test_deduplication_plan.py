"""An id is looked up by one probe of the index, and the oldest are found without reading the others."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from tests.conftest import Connect
from tests.plans.explained import Explained, Node, Plan
from tests.scenario import T0, seconds

IDS = 20_000
LIMIT = 50


@pytest.fixture(params=["analyzed", "never analyzed"])
async def remembering(request: pytest.FixtureRequest, connect: Connect) -> asyncpg.Connection:
    connection = await connect()
    await connection.execute("ALTER TABLE wh_message_deduplication SET (autovacuum_enabled = off)")
    await connection.execute(
        "INSERT INTO wh_message_deduplication SELECT md5(n::text)::uuid, $1::timestamptz + n * interval '1 second',"
        " md5('')::uuid FROM generate_series(1, $2::integer) n",
        T0,
        IDS,
    )
    await connection.execute("SELECT change_deduplication_retention('1 second')")
    if request.param == "analyzed":
        await connection.execute("ANALYZE wh_message_deduplication")
    return connection


async def test_an_id_costs_one_probe_however_many_are_known(remembering: asyncpg.Connection) -> None:
    ids = [UUID(row[0]) for row in await remembering.fetch("SELECT md5(n::text) FROM generate_series(1, 10) n")]
    explained = await Explained.on(remembering)
    for _ in range(12):
        plans = await explained.plans("SELECT deduplicate($1, $2, $3, $4)", ids, ["T"] * 10, ["{}"] * 10, T0)
    (scan,) = _scans(plans)
    assert (scan.kind, scan.index) == ("Index Scan", "wh_message_deduplication_pkey")
    assert scan.rows_read <= len(ids)


async def test_forgetting_reads_only_what_it_forgets(remembering: asyncpg.Connection) -> None:
    explained = await Explained.on(remembering)
    for _ in range(7):
        plans = await explained.plans("SELECT forget_messages($1, $2)", LIMIT, T0 + seconds(IDS // 2))
    scans = _scans(plans)
    assert {scan.index for scan in scans} == {"wh_message_deduplication_pkey", "wh_message_deduplication_first_seen"}
    for scan in scans:
        assert scan.rows_read <= LIMIT, scan.facts


def _scans(plans: list[Plan]) -> list[Node]:
    found = [node for plan in plans for node in plan.steps(table="wh_message_deduplication")]
    return [node for node in found if node.kind != "ModifyTable"]
