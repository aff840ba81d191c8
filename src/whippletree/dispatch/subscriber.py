"""A subscriber: your function that follows the global feed, by name, from where it left off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from whippletree.dispatch.context import context_of, idempotency_key
from whippletree.dispatch.invoke import Invocation, Providers, Surroundings
from whippletree.dispatch.policy import Retry
from whippletree.errors import InvalidSetting
from whippletree.message.event import NumberedEvent, StoredEvent
from whippletree.message.type_names import MessageTypes
from whippletree.store.feed import Chosen
from whippletree.store.transaction import Transaction
from whippletree.telemetry import following


class InstanceMode(Enum):
    """How the instances that have the same subscriber share it."""

    SINGLE_INSTANCE = "single instance"
    """They do not: only one may run it. The latest to start takes it over."""
    COORDINATED = "coordinated"
    """One follows, under a lock; the others stand by and take over when it ends."""


class Start(Enum):
    """Where a new subscriber begins. A number of the feed says: after that one."""

    BEGINNING = "beginning"
    NOW = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEvery:
    """When the checkpoint is written: after so many events, or so many seconds, whichever comes first.

    A subscriber with a transaction has the effects of as many events in one transaction.
    """

    count: int = 1
    seconds: float = 1

    def __post_init__(self) -> None:
        if self.count < 1 or self.seconds <= 0:
            raise InvalidSetting("a checkpoint is written every 1 event or more, and after more than 0 seconds")


class Follower(Protocol):
    """Whatever follows the feed under a name and a checkpoint of its own: a subscriber, or a perspective."""

    @property
    def name(self) -> str: ...

    @property
    def chosen(self) -> Chosen: ...

    @property
    def start(self) -> Start | int: ...

    @property
    def mode(self) -> InstanceMode: ...

    @property
    def retry(self) -> Retry: ...

    @property
    def checkpoint(self) -> CheckpointEvery: ...

    @property
    def transactional(self) -> bool:
        """Whether it is given a transaction, which the checkpoint commits; otherwise it is given single events."""

    async def apply(self, events: Sequence[NumberedEvent], transaction: Transaction | None, attempts: int) -> None:
        """Have the effects of the events, in order. Raises when one fails; then nothing of the transaction stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """The user's function as a follower. Its annotations choose the events, unless patterns do."""

    invocation: Invocation
    types: MessageTypes
    providers: Providers = field(default_factory=Providers)
    patterns: Sequence[str] | None = None
    start: Start | int = Start.BEGINNING
    mode: InstanceMode = InstanceMode.SINGLE_INSTANCE
    retry: Retry = field(default_factory=Retry)
    checkpoint: CheckpointEvery = CheckpointEvery()

    @property
    def name(self) -> str:
        return self.invocation.name

    @property
    def transactional(self) -> bool:
        return self.invocation.takes_transaction

    @property
    def chosen(self) -> Chosen:
        if self.patterns is not None:
            return Chosen(patterns=tuple(self.patterns))
        classes = [python_type for python_type in self.invocation.message_types if python_type is not StoredEvent]
        if not classes:
            return Chosen()
        names = {self.types.of_class(python_type).name for python_type in classes}
        return Chosen(types=sorted({stored for name in names for stored in self.types.upcasters.names_of(name)}))

    def require_choice(self) -> None:
        """Raise unless the function says which events it takes, and these are registered."""
        if self.chosen.types is None and StoredEvent not in self.invocation.message_types:
            raise InvalidSetting(
                f"subscriber {self.name} does not say which events it takes; annotate its first parameter with them, "
                "or with StoredEvent for all"
            )

    async def apply(self, events: Sequence[NumberedEvent], transaction: Transaction | None, attempts: int) -> None:
        for numbered in events:
            event = numbered.event
            around = Surroundings(
                context=context_of(event, attempts),
                key=idempotency_key(self.name, event.event_id),
                transaction=transaction,
            )
            with following(event.metadata):
                await self.invocation(self._message(event), around, self.providers)

    def _message(self, event: StoredEvent) -> Any:
        if StoredEvent in self.invocation.message_types:
            return self.types.upcasters.lift(event)
        return self.types.decode(event.event_type, event.shape, event.payload)
