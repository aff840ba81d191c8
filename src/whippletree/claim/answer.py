"""The answer to a work report, and the claimed work that its rows tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

import asyncpg

from whippletree.claim.batch import WorkBatch
from whippletree.message.envelope import ClaimedMessage, PerspectiveWork, Queue, ReceptorWork, worked_as
from whippletree.message.outcome import Refusal, Rejection

_QUEUE = itemgetter(1)


@dataclass(slots=True, kw_only=True)
class Answer:
    """What came back from a call. What it says of the report is settled; the work that it claimed is yet to be read."""

    sent_at: float
    rejected: Sequence[Rejection]
    refused: list[Refusal] = field(default_factory=list)
    claimed: list[asyncpg.Record] = field(default_factory=list)

    def sizes(self) -> Mapping[str, int]:
        """How many pieces of work came, by the names under which their queues are worked."""
        sizes: Counter[str] = Counter()
        for queue, size in Counter(map(_QUEUE, self.claimed)).items():
            sizes[worked_as(queue)] += size
        return sizes

    def read(self, partitions: Sequence[int]) -> WorkBatch:
        messages: dict[str, list[ClaimedMessage]] = {Queue.OUTBOX: [], Queue.INBOX: []}
        receptors: list[ReceptorWork] = []
        perspectives: list[PerspectiveWork] = []
        for queue, rows in groupby(self.claimed, _QUEUE):
            if queue in messages:
                messages[queue] += [ClaimedMessage(queue, *row[3:15]) for row in rows]
            elif queue.startswith("receptor/"):
                receptors += [receptor_work(*row) for row in rows]
            else:
                perspectives += [perspective_work(*row) for row in rows]
        return WorkBatch(
            claimed_outbox_messages=messages[Queue.OUTBOX],
            claimed_inbox_messages=messages[Queue.INBOX],
            claimed_receptor_work=receptors,
            claimed_perspective_work=perspectives,
            claimed_at=self.sent_at,
            assigned_partitions=partitions,
            rejected=self.rejected,
            refused=self.refused,
        )


def receptor_work(*row: Any) -> ReceptorWork:
    """An event that a receptor has before it."""
    _, queue, _, *key, _, payload, metadata, correlation_id, causation_id, created, attempts, token, shape = row
    stream_id, version, event_id, event_type = key
    return ReceptorWork(
        queue=queue,
        stream_id=stream_id,
        version=version,
        event_id=event_id,
        event_type=event_type,
        payload=payload,
        metadata=metadata,
        correlation_id=correlation_id,
        causation_id=causation_id,
        created=created,
        attempts=attempts,
        lease_token=token,
        shape=int(shape),
    )


def perspective_work(*row: Any) -> PerspectiveWork:
    """A stream that a perspective has before it."""
    _, queue, _, stream_id, checkpoint, last_event_id, *_, attempts, lease_token, through = row
    return PerspectiveWork(queue, stream_id, checkpoint, last_event_id, int(through), attempts, lease_token)
