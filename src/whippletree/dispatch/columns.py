"""The declared columns of a perspective's rows: where in the row each stands, and which SQL type that has."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from whippletree.errors import InvalidSetting
from whippletree.message.type_names import fields_of

_SQL_TYPES: dict[type, str] = {
    str: "text",
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    Decimal: "numeric",
    UUID: "uuid",
    datetime: "timestamptz",
    date: "date",
}
_TAKEN = frozenset({"key", "row", "version", "updated_at"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One declared column. PostgreSQL takes it from the row itself, so it is true of every row at any time."""

    name: str
    path: tuple[str, ...]
    sql_type: str


def read_columns(declared: Iterable[str] | Mapping[str, str], row_type: type, of: str) -> tuple[Column, ...]:
    """Columns named like fields of the row, or a name and the way to a field inside it, such as "address.city"."""
    if isinstance(declared, str):
        raise InvalidSetting(f"columns of {of} is a text; write columns=[{declared!r}]")
    ways = dict(declared) if isinstance(declared, Mapping) else {name: name for name in declared}
    return tuple(_column(name, way, row_type, of) for name, way in ways.items())


def read_indexes(
    declared: Iterable[str | Sequence[str]], columns: Sequence[Column], of: str
) -> tuple[tuple[str, ...], ...]:
    """Indexes on declared columns: a name, or several for an index on all of them."""
    indexes = tuple((index,) if isinstance(index, str) else tuple(index) for index in declared)
    names = {column.name for column in columns}
    for index in indexes:
        if not index or set(index) - names:
            raise InvalidSetting(
                f"an index of {of} names {', '.join(sorted(set(index) - names)) or 'no column'}; "
                f"declare the column too, in columns=[…]"
            )
    return indexes


def _column(name: str, way: str, row_type: type, of: str) -> Column:
    if not name.isidentifier() or not name.isascii() or len(name) > 60 or name in _TAKEN:
        raise InvalidSetting(
            f"{name!r} cannot be a column of {of}; choose another name, such as {{'{name}_': {way!r}}}; "
            f"{', '.join(sorted(_TAKEN))} are there already"
        )
    path: list[str] = []
    inside: Any = row_type
    for step in way.split("."):
        fields = _annotations(inside, of)
        if step not in fields:
            raise InvalidSetting(f"column {name} of {of} is {way!r}, but {inside.__name__} has {', '.join(fields)}")
        path.append(_encoded(inside, step))
        inside = _plain(fields[step])
    for python_type, sql_type in _SQL_TYPES.items():
        if isinstance(inside, type) and issubclass(inside, python_type):
            # A plain enum is written as its values, which may be of any type.
            return Column(name=name, path=tuple(path), sql_type=sql_type)
    if isinstance(inside, type) and issubclass(inside, enum.Enum):
        return Column(name=name, path=tuple(path), sql_type="text")
    known = ", ".join(python_type.__name__ for python_type in _SQL_TYPES)
    raise InvalidSetting(f"column {name} of {of} is a {inside}; a column can be one of {known}, or name a field inside")


def _annotations(row_type: Any, of: str) -> dict[str, Any]:
    names = fields_of(row_type)
    try:
        hints = typing.get_type_hints(row_type)
    except NameError as error:
        raise InvalidSetting(f"a row of {of} names {error.name!r}, which is not known where it is defined") from None
    return {name: hints.get(name, annotation) for name, annotation in names.items()}


def _encoded(row_type: Any, field: str) -> str:
    """The field's name in JSON."""
    if isinstance(row_type, type) and issubclass(row_type, msgspec.Struct):
        return dict(zip(row_type.__struct_fields__, row_type.__struct_encode_fields__, strict=True))[field]
    return field


def _plain(annotation: Any) -> Any:
    """The type of an annotation without None, and of a NewType what it stands for."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(annotation) if part is not type(None)]
        return _plain(parts[0]) if len(parts) == 1 else annotation
    if typing.get_origin(annotation) is typing.Annotated:
        return _plain(typing.get_args(annotation)[0])
    return _plain(annotation.__supertype__) if isinstance(annotation, typing.NewType) else annotation
