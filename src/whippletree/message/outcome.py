"""How one piece of work ended. Outcomes are values, handed in with the next work report."""

from __future__ import annotations

from enum import IntFlag, StrEnum

import msgspec

from whippletree.message.ids import MessageId


class MessageProcessingStatus(IntFlag):
    """What a message has been through."""

    STORED = 1
    PUBLISHED = 2
    COMPLETED = 4
    FAILED = 8


class Verdict(StrEnum):
    """What is to happen to a message that failed."""

    RETRY = "retry"
    """Try again, until its attempts are used up; then park it."""
    PARK = "park"
    """Hold its stream at it until an operator redrives or skips it."""
    POSTPONE = "postpone"
    """Try again without counting the attempt: the message is not to blame."""


class MessageCompletion(msgspec.Struct, frozen=True):
    """The message is done."""

    message_id: MessageId
    status: MessageProcessingStatus = MessageProcessingStatus.COMPLETED


class MessageFailure(msgspec.Struct, frozen=True):
    """The message failed; the rest of its stream's run goes back with it."""

    message_id: MessageId
    error: str
    status: MessageProcessingStatus = MessageProcessingStatus.FAILED
    stack_trace: str | None = None
    retry_seconds: float | None = None
    verdict: Verdict = Verdict.RETRY


class MessageRelease(msgspec.Struct, frozen=True):
    """The message, and what follows it in its run, goes back untried."""

    message_id: MessageId


Outcome = MessageCompletion | MessageFailure | MessageRelease


class Rejection(msgspec.Struct, frozen=True):
    """A report that changed nothing, because the lease was no longer the reporter's."""

    message_id: MessageId
    verb: str
    reason: str


class Refusal(msgspec.Struct, frozen=True):
    """A new message that was not stored: a duplicate, a conflict, or one that cannot be stored."""

    message_id: MessageId | None
    outcome: str
    reason: str | None
