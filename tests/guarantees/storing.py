"""How an instance stores messages with a work batch, and how a refusal looks, on both faces of the coordinator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg
import pytest

from tests.scenario import T0, JsonWorker, Message, RowsWorker, S, Worker
from whippletree.claim.batch import WorkBatchFlags, WorkReport
from whippletree.errors import Error
from whippletree.message.envelope import InboxMessage, OutboxMessage, Queue
from whippletree.message.ids import MessageId, new_message_id
from whippletree.store.database import _OURS
from whippletree.store.new_messages import as_json


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What became of messages that were handed in: outcome by place, and what was claimed by the same call."""

    outcomes: list[str]
    claimed: list[Message]


async def stores(
    worker: Worker, *messages: OutboxMessage | InboxMessage, as_of: datetime = T0, claim: int = 0
) -> Stored:
    """Hand in new messages of one queue with a work batch that claims up to `claim`."""
    outgoing = [message for message in messages if isinstance(message, OutboxMessage)]
    received = [message for message in messages if isinstance(message, InboxMessage)]
    if isinstance(worker, RowsWorker):
        batch = await worker.coordinator.process_work_batch(
            WorkReport(
                new_outbox_messages=outgoing,
                new_inbox_messages=received,
                limits={Queue.OUTBOX: claim, Queue.INBOX: claim},
                flags=WorkBatchFlags.NONE if claim else WorkBatchFlags.SKIP_CLAIM,
            ),
            as_of=as_of,
        )
        others: list[tuple[UUID | None, str]] = [(r.message_id, r.outcome) for r in batch.refused]
        claimed = [Message(m.message_id) for m in (*batch.claimed_outbox_messages, *batch.claimed_inbox_messages)]
        return Stored(outcomes=_by_place(messages, others), claimed=claimed)
    assert isinstance(worker, JsonWorker)
    row = await worker.pool.fetchrow(
        "SELECT * FROM whippletree.process_work_batch(p_instance_id => $1, p_service_name => $2, p_host_name => 'test',"
        " p_process_id => 1, p_new_outbox_messages => $3, p_new_inbox_messages => $4, p_outbox_limit => $5,"
        " p_inbox_limit => $5, p_flags => $6, p_as_of => $7)",
        worker.instance_id,
        worker.instance.service_name,
        as_json(outgoing),
        as_json(received),
        claim,
        [] if claim else ["skip_claim"],
        as_of,
    )
    assert row is not None
    others = [(UUID(d["message_id"]), d["outcome"]) for d in json.loads(row["duplicates"])]
    others += [(UUID(r["message_id"]), "refused") for r in json.loads(row["rejected"])]
    claimed = [
        Message(MessageId(UUID(m["message_id"])))
        for name in ("claimed_outbox_messages", "claimed_inbox_messages")
        for m in json.loads(row[name])
    ]
    return Stored(outcomes=_by_place(messages, others), claimed=claimed)


def outgoing(stream: UUID | str | None = S, **fields: object) -> OutboxMessage:
    return OutboxMessage(**{"message_type": "Happened", "payload": "{}", "stream": stream, **fields})  # type: ignore[arg-type]


def received(stream: UUID | str | None = S, **fields: object) -> InboxMessage:
    given = {"message_id": new_message_id(), "message_type": "Happened", "payload": "{}", "stream": stream, **fields}
    return InboxMessage(**given)  # type: ignore[arg-type]


def as_claimed(message: OutboxMessage | InboxMessage) -> Message:
    return Message(message.message_id)


@contextmanager
def refused(state: str) -> Iterator[None]:
    """The call is refused with one of our conditions: as our error in Python, as its SQLSTATE elsewhere."""
    with pytest.raises((Error, asyncpg.PostgresError)) as caught:
        yield
    if isinstance(caught.value, Error):
        assert type(caught.value) is _OURS[state]
    else:
        assert isinstance(caught.value, asyncpg.PostgresError)
        assert caught.value.sqlstate == state


def _by_place(messages: Sequence[OutboxMessage | InboxMessage], others: Sequence[tuple[UUID | None, str]]) -> list[str]:
    """Copies of one id are told apart by their order: what was stored came first."""
    left = list(others)
    outcomes = []
    for place, message in enumerate(messages):
        later = sum(m.message_id == message.message_id for m in messages[place:])
        mine = [other for other in left if other[0] == message.message_id]
        if len(mine) < later:
            outcomes.append("stored")
        else:
            left.remove(mine[0])
            outcomes.append(mine[0][1])
    return outcomes
