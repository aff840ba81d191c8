"""What becomes of claimed outbox messages: published in order, and each one's outcome for the next work report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whippletree.dispatch import log
from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.transport import PublishOutcome, PublishResult, Transport, unavailable
from whippletree.errors import PublishFailed
from whippletree.message.envelope import ClaimedMessage, Queue
from whippletree.message.outcome import (
    MessageCompletion,
    MessageFailure,
    MessageProcessingStatus,
    MessageRelease,
    Outcome,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """How a batch went. `outage` says why the transport did not answer; None when it did."""

    outcomes: Sequence[Outcome]
    published: int
    outage: str | None


async def publish(transport: Transport, messages: Sequence[ClaimedMessage]) -> Publication:
    """Publish claimed messages, those of a stream in order.

    A stream's run ends at its first message that was not published: a failure when the message is to blame, else a
    release, which costs no attempt. What a transport has completed itself is not reported again.
    """
    try:
        results = await transport.publish_batch(messages)
        if len(results) != len(messages):
            raise PublishFailed(f"{len(messages)} messages were to be published, and {len(results)} have an outcome")
    except Exception as error:
        # A transport that raises has a fault of its own; its messages must not pay for that.
        log.transport_raised()
        results = [unavailable(error_text(error))] * len(messages)
    outcomes: list[Outcome] = []
    ended: set[object] = set()
    published = 0
    for message, result in zip(messages, results, strict=True):
        if message.stream_id in ended:
            continue
        match result.result:
            case PublishResult.PUBLISHED:
                published += 1
                outcomes.append(_completion(message))
            case PublishResult.COMPLETED:
                published += 1
            case PublishResult.FAILED:
                ended.add(message.stream_id)
                outcomes.append(MessageFailure(message.message_id, result.reason, queue=Queue.OUTBOX))
            case PublishResult.UNAVAILABLE | PublishResult.NOT_SENT:
                ended.add(message.stream_id)
                outcomes.append(MessageRelease(message.message_id, Queue.OUTBOX))
    return Publication(outcomes=outcomes, published=published, outage=_outage(results))


def _completion(message: ClaimedMessage) -> MessageCompletion:
    return MessageCompletion(message.message_id, MessageProcessingStatus.PUBLISHED, Queue.OUTBOX)


def _outage(results: Sequence[PublishOutcome]) -> str | None:
    return next((result.reason for result in results if result.result is PublishResult.UNAVAILABLE), None)
