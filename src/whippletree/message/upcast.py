"""Lifts stored events of an old shape to the present one, on every read path.

An upcaster is a pure function from the JSON value of one shape to that of the next; it may also give the event another
type. The store keeps what was appended; only readers see the lifted event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from whippletree.errors import DuplicateName, UnknownName
from whippletree.message.event import StoredEvent

Upcaster = Callable[[Any], Any]


class Upcasters:
    """The known shapes of event types, and the way from each to the next."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], tuple[Upcaster, str]] = {}

    def add(self, event_type: str, shape: int, lift: Upcaster, *, becomes: str | None = None) -> None:
        """Lift `event_type` from `shape` to the next one; under another type when `becomes` names it."""
        if (event_type, shape) in self._steps:
            raise DuplicateName(f"{event_type} has an upcaster from shape {shape} already")
        self._steps[event_type, shape] = (lift, becomes or event_type)

    def needed(self, event_type: str, shape: int) -> bool:
        """Whether events of this type and shape have to be lifted."""
        return (event_type, shape) in self._steps

    def names_of(self, event_type: str) -> frozenset[str]:
        """The type, and every type that is lifted to it: the names under which its events are stored."""
        names = {event_type}
        while more := {old for (old, _), (_, becomes) in self._steps.items() if becomes in names} - names:
            names |= more
        return frozenset(names)

    def present_name(self, event_type: str, shape: int) -> str:
        """The type that this one has become."""
        seen: set[tuple[str, int]] = set()
        while (event_type, shape) in self._steps and (event_type, shape) not in seen:
            seen.add((event_type, shape))
            _, becomes = self._steps[event_type, shape]
            event_type, shape = becomes, shape + 1 if becomes == event_type else 1
        return event_type

    def lift(self, event: StoredEvent) -> StoredEvent:
        """The event in its present shape. Lifting it again changes nothing."""
        if not self.needed(event.event_type, event.shape):
            return event
        event_type, shape, payload = self.lift_payload(event.event_type, event.shape, event.payload)
        return msgspec.structs.replace(event, event_type=event_type, shape=shape, payload=payload)

    def lift_payload(self, event_type: str, shape: int, payload: str) -> tuple[str, int, str]:
        """Type, shape and payload as they are at present."""
        value = msgspec.json.decode(payload)
        began, seen = event_type, set()
        while (event_type, shape) in self._steps:
            if (event_type, shape) in seen:
                raise UnknownName(f"the upcasters of {began} go round in a circle at shape {shape}")
            seen.add((event_type, shape))
            lift, becomes = self._steps[event_type, shape]
            value = lift(value)
            event_type, shape = becomes, shape + 1 if becomes == event_type else 1
        return event_type, shape, msgspec.json.encode(value).decode()
