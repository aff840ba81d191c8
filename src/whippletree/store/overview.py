"""The state of an installation at a glance, and what in it should worry an operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import asyncpg

from whippletree.store.database import translated
from whippletree.store.statements import call

BACKLOG = 10_000
"""As many messages in the outbox are a backlog that grows."""

SILENT = 30.0
"""Seconds. An instance beats once a second, also while its receptors block."""


class AlertLevel(StrEnum):
    """How much an alert matters."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that should not stay as it is, and what to do."""

    severity: AlertLevel
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class InstanceOverview:
    """One running instance. Times are seconds."""

    instance_id: UUID
    service_name: str
    host_name: str
    process_id: int
    age: float
    silence: float
    session_locked: bool
    partitions: int
    leases: int
    queues: Sequence[str]
    draining: bool
    gone: bool
    """Its session has ended, and nobody has removed it."""

    @property
    def silent(self) -> bool:
        """It is not known to be gone, and yet has not beaten for long: stopped, or cut off."""
        return not self.gone and self.silence > SILENT

    @property
    def place(self) -> str:
        return f"{self.host_name}:{self.process_id}"


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """One queue: how many messages or events wait, and in which state their streams are."""

    queue: str
    waiting: int
    ready: int
    leased: int
    orphaned: int
    later: int
    parked: int
    failing: int
    oldest: float | None
    """Seconds since the oldest came; None when nothing waits."""
    unowned: int
    """Streams with work in partitions that nobody owns."""
    worked: bool
    """A live instance that takes work takes it from here, too."""


@dataclass(frozen=True, slots=True)
class SubscriberOverview:
    """One subscriber: what it does, how far it is, and who follows."""

    subscriber_name: str
    state: str
    checkpoint: int
    behind: int
    """Events after the checkpoint."""
    lag: float | None
    """Seconds since the first of them came; None when there is none."""
    paused: bool
    attempts: int
    failed_number: int | None
    error: str | None
    holder: str | None

    @property
    def unfollowed(self) -> bool:
        """Whether it has events before it, and nobody who applies them."""
        return self.behind > 0 and (self.holder is None or self.state == "lost")

    @property
    def rebuild(self) -> str | None:
        """Of which rebuild it is a part, if it is one."""
        rebuild, _, _ = self.subscriber_name.rpartition("/")
        return rebuild if "@" in rebuild else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything that `whippletree status` shows."""

    instances: Sequence[InstanceOverview]
    queues: Sequence[QueueOverview]
    subscribers: Sequence[SubscriberOverview]
    dead_letters: int

    @property
    def alerts(self) -> list[Alert]:
        """What is wrong, the worst first."""
        found = [alert for queue in self.queues for alert in _queue_alerts(queue)]
        found += [alert for instance in self.instances for alert in _instance_alerts(instance)]
        found += [alert for subscriber in self.subscribers for alert in _subscriber_alerts(subscriber)]
        found += self._rebuild_alerts()
        leases, partitions = sum(i.leases for i in self.instances), sum(i.partitions for i in self.instances)
        if partitions and leases > len(self.instances) * partitions:
            found.append(
                Alert(
                    AlertLevel.WARNING,
                    f"{_spoken(leases, 'lease')} are held, more than {_spoken(len(self.instances), 'instance')} with"
                    f" {_spoken(partitions, 'partition')} should: they take more than they can handle",
                    "lower the concurrency of `whippletree run`, or look for receptors that hang",
                )
            )
        return sorted(found, key=lambda alert: alert.severity)

    def _rebuild_alerts(self) -> Iterator[Alert]:
        """Instances take a few parts at a time: the others wait for their turn, unless nobody has any."""
        parts = [part for part in self.subscribers if part.rebuild is not None and part.behind]
        for rebuild in sorted({str(part.rebuild) for part in parts}):
            if all(part.unfollowed for part in parts if part.rebuild == rebuild):
                yield Alert(
                    AlertLevel.CRITICAL,
                    f"nobody works {rebuild}, a rebuild, and parts of it wait",
                    "start `whippletree run`",
                )


def _queue_alerts(queue: QueueOverview) -> Iterator[Alert]:
    name = queue.queue
    if queue.orphaned:
        yield Alert(
            AlertLevel.CRITICAL,
            f"{_spoken(queue.orphaned, 'lease')} of {name} ran out: workers crashed or hang",
            "see that instances run: `whippletree instances list`",
        )
    if queue.parked:
        yield Alert(
            AlertLevel.CRITICAL,
            f"{_spoken(queue.parked, 'stream')} of {name} stopped: a message gave up",
            f"see `whippletree parked --queue {name}`",
        )
    if (queue.ready or queue.unowned) and not queue.worked:
        yield Alert(AlertLevel.CRITICAL, f"nobody works {name}, and work waits there", "start `whippletree run`")
    elif queue.unowned:
        yield Alert(
            AlertLevel.CRITICAL,
            f"{_spoken(queue.unowned, 'stream')} of {name} in partitions that nobody owns",
            "start more instances, or raise the cap on partitions per instance",
        )
    if name == "outbox" and queue.waiting > BACKLOG:
        yield Alert(
            AlertLevel.WARNING,
            f"{queue.waiting:,} messages wait in the outbox: the backlog grows",
            "start more instances, or see whether the transport is slow",
        )


def _instance_alerts(instance: InstanceOverview) -> Iterator[Alert]:
    named = f"instance {instance.place} of {instance.service_name}"
    if instance.gone:
        yield Alert(
            AlertLevel.CRITICAL, f"{named} is gone, and nobody has taken over from it", "start `whippletree run`"
        )
    elif instance.silent:
        yield Alert(
            AlertLevel.CRITICAL,
            f"{named} has not beaten for {round(instance.silence)} s: stopped or cut off, and its partitions wait",
            "see to the process, or end it: the others then take over",
        )


def _subscriber_alerts(subscriber: SubscriberOverview) -> Iterator[Alert]:
    name = subscriber.subscriber_name
    if subscriber.state == "parked":
        yield Alert(
            AlertLevel.CRITICAL,
            f"subscriber {name} is parked at event {subscriber.failed_number}",
            f"see `whippletree why {name}`",
        )
    elif subscriber.paused:
        yield Alert(
            AlertLevel.WARNING,
            f"subscriber {name} is paused, {_spoken(subscriber.behind, 'event')} behind",
            f"`whippletree subscribers resume {name}`",
        )
    elif subscriber.unfollowed and subscriber.rebuild is None:
        yield Alert(
            AlertLevel.CRITICAL,
            f"nobody follows subscriber {name}, {_spoken(subscriber.behind, 'event')} behind",
            "start `whippletree run`",
        )


def _spoken(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


async def overview(connection: asyncpg.Connection, schema: str) -> Overview:
    """Look once. Reads only; on a large backlog it counts for a while."""
    with translated():
        instances = await connection.fetch(call(schema, "instance_overview", 0))
        queues = await connection.fetch(call(schema, "queue_overview", 0))
        subscribers = await connection.fetch(call(schema, "subscriber_overview", 0))
        dead_letters = await connection.fetchval(call(schema, "count_dead_letters", 0))
    return Overview(
        instances=[InstanceOverview(*row) for row in instances],
        queues=[QueueOverview(*row) for row in queues],
        subscribers=[SubscriberOverview(*row) for row in subscribers],
        dead_letters=dead_letters,
    )
