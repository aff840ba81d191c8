"""The words in which tests are written: what is given, who claims, what they report.

`RowsWorker` speaks through the Python client, `JsonWorker` through process_work_batch; a scenario runs on both.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from whippletree.claim.batch import WorkBatchFlags, WorkReport
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.message.envelope import Queue
from whippletree.message.ids import MessageId, new_instance_id, new_message_id
from whippletree.message.outcome import MessageCompletion, MessageFailure, MessageProcessingStatus, MessageRelease

T0 = datetime(2040, 1, 1, tzinfo=UTC)
"""A fixed time, after the start of any server."""

_BOTH = dict.fromkeys(Queue, 0)
"""Every worker works both queues, even when it takes nothing now."""

S = UUID("5eed0000-0000-4000-8000-000000000001")
"""A stream."""


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


@dataclass(frozen=True)
class Message:
    """A message that a test stored, equal to itself when it is claimed."""

    message_id: MessageId
    name: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return self.name or str(self.message_id)


@dataclass(frozen=True)
class Told:
    """An outcome as tests write it."""

    verb: str
    message: Message
    error: str = "boom"
    retry_at: datetime | None = None


def completion(message: Message) -> Told:
    return Told("complete", message)


def failure(message: Message, *, error: str = "boom", retry_at: datetime | None = None) -> Told:
    return Told("fail", message, error, retry_at)


def release(message: Message) -> Told:
    return Told("release", message)


def renewal(message: Message) -> Told:
    return Told("renew", message)


class Given:
    """What is in the database before the test's story begins."""

    def __init__(self, db: asyncpg.Connection) -> None:
        self._db = db

    async def outbox(
        self,
        stream: UUID | str | None = S,
        count: int = 1,
        *,
        as_of: datetime = T0,
        on: asyncpg.Connection | None = None,
    ) -> tuple[Message, ...]:
        return await self._store("outbox", stream, count, as_of, on)

    async def inbox(
        self,
        stream: UUID | str | None = S,
        count: int = 1,
        *,
        as_of: datetime = T0,
        on: asyncpg.Connection | None = None,
    ) -> tuple[Message, ...]:
        return await self._store("inbox", stream, count, as_of, on)

    async def _store(
        self, queue: str, stream: UUID | str | None, count: int, as_of: datetime, on: asyncpg.Connection | None
    ) -> tuple[Message, ...]:
        ids = [new_message_id() for _ in range(count)]
        nothing = [None] * count
        versions = await (on or self._db).fetchval(
            "SELECT store_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            queue,
            [stream if isinstance(stream, UUID) else None] * count
            if not isinstance(stream, str)
            else [await self._db.fetchval("SELECT stream_id_of($1)", stream)] * count,
            [stream if isinstance(stream, str) else None] * count,
            ids,
            ["Happened"] * count,
            ["topic"] * count,
            ["{}"] * count,
            nothing,
            nothing,
            nothing,
            nothing,
            as_of,
        )
        name = "-" if stream is None else str(stream)[-4:]
        return tuple(Message(id_, f"{queue[0]}{name}:{version}") for id_, version in zip(ids, versions, strict=True))


class Worker(ABC):
    """An instance, by name. Time is always said."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], name: str, **settings: Any) -> None:
        self.pool = pool
        self.instance = ServiceInstance(
            service_name=name, instance_id=new_instance_id(), host_name="test", process_id=1
        )
        self.settings = settings
        self.rejected: list[tuple[UUID | None, str]] = []
        self.duplicates: list[tuple[MessageId, str]] = []
        self.partitions: Sequence[int] = ()

    @property
    def instance_id(self) -> UUID:
        return self.instance.instance_id

    async def claims(self, *, as_of: datetime = T0, limit: int = 100, queue: Queue = Queue.OUTBOX) -> list[Message]:
        """Poll, and take what comes, in order."""
        return await self._batch((), as_of, {**_BOTH, queue: limit}, ())

    async def reports(self, *told: Told, as_of: datetime = T0, debug: bool = False) -> list[Message]:
        """Hand in outcomes without claiming. `rejected` says what was refused."""
        flags = ("skip_claim", "debug_mode") if debug else ("skip_claim",)
        return await self._batch(told, as_of, {}, flags)

    async def polls(self, *, as_of: datetime = T0) -> None:
        """Poll without taking anything: heartbeat, cleanup, partitions."""
        await self._batch((), as_of, _BOTH, ())

    @abstractmethod
    async def _batch(
        self, told: Sequence[Told], as_of: datetime, limits: dict[Queue, int], flags: Sequence[str]
    ) -> list[Message]: ...


class RowsWorker(Worker):
    """Through the Python client."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], name: str, **settings: Any) -> None:
        super().__init__(pool, name, **settings)
        self.coordinator = WorkCoordinator(pool, self.instance, CoordinatorSettings(**settings))

    async def _batch(
        self, told: Sequence[Told], as_of: datetime, limits: dict[Queue, int], flags: Sequence[str]
    ) -> list[Message]:
        report = WorkReport(
            outcomes=[_outcome(t, as_of) for t in told if t.verb != "renew"],
            renewals=[t.message.message_id for t in told if t.verb == "renew"],
            limits=limits,
            flags=_flags(flags),
        )
        batch = await self.coordinator.process_work_batch(report, as_of=as_of)
        self.rejected = [(r.message_id, r.reason) for r in batch.rejected]
        self.partitions = batch.assigned_partitions
        return [Message(m.message_id) for m in (*batch.claimed_outbox_messages, *batch.claimed_inbox_messages)]


class JsonWorker(Worker):
    """Through process_work_batch, as psql or another language would."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], name: str, **settings: Any) -> None:
        super().__init__(pool, name, **settings)
        self.tokens: dict[MessageId, int] = {}
        self.queues: dict[MessageId, str] = {}

    async def _batch(
        self, told: Sequence[Told], as_of: datetime, limits: dict[Queue, int], flags: Sequence[str]
    ) -> list[Message]:
        arguments: dict[str, Any] = {
            "p_instance_id": str(self.instance_id),
            "p_service_name": self.instance.service_name,
            "p_host_name": self.instance.host_name,
            "p_process_id": self.instance.process_id,
            "p_as_of": as_of,
            "p_flags": list(flags),
            "p_outbox_limit": limits.get(Queue.OUTBOX, 0),
            "p_inbox_limit": limits.get(Queue.INBOX, 0),
            **{f"p_{name}": value for name, value in self.settings.items() if name != "run_limit"},
        }
        for queue in Queue:
            for verb, name in (
                ("complete", f"p_{queue}_completions"),
                ("fail", f"p_{queue}_failures"),
                ("release", f"p_{queue}_releases"),
                ("renew", f"p_renew_{queue}_lease_ids"),
            ):
                mine = [t for t in told if t.verb == verb and self.queues.get(t.message.message_id, "outbox") == queue]
                arguments[name] = json.dumps([self._element(t, as_of) for t in mine])
        call = ", ".join(f"{name} => ${number}" for number, name in enumerate(arguments, 1))
        row = await self.pool.fetchrow(f"SELECT * FROM whippletree.process_work_batch({call})", *arguments.values())
        assert row is not None
        self.rejected = [
            (MessageId(UUID(r["message_id"])) if r["message_id"] else None, r["reason"])
            for r in json.loads(row["rejected"])
        ]
        self.partitions = json.loads(row["assigned_partitions"])
        claimed = []
        for queue in Queue:
            for m in json.loads(row[f"claimed_{queue}_messages"]):
                message = Message(MessageId(UUID(m["message_id"])))
                self.tokens[message.message_id] = m["lease_token"]
                self.queues[message.message_id] = queue
                claimed.append(message)
        return claimed

    def _element(self, told: Told, as_of: datetime) -> dict[str, Any]:
        element: dict[str, Any] = {"message_id": str(told.message.message_id), "status": 2, "error": told.error}
        if told.message.message_id in self.tokens:
            element["lease_token"] = self.tokens[told.message.message_id]
        if told.retry_at is not None:
            element["retry_seconds"] = (told.retry_at - as_of).total_seconds()
        return element


def _outcome(told: Told, as_of: datetime) -> MessageCompletion | MessageFailure | MessageRelease:
    if told.verb == "complete":
        return MessageCompletion(told.message.message_id, MessageProcessingStatus.PUBLISHED)
    if told.verb == "release":
        return MessageRelease(told.message.message_id)
    wait = None if told.retry_at is None else (told.retry_at - as_of).total_seconds()
    return MessageFailure(told.message.message_id, told.error, retry_seconds=wait)


def _flags(names: Sequence[str]) -> WorkBatchFlags:
    flags = WorkBatchFlags.NONE
    for name in names:
        flags |= WorkBatchFlags[name.upper()]
    return flags
