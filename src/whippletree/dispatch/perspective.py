"""Perspectives: a fold from events to rows, or a function that writes what it likes in the transaction.

A definition is read once, when the function is registered, and a wrong one is refused there with what to write instead.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID

from whippletree.dispatch.columns import Column, read_columns, read_indexes
from whippletree.dispatch.context import Context
from whippletree.dispatch.invoke import Invocation, Providers, classes_in, hints_of, read_signature
from whippletree.dispatch.policy import Retry
from whippletree.errors import InvalidMessage, InvalidSetting, UnknownName
from whippletree.message.codec import encode
from whippletree.message.type_names import MessageTypes, decoder_of
from whippletree.store.transaction import Transaction

Row = TypeVar("Row")

MAX_ROW_BYTES = 16 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Perspective(Generic[Row]):
    """One perspective, ready to be run. `row_type` is None for one that writes by its own SQL."""

    name: str
    invocation: Invocation
    patterns: tuple[str, ...]
    """The names of its event types, as they are stored."""
    row_type: type[Row] | None = None
    columns: tuple[Column, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    key: Callable[[Any], UUID | str] | None = None
    """Chooses the row by the event; None folds every stream into a row of its own."""
    inline: bool = False
    """Runs in the appending transaction, so that whoever reads after it sees it."""
    tables: tuple[str, ...] = ()
    """What one that writes by its own SQL writes, so that it can be built again."""
    clear: Callable[[UUID | str, Transaction], Awaitable[None]] | None = None
    """Removes what belongs to one stream from them, so that one stream can be built again."""
    retry: Retry = field(default_factory=Retry)
    decode_row: Callable[[str], Row] | None = None

    @property
    def queue(self) -> str:
        return f"perspective/{self.name}"

    @property
    def takes_context(self) -> bool:
        return self.row_type is None or any(asked is Context for _, asked in self.invocation.injected)

    def key_of(self, event: Any) -> str:
        """The key of the row that an event belongs to, when the perspective chooses."""
        assert self.key is not None
        key = self.key(event)
        if not isinstance(key, UUID | str) or not str(key):
            raise InvalidMessage(f"the key of a {type(event).__name__} is {key!r}; give a UUID or a text")
        return str(key)

    def encode_row(self, row: Row) -> str:
        """The row as JSON, or `InvalidMessage`."""
        if self.row_type is not None and not isinstance(row, self.row_type):
            raise InvalidMessage(
                f"{self.name} returned a {type(row).__name__}; it is to return a {self.row_type.__name__}, "
                "or None to remove the row"
            )
        return encode(row, max_bytes=MAX_ROW_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerspectiveSettings:
    """What can be said of a perspective besides its function."""

    name: str | None = None
    columns: Iterable[str] | Mapping[str, str] = ()
    indexes: Iterable[str | Sequence[str]] = ()
    key: Callable[[Any], UUID | str] | None = None
    inline: bool = False
    tables: Iterable[str] = ()
    clear: Callable[[UUID | str, Transaction], Awaitable[None]] | None = None
    retry: Retry | None = None


def define_perspective(
    function: Callable[..., Any],
    settings: PerspectiveSettings,
    *,
    types: MessageTypes,
    providers: Providers,
    names: Mapping[str, Any] | None = None,
) -> Perspective[Any]:
    """Read a function as a perspective. A plain `def` is a fold, an `async def` writes by its own SQL."""
    name = settings.name or function.__name__
    if not _NAME.fullmatch(name):
        raise InvalidSetting(
            f"{name!r} cannot name a perspective: use letters, digits, _ and ., 100 at most; say name="
        )
    if inspect.iscoroutinefunction(function):
        return _hand_written(function, name, settings, types, providers, names)
    return _fold(function, name, settings, types, providers, names)


def _fold(
    function: Callable[..., Any],
    name: str,
    settings: PerspectiveSettings,
    types: MessageTypes,
    providers: Providers,
    names: Mapping[str, Any] | None,
) -> Perspective[Any]:
    usage = f"write def {name}(row: Summary | None, event: OrderPlaced | OrderShipped) -> Summary | None"
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) < 2:
        raise InvalidSetting(f"{name} does not take a row and an event; {usage}")
    invocation = read_signature(function, name=name, providers=providers, leading=2, names=names)
    if any(asked is not Context for _, asked in invocation.injected):
        raise InvalidSetting(
            f"{name} is a fold and may ask for nothing but the Context of its event; to write by SQL make it "
            f"async def {name}(event: …, tx: Transaction)"
        )
    hints = hints_of(function, name, names)
    rows = classes_in(hints[parameters[0]])
    if len(rows) != 1:
        raise InvalidSetting(f"the row of {name} is not one class; {usage}")
    if rows[0] not in invocation.returns:
        raise InvalidSetting(f"{name} is not said to return a {rows[0].__name__}; {usage}")
    if settings.key is not None and settings.inline:
        raise InvalidSetting(f"{name} chooses its keys, so appends to different streams would meet; drop inline=True")
    if settings.tables or settings.clear:
        raise InvalidSetting(
            f"{name} is a fold, and its rows have a table of their own; tables= and clear= are for an async def"
        )
    columns = read_columns(settings.columns, rows[0], name)
    return Perspective(
        name=name,
        invocation=invocation,
        patterns=_patterns(invocation, types, usage),
        row_type=rows[0],
        columns=columns,
        indexes=read_indexes(settings.indexes, columns, name),
        key=settings.key,
        inline=settings.inline,
        retry=settings.retry or Retry(),
        decode_row=decoder_of(rows[0]),
    )


def _hand_written(
    function: Callable[..., Any],
    name: str,
    settings: PerspectiveSettings,
    types: MessageTypes,
    providers: Providers,
    names: Mapping[str, Any] | None,
) -> Perspective[Any]:
    usage = f"write async def {name}(event: OrderPlaced | OrderShipped, tx: Transaction) -> None"
    invocation = read_signature(function, name=name, providers=providers, names=names)
    if not invocation.takes_transaction:
        raise InvalidSetting(
            f"{name} does not ask for the transaction, so its writes could not commit with its checkpoint; {usage}. "
            "A fold is a plain def"
        )
    if settings.columns or settings.indexes or settings.key:
        raise InvalidSetting(f"{name} writes its own tables; columns, indexes and key are for a fold, a plain def")
    if settings.clear is not None and not inspect.iscoroutinefunction(settings.clear):
        raise InvalidSetting(
            f"clear= of {name} is to remove what belongs to one stream: write async def clear(stream: UUID | str, "
            "tx: Transaction) -> None"
        )
    return Perspective(
        name=name,
        invocation=invocation,
        patterns=_patterns(invocation, types, usage),
        inline=settings.inline,
        tables=_tables(settings.tables, name),
        clear=settings.clear,
        retry=settings.retry or Retry(),
    )


def _tables(declared: Iterable[str], of: str) -> tuple[str, ...]:
    if isinstance(declared, str):
        raise InvalidSetting(f"tables of {of} is a text; write tables=[{declared!r}]")
    tables = tuple(declared)
    names = [table.rpartition(".")[2] for table in tables]
    if len(set(names)) < len(names):
        raise InvalidSetting(f"two tables of {of} have one name; a rebuild keeps its copies in one schema")
    return tables


def _patterns(invocation: Invocation, types: MessageTypes, usage: str) -> tuple[str, ...]:
    if not invocation.message_types:
        raise InvalidSetting(f"{invocation.name} does not say which events it takes; {usage}")
    names = {types.of_class(event_type).name for event_type in invocation.message_types}
    return tuple(sorted({stored for name in names for stored in types.upcasters.names_of(name)}))


class EventDecoder:
    """Turns stored events into what a perspective takes. In another namespace, a type is the one that it ends in."""

    def __init__(self, perspective: Perspective[Any], types: MessageTypes) -> None:
        self._types = types
        self._wanted = frozenset(perspective.invocation.message_types)
        self._patterns = perspective.patterns
        self._names: dict[str, str | None] = {}

    def __call__(self, event_type: str, shape: int, payload: str) -> Any:
        """The event; None when its type is known and is not one that the perspective takes.

        Raises `UnknownName` or `InvalidMessage` for what can be neither read nor passed over.
        """
        event = self._types.decode(self._name_of(event_type), shape, payload)
        return event if type(event) in self._wanted else None

    def _name_of(self, event_type: str) -> str:
        if event_type not in self._names:
            self._names[event_type] = self._resolve(event_type)
        return self._names[event_type] or event_type

    def _resolve(self, event_type: str) -> str | None:
        try:
            self._types.named(event_type)
        except UnknownName:
            ends = [name for name in self._patterns if re.search(rf"[.+/:]{re.escape(name)}$", event_type)]
            return max(ends, key=len) if ends else None
        return event_type
