"""A perspective that chooses its keys: it follows the feed, so that the events of a key come in the order of commits.

Events of many streams meet in one row, and only the feed has an order among them. It is the same order when the rows
are built again. Rows and checkpoint commit together, and one instance at a time follows. A rebuild is shared by all:
`rebuild_part.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from whippletree.dispatch.context import context_of
from whippletree.dispatch.perspective import EventDecoder, Perspective
from whippletree.dispatch.policy import Retry
from whippletree.dispatch.subscriber import CheckpointEvery, InstanceMode, Start
from whippletree.errors import CoordinationError
from whippletree.message.event import NumberedEvent, SortedEvent
from whippletree.message.type_names import MessageTypes
from whippletree.store.feed import Chosen
from whippletree.store.statements import call
from whippletree.store.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiStreamPerspective:
    """The perspective as a follower of the feed."""

    perspective: Perspective[Any]
    types: MessageTypes
    schema: str = "whippletree"
    generation: int | None = None
    """Which generation of rows a rebuild fills; None follows for the live one, whichever that is."""
    start: Start | int = Start.BEGINNING
    mode: InstanceMode = InstanceMode.COORDINATED
    checkpoint: CheckpointEvery = field(default_factory=lambda: CheckpointEvery(count=500))
    transactional: bool = True
    decode: EventDecoder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decode", EventDecoder(self.perspective, self.types))

    @property
    def name(self) -> str:
        return self.perspective.queue + ("" if self.generation is None else f"@{self.generation}")

    @property
    def retry(self) -> Retry:
        return self.perspective.retry

    @property
    def chosen(self) -> Chosen:
        return Chosen(patterns=self.perspective.patterns)

    async def apply(self, events: Sequence[NumberedEvent], transaction: Transaction | None, attempts: int) -> None:
        """Fold the events, in order, into the rows of their keys. Raises at the first that cannot be folded."""
        assert transaction is not None
        perspective = self.perspective
        assert perspective.decode_row is not None
        taken = self.keyed(events)
        keys = {key: 0 for _, _, key in taken}
        generation = self.generation or await self._ask(transaction, "live_generation", perspective.name)
        rows: dict[str, Any] = dict.fromkeys(keys)
        places = list(keys)
        for place, text in await transaction.fetch(
            call(self.schema, "read_rows", 3), perspective.name, generation, places
        ):
            rows[places[place - 1]] = perspective.decode_row(text)
        for numbered, message, key in taken:
            rows[key] = self.fold(rows[key], numbered, message, attempts)
            keys[key] = numbered.number
        texts = [None if row is None else perspective.encode_row(row) for row in rows.values()]
        if not await self._ask(
            transaction, "write_rows", perspective.name, generation, places, texts, [keys[key] for key in places]
        ):
            raise CoordinationError(f"the rows of {perspective.name} were swapped meanwhile; they are folded again")

    async def sort(self, events: Sequence[NumberedEvent], transaction: Transaction) -> None:
        """Note the keys of the events, for those who fold them into a rebuild."""
        taken = self.keyed(events)
        name, numbers, keys = self.perspective.name, [n.number for n, _, _ in taken], [key for _, _, key in taken]
        if not await self._ask(transaction, "sort_events", name, self.generation, numbers, keys):
            raise CoordinationError(f"the rebuild of {name} was given up meanwhile")

    def keyed(self, events: Sequence[NumberedEvent]) -> list[tuple[NumberedEvent, Any, str]]:
        """The events that the perspective takes, decoded, each with its key."""
        messages = [self.decode(n.event.event_type, n.event.shape, n.event.payload) for n in events]
        return [
            # A program with another idea of its key would break the order of the keys that were sorted by the former.
            (n, message, n.key if isinstance(n, SortedEvent) else self.perspective.key_of(message))
            for n, message in zip(events, messages, strict=True)
            if message is not None
        ]

    def fold(self, row: Any, numbered: NumberedEvent, message: Any, attempts: int) -> Any:
        """The row of the event's key after the event."""
        invocation = self.perspective.invocation
        injected = {name: context_of(numbered.event, attempts) for name, _ in invocation.injected}
        return invocation.function(row, message, **injected)

    async def _ask(self, transaction: Transaction, function: str, *arguments: Any) -> Any:
        return await transaction.fetchval(call(self.schema, function, len(arguments)), *arguments)
