"""Given, when, then for a fold: no database, but the JSON of events and rows as they would be stored."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from whippletree.dispatch.folding import EventRow, Folded, fold
from whippletree.dispatch.invoke import Providers, classes_in, hints_of
from whippletree.dispatch.perspective import EventDecoder, Perspective, PerspectiveSettings, define_perspective
from whippletree.errors import UsageError
from whippletree.message.envelope import PerspectiveWork
from whippletree.message.ids import StreamId, new_message_id
from whippletree.message.type_names import MessageKind, MessageTypes


def perspective(function: Callable[..., Any]) -> PerspectiveCase:
    """A fold to be tested: `perspective(order_summary).given(placed).when(shipped).then(Summary(...))`."""
    if inspect.iscoroutinefunction(function):
        raise UsageError(
            f"{function.__name__} writes by its own SQL; publish its events on a database and call drained(app)"
        )
    # Classes that were defined inside a test are known to nobody but that test's frame.
    names = dict(sys._getframe(1).f_locals)  # noqa: SLF001 - inspect.currentframe() is the same, typed worse
    return PerspectiveCase(function=function, names=names)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerspectiveCase:
    """A fold, and the events of one stream that are put before it."""

    function: Callable[..., Any]
    names: Mapping[str, Any]
    events: tuple[Any, ...] = ()

    def given(self, *events: Any) -> Self:
        """What has happened."""
        return replace(self, events=(*self.events, *events))

    def when(self, *events: Any) -> Self:
        """What happens now."""
        return self.given(*events)

    def then(self, expected: Any) -> None:
        """This is the row, None for none. It is folded twice: a fold that is no pure function is found out."""
        first, second = self._fold(), self._fold()
        for folded, _ in (first, second):
            assert folded.failed is None, f"{self.function.__name__} failed at {folded.failed}"
        row = _row(*first)
        assert row == expected, f"{self.function.__name__} made {row!r}, not {expected!r}"
        assert _row(*second) == row, f"{self.function.__name__} made {_row(*second)!r} of the same events at once after"

    def then_fails(self, words: str) -> None:
        """One of the events cannot be folded, and the error has these words."""
        folded, made = self._fold()
        assert folded.failed is not None, f"{self.function.__name__} made {_row(folded, made)!r}, and did not fail"
        assert words in folded.failed, f"{self.function.__name__} failed at {folded.failed}"

    def _fold(self) -> tuple[Folded, Perspective[Any]]:
        types = MessageTypes()
        name = self.function.__name__
        hints = hints_of(self.function, name, self.names)
        parameters = list(inspect.signature(self.function).parameters)
        for taken in classes_in(hints.get(parameters[1])) if len(parameters) > 1 else ():
            types.register(taken, kind=MessageKind.EVENT, stream=lambda _: "stream")
        made = define_perspective(
            self.function, PerspectiveSettings(), types=types, providers=Providers(), names=self.names
        )
        stored = [_stored(version, event, types) for version, event in enumerate(self.events, 1)]
        stream_id = StreamId(new_message_id())
        work = PerspectiveWork(made.queue, stream_id, 0, None, len(stored), 1, 0)
        folded = Folded(work, 0, len(stored))
        fold(made, EventDecoder(made, types), folded, None, stored)
        return folded, made


def _stored(version: int, event: Any, types: MessageTypes) -> EventRow:
    known = types.of(event)
    payload = known.encode(event)
    return EventRow(1, version, known.name, 1, payload, new_message_id(), None, None, None, datetime.now(UTC))


def _row(folded: Folded, made: Perspective[Any]) -> Any:
    assert made.decode_row is not None
    return None if folded.row is None else made.decode_row(str(folded.row))
