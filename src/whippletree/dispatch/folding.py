"""Folding the events of streams into rows, in memory: what is read, what comes out, and where it went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from whippletree.dispatch.context import Context
from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.perspective import EventDecoder, Perspective
from whippletree.dispatch.policy import Retry
from whippletree.errors import InvalidMessage, UnknownName
from whippletree.message.envelope import PerspectiveWork
from whippletree.message.ids import StreamId
from whippletree.message.outcome import (
    Outcome,
    PerspectiveCheckpointCompletion,
    PerspectiveCheckpointFailure,
    Verdict,
)


class EventRow(NamedTuple):
    """An event as `read_perspective_events` tells it."""

    place: int
    version: int
    event_type: str
    shape: int
    payload: str
    event_id: UUID | None
    metadata: str | None
    correlation_id: UUID | None
    causation_id: UUID | None
    created_at: datetime | None


@dataclass(slots=True, eq=False)
class Folded:
    """What became of one stream: how far it came, the row to write, and why it went no further."""

    work: PerspectiveWork
    after: int
    """From where on it was folded."""
    through: int
    generation: int = 1
    row: str | None = None
    changed: bool = False
    """Whether there is a row to write, or to remove."""
    events: list[tuple[int, Any, Context]] = field(default_factory=list)
    """For a hand-written perspective: the events, to be run in the transaction that commits them."""
    headers: str | None = None
    """The metadata of its first event, which names the trace to follow."""
    failed: str | None = None
    cause: Exception | None = None
    """What the perspective raised, if it was that."""
    verdict: Verdict = Verdict.RETRY
    retry_seconds: float | None = None

    def park(self, version: int, error: str) -> None:
        """Stop before an event that no further attempt would mend. What came before it is kept."""
        self.through = version - 1
        self.failed, self.verdict, self.retry_seconds = error, Verdict.PARK, None

    def fail(self, version: int, error: str, cause: Exception, retry: Retry) -> None:
        """Stop before an event, and try it again as the perspective wants it. What came before it is kept."""
        self.park(version, error)
        self.cause = cause
        if (pause := retry.postponed_by(cause)) is not None:
            self.verdict, self.retry_seconds = Verdict.POSTPONE, pause
            return
        # Of what was handed out only the first event has been tried before.
        attempts = self.work.attempts if version == self.work.checkpoint + 1 else 1
        self.retry_seconds = retry.again_after(cause, attempts)
        if self.retry_seconds is not None:
            self.verdict = Verdict.RETRY

    def outcomes(self) -> list[Outcome]:
        """What there is to report, under the lease of the work."""
        name, token = self.work.perspective_name, self.work.lease_token
        told: list[Outcome] = []
        if self.through > self.after:
            told.append(PerspectiveCheckpointCompletion(self.work.stream_id, name, self.through, lease_token=token))
        if self.failed is not None:
            told.append(
                PerspectiveCheckpointFailure(
                    self.work.stream_id,
                    name,
                    self.failed,
                    retry_seconds=self.retry_seconds,
                    verdict=self.verdict,
                    lease_token=token,
                )
            )
        return told


def fold(
    perspective: Perspective[Any], decode: EventDecoder, folded: Folded, row: str | None, events: Sequence[EventRow]
) -> None:
    """Fold the events of one stream into its row. An event that cannot be folded ends it there."""
    if perspective.decode_row is None:
        _collect(perspective, decode, folded, events)
        return
    try:
        _fold(perspective, decode, folded, row, events)
    except _Spoilt:
        # Once more, writing the row down after each event, to stop before the one that spoils it.
        folded.row, folded.changed = None, False
        _fold(perspective, decode, folded, row, events, checking=True)


class _Spoilt(Exception):
    """The row at the end cannot be written down."""


def _collect(perspective: Perspective[Any], decode: EventDecoder, folded: Folded, events: Sequence[EventRow]) -> None:
    for stored in events:
        try:
            event = decode(stored.event_type, stored.shape, stored.payload)
        except (UnknownName, InvalidMessage) as error:
            folded.park(stored.version, _at(stored, error))
            return
        if event is not None:
            folded.events.append((stored.version, event, _context(folded.work, stored)))


def _fold(
    perspective: Perspective[Any],
    decode: EventDecoder,
    folded: Folded,
    text: str | None,
    events: Sequence[EventRow],
    checking: bool = False,
) -> None:
    function = perspective.invocation.function
    injected = perspective.invocation.injected
    try:
        row = None if text is None else perspective.decode_row(text)  # type: ignore[misc]  # it has rows
    except (msgspec.MsgspecError, ValueError) as error:
        folded.park(folded.after + 1, f"its row cannot be read, rebuild the perspective: {error_text(error)}")
        return
    called = False
    for stored in events:
        try:
            event = decode(stored.event_type, stored.shape, stored.payload)
        except (UnknownName, InvalidMessage) as error:
            folded.park(stored.version, _at(stored, error))
            break
        if event is None:
            continue
        try:
            if injected:
                context = _context(folded.work, stored)
                row = function(row, event, **{name: context for name, _ in injected})
            else:
                row = function(row, event)
            if checking:
                _write_down(perspective, folded, row, text)
        except Exception as error:
            folded.fail(stored.version, _at(stored, error), error, perspective.retry)
            break
        called = True
    if called and not checking:
        try:
            _write_down(perspective, folded, row, text)
        except InvalidMessage:
            raise _Spoilt from None


def _write_down(perspective: Perspective[Any], folded: Folded, row: Any, text: str | None) -> None:
    folded.row = None if row is None else perspective.encode_row(row)
    # A row may have been changed where it is, so what the fold returned says nothing about that.
    folded.changed = row is not None or text is not None


def _context(work: PerspectiveWork, stored: EventRow) -> Context:
    assert stored.event_id is not None
    assert stored.created_at is not None
    return Context(
        message_id=stored.event_id,
        message_type=stored.event_type,
        stream_id=StreamId(work.stream_id),
        version=stored.version,
        attempts=work.attempts,
        created_at=stored.created_at,
        correlation_id=stored.correlation_id,
        causation_id=stored.causation_id,
        headers=stored.metadata,
    )


def _at(stored: EventRow, error: Exception) -> str:
    return f"event {stored.version} ({stored.event_type}): {error_text(error)}"
