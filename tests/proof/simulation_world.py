"""The world of one schedule: a clock, a few streams, producers, and instances that talk to the database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import asyncpg

from tests.proof.invariants import check
from tests.proof.simulation_instance import Fault, VirtualInstance, new_instance, received
from tests.proof.simulation_ledger import Ledger, Report, Step, Violation, read_tables
from tests.proof.simulation_storer import New, Received, Storer
from whippletree.claim.answer import Answer
from whippletree.claim.batch import WorkBatchFlags, WorkReport
from whippletree.claim.coordinator import CoordinatorSettings
from whippletree.errors import InstanceEvicted, StoreUnavailable
from whippletree.message.envelope import InboxMessage
from whippletree.message.ids import MessageId
from whippletree.settings import Dsn

T0 = datetime(2040, 1, 1, tzinfo=UTC)
"""After the start of any server."""
PARTITIONS = 8
_IN_ORDER = """
    DROP INDEX wh_active_streams_ready;
    CREATE INDEX wh_active_streams_ready ON wh_active_streams (queue, ready_at, stream_id) WHERE ready_at < 'infinity'
"""
"""Streams that are ready at the same time would be claimed as their rows lie, and where a row finds room depends on
everybody else on the server."""


@dataclass
class Connections:
    """Opened once, for all schedules of a run."""

    main: asyncpg.Connection
    sessions: asyncpg.Connection
    """Holds the session locks of the instances that have one."""
    storers: list[asyncpg.Connection]


@asynccontextmanager
async def open_world(dsn: Dsn) -> AsyncIterator[Connections]:
    # No step of a schedule may wait for another: there is nobody to end the wait.
    session = {"search_path": "whippletree", "lock_timeout": "2s", "synchronous_commit": "off"}
    opened = [await asyncpg.connect(dsn.reveal(), server_settings=session) for _ in range(4)]
    try:
        await opened[0].execute(f"SELECT change_partition_count({PARTITIONS})")
        await opened[0].execute(_IN_ORDER)
        yield Connections(opened[0], opened[1], opened[2:])
    finally:
        for connection in opened:
            await connection.close(timeout=5)


class World:
    """Who and what there is in one schedule, and how its steps are observed."""

    def __init__(self, connections: Connections, rng: Random) -> None:
        self.rng = rng
        self.db = connections.main
        self.sessions = connections.sessions
        self.storers = [Storer(connection) for connection in connections.storers]
        self.ledger = Ledger()
        self.received = Received()
        self.schedule: list[str] = []
        self.now = T0
        self.lease = rng.choice((3.0, 30.0))
        self.settings = CoordinatorSettings(
            lease_seconds=self.lease,
            stale_threshold_seconds=self.lease * rng.choice((1, 2, 5)),
            run_limit=rng.choice((1, 3, 100)),
            max_attempts=rng.choice((2, 5)),
        )
        self.streams = [self._uuid() for _ in range(rng.randint(1, 5))]
        self.instances: list[VirtualInstance] = []
        self.letters: list[Report] = []
        """Every lease that any instance ever received: what it may still report on when it should not."""
        self._joined = 0

    async def begin(self) -> None:
        """Empty what an earlier schedule left, so that a seed's schedule is the same wherever it runs."""
        await self.sessions.execute("SELECT pg_advisory_unlock_all()")
        await self.db.execute(
            f"""
            TRUNCATE wh_active_streams; DELETE FROM wh_messages; DELETE FROM wh_streams; DELETE FROM wh_dead_letters;
            DELETE FROM wh_message_deduplication; DELETE FROM wh_service_instances; DELETE FROM wh_evicted_instances;
            UPDATE wh_partitions SET instance_id = NULL WHERE instance_id IS NOT NULL;
            SELECT setval('wh_lease_tokens', 1), setseed({self.rng.random()})"""
        )

    async def observe(self, words: str, step: Step) -> None:
        """Write the step down, and check what it left behind."""
        self.schedule.append(f"{(self.now - T0).total_seconds():8.1f} {words}")
        if wrong := await check(self.db):
            raise Violation("; ".join(wrong))
        self.ledger.observe(step, await read_tables(self.db))

    async def join(self, *, session: bool) -> VirtualInstance:
        """A new instance; it is a member from its first batch on."""
        self._joined += 1
        instance = new_instance(self.db, f"i{self._joined}", self.rng, self.settings)
        if session:
            await self.sessions.execute("SELECT pg_advisory_lock(session_lock_key($1))", instance.instance_id)
            instance.coordinator.session_locked = True
        self.instances.append(instance)
        return instance

    async def forget(self, instance: VirtualInstance) -> None:
        """The process is gone, and with it its session."""
        self.instances.remove(instance)
        if instance.coordinator.session_locked:
            await self.sessions.execute("SELECT pg_advisory_unlock(session_lock_key($1))", instance.instance_id)

    async def exchange(
        self,
        instance: VirtualInstance,
        report: WorkReport,
        *,
        fault: Fault = Fault.NONE,
        passing: int = 0,
        unread: float = 0.0,
    ) -> None:
        """One work batch of an instance, through its real coordinator, on a wire that may break. `unread` is how likely
        it is to read what came only during its next call."""
        claims = WorkBatchFlags.SKIP_CLAIM not in report.flags
        arriving = [as_new(message) for message in report.new_inbox_messages]
        step = Step(
            self.now,
            reports=instance.rights(report.outcomes, report.renewals),
            claimer=instance.instance_id if claims else None,
            limits={str(queue): limit for queue, limit in report.limits.items()} if claims else {},
        )
        words = f"{instance.name} hands in {_told(report)}"
        instance.wire.breaks(fault, passing)
        try:
            answer = await instance.call(report, self.now)
        except InstanceEvicted:
            words += ": evicted"
            await self.forget(instance)
            arriving = []
        except StoreUnavailable:
            words += f": {fault.name}{'' if instance.wire.arrived else ', did not arrive'}"
            instance.unanswered = report
            arriving = arriving if instance.wire.arrived else []
        else:
            step.claimed = received(answer)
            self.letters += [Report(instance.instance_id, *lease) for lease in _leases(answer)]
            words += f", gets {_heard(answer)}"
            if self.rng.random() < unread:
                words += ", unread"
            else:
                instance.read()
            self._check_answer(instance, answer, arriving)
        step.stored = [(message.stream, message.message_id) for message in self.accept(arriving)]
        await self.observe(words, step)
        if step.claimed is not None and len(step.limits) == 2:
            self._check_told(instance)

    def accept(self, messages: Sequence[New]) -> list[New]:
        """Note committed messages; those that the inbox has not seen before are the ones that were stored."""
        outcomes = self.received.outcomes([message for message in messages if message.queue == "inbox"])
        answers = iter(outcomes)
        stored = [message for message in messages if message.queue == "outbox" or next(answers) == "stored"]
        self.received.bodies.update({m.message_id: m for m in stored if m.queue == "inbox"})
        return stored

    def busy_streams(self) -> set[UUID]:
        """Streams that a storer has in an open transaction: storing into them would wait for its end."""
        return {message.stream[1] for storer in self.storers for message in storer.stored}

    def _check_answer(self, instance: VirtualInstance, answer: Answer, arriving: Sequence[New]) -> None:
        expected = [outcome for outcome in self.received.outcomes(list(arriving)) if outcome != "stored"]
        if sorted(refusal.outcome for refusal in answer.refused) != sorted(expected):
            raise Violation(f"the inbox answered {answer.refused}, expected {expected}")
        if len(instance.hand) != len(instance.coordinator.held):
            raise Violation(
                f"{instance.name} has {len(instance.hand)} in hand, its coordinator {instance.coordinator.held}"
            )

    def _check_told(self, instance: VirtualInstance) -> None:
        """An instance that has an answer knows of every lease that holds, also of those whose answer was lost."""
        for stream, row in self.ledger.tables.rows.items():
            if row.lease_expiry is None or row.lease_expiry <= self.now:
                continue
            if row.instance_id == instance.instance_id and (stream, row.lease_token) not in instance.seen:
                raise Violation(f"{instance.name} holds {stream} under a token that it was never told: {row}")

    def _uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128), version=4)

    def pass_time(self, seconds: float) -> None:
        self.now = max(T0, self.now + timedelta(seconds=seconds))


def as_new(message: InboxMessage) -> New:
    assert not isinstance(message.stream, str)
    return New("inbox", message.stream, message.message_id, message.payload, message.scheduled_for)


def as_inbox(message: New) -> InboxMessage:
    return InboxMessage(
        message_id=MessageId(message.message_id),
        message_type="Happened",
        payload=message.payload,
        stream=message.stream_id,
        scheduled_for=message.scheduled_for,
    )


def _leases(answer: Answer) -> list[tuple[tuple[str, UUID], int]]:
    return sorted({(claimed.stream, claimed.token) for claimed in received(answer)})


def _told(report: WorkReport) -> str:
    counts: dict[str, int] = {}
    for outcome in report.outcomes:
        counts[type(outcome).__name__] = counts.get(type(outcome).__name__, 0) + 1
    said = [f"{count} {name}" for name, count in counts.items()]
    said += [f"{len(report.renewals)} renewals"] if report.renewals else []
    said += [f"{len(report.new_inbox_messages)} inbox messages"] if report.new_inbox_messages else []
    wants = "nothing" if WorkBatchFlags.SKIP_CLAIM in report.flags else dict(report.limits)
    return f"{', '.join(said) or 'nothing'}, wants {wants}"


def _heard(answer: Answer) -> str:
    claimed = [f"{c.stream[0][0]}{str(c.stream[1])[:4]}:{c.version}" for c in received(answer)]
    return f"{' '.join(claimed) or 'nothing'}; {len(answer.rejected)} rejected, {len(answer.refused)} refused"
