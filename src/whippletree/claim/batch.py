"""What an instance hands in, and what it gets back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from types import MappingProxyType

from whippletree.claim.held import Run
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
    """How much to take from each queue: outbox, inbox, `receptor/NAME`, `perspective/NAME`. 0 takes nothing now."""
    flags: WorkBatchFlags = WorkBatchFlags.NONE
    wait: bool = False
    """Be woken when work arrives, if there is none now."""


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
