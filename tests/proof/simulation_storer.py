"""Those who store: transactions over one or several streams that commit, roll back, or stay open for a while."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
from asyncpg.transaction import Transaction

from tests.proof.simulation_ledger import StreamName, Violation

_OUTBOX = "SELECT store_outbox($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
_INBOX = "SELECT store_inbox($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"


class New(NamedTuple):
    """A message to be stored."""

    queue: str
    stream_id: UUID | None
    message_id: UUID
    payload: str
    scheduled_for: datetime | None

    @property
    def stream(self) -> StreamName:
        return self.queue, self.stream_id or self.message_id


@dataclass
class Received:
    """What the inbox has accepted: every id with its body, once."""

    bodies: dict[UUID, New] = field(default_factory=dict)

    def outcomes(self, messages: list[New]) -> list[str]:
        """What the inbox has to answer, if nothing else is stored meanwhile."""
        known = dict(self.bodies)
        answers = []
        for message in messages:
            first = known.setdefault(message.message_id, message)
            answers.append(
                "stored" if first is message else "duplicate" if first.payload == message.payload else "conflict"
            )
        return answers


@dataclass
class Storer:
    """A producer's connection, with at most one transaction open."""

    connection: asyncpg.Connection
    transaction: Transaction | None = None
    stored: list[New] = field(default_factory=list)

    async def store(self, messages: list[New], received: Received, now: datetime) -> None:
        """Store inside the open transaction, each queue in one call; begins one if there is none."""
        if self.transaction is None:
            self.transaction = self.connection.transaction()
            await self.transaction.start()
        for queue in ("outbox", "inbox"):
            batch = [message for message in messages if message.queue == queue]
            if not batch:
                continue
            answer = await self.connection.fetchval(_OUTBOX if queue == "outbox" else _INBOX, *_columns(batch), now)
            if queue == "inbox":
                expected = received.outcomes([*(m for m in self.stored if m.queue == "inbox"), *batch])[-len(batch) :]
                if answer != expected:
                    raise Violation(f"the inbox answered {answer}, expected {expected}")
                batch = [message for message, outcome in zip(batch, answer, strict=True) if outcome == "stored"]
            self.stored += batch

    async def commit(self) -> list[New]:
        assert self.transaction is not None
        await self.transaction.commit()
        return self._end()

    async def roll_back(self) -> list[New]:
        assert self.transaction is not None
        await self.transaction.rollback()
        return self._end()

    def _end(self) -> list[New]:
        stored, self.stored, self.transaction = self.stored, [], None
        return stored


def new_message(rng: Random, streams: list[UUID], now: datetime) -> New:
    """A message of one of the streams or of none, due now or later."""
    later = now + timedelta(seconds=rng.choice((1, 5, 40))) if rng.random() < 0.08 else None
    return New(
        rng.choice(("outbox", "outbox", "inbox")),
        rng.choice(streams) if streams and rng.random() < 0.85 else None,
        UUID(int=rng.getrandbits(128), version=4),
        f'{{"n": {rng.randrange(100)}}}',
        later,
    )


def _columns(messages: list[New]) -> list[list[Any]]:
    nothing = [None] * len(messages)
    return [
        [m.stream_id for m in messages],
        nothing,
        [m.message_id for m in messages],
        ["Happened"] * len(messages),
        ["topic"] * len(messages),
        [m.payload for m in messages],
        nothing,
        nothing,
        nothing,
        [m.scheduled_for for m in messages],
    ]
