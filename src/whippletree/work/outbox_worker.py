"""The relay: publishes what the loop has claimed from the outbox.

While the transport is down nothing is claimed, and what is in hand goes back without costing an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from whippletree.claim.batch import WorkBatch
from whippletree.dispatch.publisher import publish
from whippletree.dispatch.transport import Transport
from whippletree.message.envelope import ClaimedMessage, Queue
from whippletree.message.ids import MessageId
from whippletree.message.outcome import MessageFailure, MessageRelease, Outcome, Rejection
from whippletree.telemetry import Counters, span
from whippletree.work.outage import BackOff, Outage

_AT_ONCE = 2


class OutboxWorker:
    """Publishes over one transport; a stream is in one batch at a time.

    Two batches are on their way at once, so that one is claimed or reported while the other is published. Not more:
    what comes meanwhile waits in the outbox and makes the next batch larger, which is what transports like.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        batch_size: int = 1000,
        back_off: BackOff | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.counters = counters or Counters()
        self.outage = Outage(transport, self._tell, back_off or BackOff())
        self._transport = transport
        self._batch_size = batch_size
        self._changed: Callable[[], None] = _nobody
        self._batches: dict[asyncio.Task[None], dict[MessageId, ClaimedMessage]] = {}
        self._ended: list[Outcome] = []
        self._stopping = False

    def start(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def wants(self, coming: Mapping[str, int]) -> Mapping[str, int]:
        batches = len(self._batches) + (Queue.OUTBOX in coming)
        busy = self._stopping or self.outage.ongoing or batches >= _AT_ONCE
        return {Queue.OUTBOX: 0 if busy else self._batch_size}

    def take(self, batch: WorkBatch) -> None:
        if not batch.claimed_outbox_messages:
            return
        held = {message.message_id: message for message in batch.claimed_outbox_messages}
        task = asyncio.create_task(self._publish(held), name="whippletree publish")
        self._batches[task] = held
        task.add_done_callback(self._put_away)

    def outcomes(self) -> Sequence[Outcome]:
        ended, self._ended = self._ended, []
        return ended

    def lost(self, rejections: Sequence[Rejection]) -> None:
        # What is on its way cannot be called back, and does no harm: whoever has the lease publishes it again, and the
        # second is dropped. Only its outcome is no longer ours to report.
        for held in self._batches.values():
            for rejection in rejections:
                held.pop(MessageId(rejection.message_id), None)

    async def stop(self, grace: float) -> None:
        self._stopping = True
        await self.outage.stop()
        if self._batches:
            _, late = await asyncio.wait(list(self._batches), timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _publish(self, held: dict[MessageId, ClaimedMessage]) -> None:
        messages = list(held.values())
        with span("publish", (message.headers for message in messages), messages=len(messages)):
            publication = await publish(self._transport, messages)
        self.counters.outbox_published += publication.published
        self.counters.outbox_failed += sum(isinstance(each, MessageFailure) for each in publication.outcomes)
        self._ended += [outcome for outcome in publication.outcomes if outcome.message_id in held]
        held.clear()
        if publication.published:
            self.outage.end()
        if publication.outage is not None and not self._stopping:
            self.outage.begin(publication.outage)

    def _put_away(self, task: asyncio.Task[None]) -> None:
        # What is left was cut short: it may have been published, and then its second delivery is dropped.
        self._ended += [MessageRelease(message_id, Queue.OUTBOX) for message_id in self._batches.pop(task)]
        self._tell()

    def _tell(self) -> None:
        self._changed()


def _nobody() -> None:
    """Before the loop begins there is nobody to tell."""
