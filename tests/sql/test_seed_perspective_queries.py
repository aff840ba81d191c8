"""The queries on perspectives that the specification prints run as printed, and answer what they ask."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, Pool, Shop, checkpoints
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.dispatch.policy import Retry

CHECKPOINT_STATUS = """
SELECT
  perspective_name,
  COUNT(*) FILTER (WHERE status = 'Pending') AS pending,
  COUNT(*) FILTER (WHERE status = 'Processing') AS processing,
  COUNT(*) FILTER (WHERE status = 'Completed') AS completed,
  COUNT(*) FILTER (WHERE status = 'Failed') AS failed
FROM wh_perspective_checkpoints
GROUP BY perspective_name;
"""
FAILED_CHECKPOINTS = """
SELECT
  stream_id,
  perspective_name,
  error,
  updated_at
FROM wh_perspective_checkpoints
WHERE status = 'Failed'
ORDER BY updated_at DESC;
"""
FREQUENT_ERRORS = """
-- Find most common errors
SELECT
  error,
  COUNT(*) AS count
FROM wh_perspective_checkpoints
WHERE status = 'Failed'
GROUP BY error
ORDER BY count DESC;
"""
RETRY_FAILED = """
-- Fix underlying issue (e.g., null reference, invalid data)
-- Clear failed checkpoints to retry
UPDATE wh_perspective_checkpoints
SET status = 'Pending', error = NULL
WHERE status = 'Failed';
"""


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool)


def stream(number: int) -> UUID:
    return UUID(int=S.int + number)


async def test_how_the_checkpoints_stand_and_why_some_failed_can_be_asked(
    shop: Shop, pool: Pool, db: asyncpg.Connection
) -> None:
    """Two are done, two failed, one is in hand, one waits."""
    # So that none of the failed ones is due again when one more is claimed, however slow the machine is.
    await shop.opens(retry=Retry(first_pause=3600, longest_pause=3600))
    for number in range(2):
        await shop.append(stream(number), OrderPlaced(S, "Ada", 1))
    for number in range(2, 4):
        await shop.append(stream(number), OrderChanged(S, 1))
    await shop.catches_up()
    await shop.append(stream(4), OrderPlaced(S, "Ada", 1))
    worker = WorkCoordinator(pool, ServiceInstance(service_name="PerspectiveWorker"))
    await worker.process_work_batch(WorkReport(limits={"perspective/order_summary": 1}))
    await shop.append(stream(5), OrderPlaced(S, "Ada", 1))
    (row,) = await db.fetch(CHECKPOINT_STATUS)
    assert dict(row) == {
        "perspective_name": "order_summary", "pending": 1, "processing": 1, "completed": 2, "failed": 2,
    }  # fmt: skip

    failed = await db.fetch(FAILED_CHECKPOINTS)
    assert {row["stream_id"] for row in failed} == {stream(2), stream(3)}
    error = "event 1 (OrderChanged): ValueError: a change of nothing"
    assert {(row["perspective_name"], row["error"]) for row in failed} == {("order_summary", error)}
    assert [tuple(row) for row in await db.fetch(FREQUENT_ERRORS)] == [(error, 2)]

    await db.execute(RETRY_FAILED)
    statuses = [status for status, *_ in await checkpoints(db)]
    assert statuses == ["Completed", "Completed", "Pending", "Pending", "Pending", "Processing"]
    assert await db.fetch(FAILED_CHECKPOINTS) == []
