"""A virtual instance: the real work coordinator over a connection that can fail, and what the instance has in hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from random import Random
from typing import Any, cast
from uuid import UUID

import asyncpg

from tests.proof.simulation_ledger import Claimed, Report, StreamName
from whippletree.claim.answer import Answer
from whippletree.claim.batch import WorkReport
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.claim.instance import ServiceInstance
from whippletree.message.envelope import ClaimedMessage
from whippletree.message.ids import InstanceId, MessageId
from whippletree.message.outcome import MessageCompletion, MessageFailure, MessageRelease, Outcome, Verdict


class Fault(Enum):
    """What a network does to a call."""

    NONE = auto()
    CALL_LOST = auto()
    """The call does not arrive."""
    ANSWER_LOST = auto()
    """The call commits; the caller does not learn it."""


class Wire:
    """A pool of one connection, on which a call passes or breaks."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._fault = Fault.NONE
        self._passing = 0
        self.arrived = False
        """Whether the work batch of the last exchange reached the database."""

    def breaks(self, fault: Fault, passing: int = 0) -> None:
        """Let the given number of calls pass, then strike."""
        self._fault, self._passing, self.arrived = fault, passing, False

    async def acquire(self) -> Wire:
        return self

    async def release(self, connection: Wire, *, timeout: float) -> None:  # noqa: ASYNC109 - as a pool has it
        """It is the only one."""

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        rows = await self._call(self._connection.fetch, statement, arguments)
        return cast("list[asyncpg.Record]", rows)

    async def fetchval(self, statement: str, *arguments: Any) -> Any:
        return await self._call(self._connection.fetchval, statement, arguments)

    async def execute(self, statement: str, *arguments: Any) -> Any:
        return await self._call(self._connection.execute, statement, arguments)

    def is_closed(self) -> bool:
        return False

    def get_server_pid(self) -> int:
        # Nobody's: the one connection that all instances share is not to be ended for the loss of one call.
        return 0

    async def _call(self, method: Callable[..., Awaitable[Any]], statement: str, arguments: Sequence[Any]) -> Any:
        strikes = self._fault is not Fault.NONE and self._passing == 0
        self._passing -= 1
        if strikes and self._fault is Fault.CALL_LOST:
            raise ConnectionResetError("the call was lost")
        answer = await method(statement, *arguments)
        self.arrived = self.arrived or "process_work" in statement
        if strikes:
            raise ConnectionResetError("the answer was lost")
        return answer


@dataclass
class VirtualInstance:
    """One instance. A crash forgets the object; a pause leaves it with what it believes to hold."""

    name: str
    who: ServiceInstance
    wire: Wire
    coordinator: WorkCoordinator
    hand: dict[MessageId, ClaimedMessage] = field(default_factory=dict)
    unanswered: WorkReport | None = None
    """A report that the instance does not know to have arrived: it is handed in again."""
    unread: Answer | None = None
    """What came last, if it is to be read only during the next call."""
    seen: set[tuple[StreamName, int]] = field(default_factory=set)
    """Every lease that the instance was told of."""
    paused_until: datetime | None = None

    @property
    def instance_id(self) -> UUID:
        return self.who.instance_id

    def runs(self) -> list[list[ClaimedMessage]]:
        """What is in hand, by stream and lease, each in order; not as it came, which depends on where its rows lay."""
        runs: dict[tuple[str, UUID, int], list[ClaimedMessage]] = {}
        for message in self.hand.values():
            runs.setdefault((message.queue, message.stream_id, message.lease_token), []).append(message)
        return [run for _, run in sorted(runs.items())]

    async def call(self, report: WorkReport, as_of: datetime) -> Answer:
        """One call, during which what came with the last one is read."""
        reported = dict(self.hand)
        answer = await self.coordinator.call(report, meanwhile=self.read if self.unread else None, as_of=as_of)
        self.unanswered = None
        self.unread = answer
        self.seen.update((claimed.stream, claimed.token) for claimed in received(answer))
        self._let_go(reported, report, answer)
        return answer

    def _let_go(self, reported: Mapping[MessageId, ClaimedMessage], report: WorkReport, answer: Answer) -> None:
        """Let go of what was reported and of what was lost, but not of what has come again in the meantime."""
        rejected = {rejection.message_id for rejection in answer.rejected}
        failed = {outcome.message_id for outcome in report.outcomes if not isinstance(outcome, MessageCompletion)}
        for run in self.runs():
            if reported.get(run[0].message_id) is not run[0]:
                continue
            gone = bool(rejected.intersection(message.message_id for message in run))
            for message in run:
                gone = gone or message.message_id in failed
                if gone or any(outcome.message_id == message.message_id for outcome in report.outcomes):
                    del self.hand[message.message_id]

    def read(self) -> None:
        """Take in what was claimed."""
        answer, self.unread = self.unread, None
        if answer is None:
            return
        batch = self.coordinator.read(answer)
        claimed = (*batch.claimed_outbox_messages, *batch.claimed_inbox_messages)
        again = {message.message_id for message in claimed}
        for run in self.runs():
            # What comes again comes under a new lease; the rest of the old run is lost with the old one.
            if not again.isdisjoint(message.message_id for message in run):
                self.hand = {key: message for key, message in self.hand.items() if message not in run}
        for message in claimed:
            self.hand[message.message_id] = message

    def rights(self, outcomes: Iterable[Outcome], renewals: Iterable[MessageId]) -> list[Report]:
        """The reports as the ledger reads them."""
        reports = []
        for message_id in (*(outcome.message_id for outcome in outcomes), *renewals):
            if (message := self.hand.get(MessageId(message_id))) is not None:
                done = any(o.message_id == message_id and isinstance(o, MessageCompletion) for o in outcomes)
                through = message.version if done else 0
                reports.append(Report(self.instance_id, named(message), message.lease_token, through))
        return reports


def new_instance(
    connection: asyncpg.Connection, name: str, rng: Random, settings: CoordinatorSettings
) -> VirtualInstance:
    identity = InstanceId(UUID(int=rng.getrandbits(128), version=4))
    who = ServiceInstance(service_name=name, instance_id=identity, host_name="simulated", process_id=1)
    wire = Wire(connection)
    pool = cast("asyncpg.Pool[asyncpg.Record]", wire)
    return VirtualInstance(name, who, wire, WorkCoordinator(pool, who, settings))


def choose_outcomes(instance: VirtualInstance, rng: Random) -> tuple[list[Outcome], list[MessageId]]:
    """Outcomes and renewals for some of what is in hand: whole runs, parts, failures, releases, or nothing yet."""
    outcomes: list[Outcome] = []
    renewals: list[MessageId] = []
    for run in instance.runs():
        finished = rng.choice((0, 0, len(run), len(run), len(run), rng.randint(0, len(run))))
        outcomes += [MessageCompletion(message.message_id) for message in run[:finished]]
        if finished < len(run):
            following = run[finished].message_id
            match rng.randrange(6):
                case 0:
                    outcomes.append(_failure(following, rng))
                case 1:
                    outcomes.append(MessageRelease(following))
                case 2:
                    renewals.append(following)
                case 3:
                    outcomes.append(MessageRelease(rng.choice(run[finished:]).message_id))
    return outcomes, renewals


def complete_all(instance: VirtualInstance) -> list[Outcome]:
    return [MessageCompletion(message_id) for message_id in instance.hand]


def named(message: ClaimedMessage) -> StreamName:
    return message.queue, message.stream_id


def received(answer: Answer) -> list[Claimed]:
    """What came, by stream; the messages of each are in their order."""
    claimed = [
        Claimed((row["queue"], row["stream_id"]), row["version"], row["message_id"], row["lease_token"])
        for row in answer.claimed
    ]
    return sorted(claimed, key=lambda one: one.stream)


def _failure(message_id: MessageId, rng: Random) -> MessageFailure:
    return MessageFailure(
        message_id,
        "boom",
        retry_seconds=rng.choice((None, 0.0, 1.0, 20.0)),
        verdict=rng.choice((Verdict.RETRY, Verdict.RETRY, Verdict.POSTPONE, Verdict.PARK)),
    )
