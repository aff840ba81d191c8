"""What an instance hands in, and what it gets back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from functools import lru_cache
from types import MappingProxyType

from whippletree.claim.held import Run
from whippletree.errors import InvalidSetting
from whippletree.message.envelope import (
    ClaimedMessage,
    InboxMessage,
    OutboxMessage,
    PerspectiveWork,
    Queue,
    ReceptorWork,
)
from whippletree.message.ids import MessageId
from whippletree.message.outcome import Outcome, Refusal, Rejection
from whippletree.store.new_messages import storable

_NAME = r"[A-Za-z_][A-Za-z0-9_.]{0,99}"
_QUEUE = re.compile(rf"outbox|inbox|(receptor|perspective)/\*|receptor/{_NAME}|perspective/{_NAME}(@\d{{1,9}})?")


class WorkBatchFlags(Flag):
    """How a batch differs from an ordinary one."""

    NONE = 0
    SKIP_CLAIM = auto()
    """Hand in only; claim nothing. Whoever has only done so is no instance that works, and is not listed as one."""
    DEBUG_MODE = auto()
    """Keep finished messages where the views still show them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """Everything that happened since the last batch, and how much work is wanted in return."""

    outcomes: Sequence[Outcome] = ()
    renewals: Sequence[MessageId] = ()
    leases: Sequence[Run] = ()
    """More to renew: of any kind of work, as `HeldWork.runs` tells them."""
    new_outbox_messages: Sequence[OutboxMessage] = ()
    new_inbox_messages: Sequence[InboxMessage] = ()
    limits: Mapping[Queue, int] | Mapping[str, int] = field(
        default_factory=lambda: MappingProxyType({Queue.OUTBOX: 100, Queue.INBOX: 100})
    )
    """How much to take from each queue: outbox, inbox, `receptor/NAME`, `perspective/NAME`; a NAME of `*` means all.
    0 takes nothing now."""
    flags: WorkBatchFlags = WorkBatchFlags.NONE
    wait: bool = False
    """Be woken when work arrives, if there is none now."""

    def __post_init__(self) -> None:
        for queue, limit in self.limits.items():
            if not _is_queue(queue):
                raise InvalidSetting(
                    f"there is no queue {queue!r}; give outbox, inbox, receptor/NAME or perspective/NAME"
                )
            require_whole(f"the limit of {queue}", limit)

    def storable(self, max_payload_bytes: int) -> tuple[WorkReport, list[Refusal]]:
        """The report without the new messages that cannot be stored, and why they cannot."""
        outbox, refused = storable(self.new_outbox_messages, max_payload_bytes)
        inbox, others = storable(self.new_inbox_messages, max_payload_bytes)
        if not refused and not others:
            return self, []
        return replace(self, new_outbox_messages=outbox, new_inbox_messages=inbox), refused + others


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBatch:
    """The work that an instance may do now, and what became of its report.

    The messages of a stream stand in the order in which they are to be handled.
    """

    claimed_outbox_messages: Sequence[ClaimedMessage] = ()
    claimed_inbox_messages: Sequence[ClaimedMessage] = ()
    claimed_receptor_work: Sequence[ReceptorWork] = ()
    claimed_perspective_work: Sequence[PerspectiveWork] = ()
    claimed_at: float = 0.0
    """When the work was asked for, by this process's monotonic clock: its leases last at least their length from
    there."""
    assigned_partitions: Sequence[int] = ()
    rejected: Sequence[Rejection] = ()
    refused: Sequence[Refusal] = ()

    @property
    def size(self) -> int:
        """How many pieces of work came."""
        return (
            len(self.claimed_outbox_messages)
            + len(self.claimed_inbox_messages)
            + len(self.claimed_receptor_work)
            + len(self.claimed_perspective_work)
        )

    @property
    def empty(self) -> bool:
        return not self.size


def require_seconds(**values: object) -> None:
    """Raise `InvalidSetting` unless the values, by their names, can be lengths of time."""
    for name, value in values.items():
        if not isinstance(value, int | float) or not 0 < value < 1e9:
            raise InvalidSetting(f"{name} is {value!r}; give a number of more than 0 and less than 1000000000")


def require_whole(name: str, value: object, least: int = 0, *, optional: bool = False) -> None:
    """Raise `InvalidSetting` unless the value is a whole number that fits into an integer of PostgreSQL."""
    if value is None and optional:
        return
    if not isinstance(value, int) or not least <= value < 2**31:
        raise InvalidSetting(f"{name} is {value!r}; give a whole number from {least} to {2**31 - 1}")


@lru_cache(1024)
def _is_queue(name: object) -> bool:
    """A program has few queues, and names them with every poll."""
    return isinstance(name, str) and _QUEUE.fullmatch(name) is not None
