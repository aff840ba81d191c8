"""Messages through the loop of an instance, with a worker that does nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.backlog import empty, fill
from benchmarks.place import Run, connected, settle
from benchmarks.table import Figure, median
from whippletree.claim.batch import WorkBatch
from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.message.outcome import MessageCompletion, Outcome, Rejection
from whippletree.settings import Dsn
from whippletree.store.database import open_pool
from whippletree.work.loop import WorkLoop
from whippletree.work.settings import ReceptorSettings
from whippletree.work.worker import Worker

LIMIT = ReceptorSettings().capacity // 2
"""As many as receptors take at a time."""


class Nothing(Worker):
    """Finishes every message at once; `done` is called when an empty batch has come."""

    def __init__(self) -> None:
        self.finished = 0
        self.done: Callable[[], None] = lambda: None
        self._outcomes: list[Outcome] = []
        self._changed: Callable[[], None] = lambda: None

    def start(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def wants(self, coming: Mapping[str, int]) -> Mapping[str, int]:
        return {"outbox": LIMIT}

    def take(self, batch: WorkBatch) -> None:
        if batch.empty and self.finished:
            self.done()
        self._outcomes += [MessageCompletion(message.message_id) for message in batch.claimed_outbox_messages]
        self.finished += len(batch.claimed_outbox_messages)
        self._changed()

    def outcomes(self) -> Sequence[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def lost(self, rejections: Sequence[Rejection]) -> None:
        raise AssertionError(rejections[0])

    async def stop(self, grace: float) -> None:
        """Nothing is ever in hand."""


async def measure(run: Run) -> list[Figure]:
    async with run.database() as dsn, connected(dsn) as connection, open_pool(Dsn(dsn), size=1) as pool:

        async def rate() -> float:
            await empty(connection)
            await fill(connection, run.size(1_000, 20), run.size(200, 20))
            await settle(connection)
            worker = Nothing()
            loop = WorkLoop(WorkCoordinator(pool, ServiceInstance(service_name="benchmark")), [worker])
            worker.done = loop.stop
            began = time.perf_counter()
            await loop.run()
            return worker.finished / (time.perf_counter() - began)

        return [
            Figure(
                name="through the loop, 1,000 streams",
                value=await median(run.repeat, rate),
                unit="messages/s",
                target=40_000,
            )
        ]
