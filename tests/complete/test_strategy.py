"""Every completion strategy keeps the same promises; they differ in how many streams share a transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

import asyncpg
import pytest

from tests.scenario import S
from tests.shop import OrderChanged, OrderPlaced, Pool, Shop, Summary, checkpoints
from whippletree.complete.strategy import (
    BatchedCompletionStrategy,
    CompletionStrategy,
    InstantCompletionStrategy,
    PerspectiveOutcome,
    PerspectiveReports,
)
from whippletree.message.ids import StreamId
from whippletree.message.outcome import PerspectiveCheckpointCompletion, PerspectiveCheckpointFailure

STREAMS = 25


class UnitOfWorkCompletionStrategy(BatchedCompletionStrategy):
    """Commits every ten streams: the custom strategy that the specification prints."""

    def __init__(self, batch_size: int = 10) -> None:
        super().__init__()
        self._batch_size = batch_size

    async def report_completion(
        self, completion: PerspectiveCheckpointCompletion, coordinator: PerspectiveReports
    ) -> None:
        await super().report_completion(completion, coordinator)
        if len(pending := self.get_pending_completions()) >= self._batch_size:
            await coordinator.report_perspective_completion(*pending)
            self.clear_pending(pending)


STRATEGIES: dict[str, tuple[Callable[[], CompletionStrategy], int]] = {
    "batched": (BatchedCompletionStrategy, 1),
    "instant": (InstantCompletionStrategy, STREAMS),
    "unit of work": (UnitOfWorkCompletionStrategy, 3),
}


@pytest.fixture(params=STRATEGIES)
def chosen(request: pytest.FixtureRequest) -> tuple[Callable[[], CompletionStrategy], int]:
    return STRATEGIES[request.param]


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool)


def stream(number: int) -> UUID:
    return UUID(int=S.int + number)


async def test_rows_and_checkpoints_commit_together_in_as_many_transactions_as_it_chooses(
    shop: Shop, db: asyncpg.Connection, chosen: tuple[Callable[[], CompletionStrategy], int]
) -> None:
    make, transactions = chosen
    rows = await shop.opens()
    for number in range(STREAMS):
        await shop.append(stream(number), OrderPlaced(stream(number), "Ada", number))
    await shop.catches_up(completion_strategy=make())
    for number in range(STREAMS):
        assert await rows.get(stream(number)) == Summary("Ada", number)
    assert await checkpoints(db) == [("Completed", 1, None, None)] * STREAMS
    together = "SELECT count(DISTINCT xmin::text) FROM wh_rows_order_summary_g1"
    assert await db.fetchval(together) == transactions
    split = """
        SELECT count(*) FROM wh_rows_order_summary_g1 r JOIN wh_checkpoints c ON c.stream_id = r.key
        WHERE c.xmin::text <> r.xmin::text
    """
    assert await db.fetchval(split) == 0


async def test_a_failure_is_persisted_with_what_came_before_it_and_the_others_go_on(
    shop: Shop, db: asyncpg.Connection, chosen: tuple[Callable[[], CompletionStrategy], int]
) -> None:
    rows = await shop.opens()
    await shop.append(stream(0), OrderPlaced(stream(0), "Ada", 0), OrderChanged(stream(0), -1))
    for number in range(1, 12):
        await shop.append(stream(number), OrderPlaced(stream(number), "Ada", number))
    await shop.catches_up(completion_strategy=chosen[0]())
    assert await rows.get(stream(0)) == Summary("Ada", 0)
    failed = ("Failed", 1, "event 2 (OrderChanged): ValueError: a change of nothing", False)
    assert await checkpoints(db) == [("Completed", 1, None, None)] * 11 + [failed]


class Reports:
    def __init__(self) -> None:
        self.told: list[tuple[PerspectiveOutcome, ...]] = []

    async def report_perspective_completion(self, *completions: PerspectiveCheckpointCompletion) -> None:
        self.told.append(completions)

    async def report_perspective_failure(self, *failures: PerspectiveCheckpointFailure) -> None:
        self.told.append(failures)


async def test_every_outcome_is_either_reported_or_pending_and_only_what_was_reported_is_cleared(
    chosen: tuple[Callable[[], CompletionStrategy], int],
) -> None:
    strategy, reports = chosen[0](), Reports()
    completions = [PerspectiveCheckpointCompletion(StreamId(stream(n)), "p", 1) for n in range(12)]
    failure = PerspectiveCheckpointFailure(StreamId(stream(99)), "p", "boom")
    for completion in completions:
        await strategy.report_completion(completion, reports)
    await strategy.report_failure(failure, reports)
    pending: Collection[PerspectiveOutcome] = (*strategy.get_pending_completions(), *strategy.get_pending_failures())
    told = [outcome for call in reports.told for outcome in call]
    assert sorted(map(id, (*told, *pending))) == sorted(map(id, (*completions, failure)))

    # One that comes while the pending ones are being reported is equal to one of them, and must not be cleared with it.
    late = PerspectiveCheckpointCompletion(StreamId(stream(11)), "p", 1)
    before = len(reports.told)
    await strategy.report_completion(late, reports)
    strategy.clear_pending(pending)
    assert [*strategy.get_pending_completions(), *(o for call in reports.told[before:] for o in call)] == [late]
    assert strategy.get_pending_failures() == ()
