"""The rows of a perspective, as its users read them. They come from the live generation, whichever that is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from whippletree.dispatch import log
from whippletree.dispatch.columns import Column
from whippletree.dispatch.perspective import Perspective
from whippletree.errors import InvalidSetting, UsageError
from whippletree.store.database import translated
from whippletree.store.event_store import Executor
from whippletree.store.statements import call

Row = TypeVar("Row")

_LOCATE = """SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1)"""


class Rows(Generic[Row]):
    """Typed reads of one perspective's rows. `on` reads in your transaction, else on a connection of its own.

    In SQL the same rows are the view `wh_rows_NAME`, with every declared column.
    """

    def __init__(self, perspective: Perspective[Row], connections: Executor, *, schema: str = "whippletree") -> None:
        if perspective.decode_row is None:
            raise UsageError(f"{perspective.name} writes its own tables; read those")
        self._perspective = perspective
        self._decode = perspective.decode_row
        self._connections = connections
        self._row_of = call(schema, "row_of", 2)
        self._find_rows = call(schema, "find_rows", 5)

    async def get(self, key: UUID | str, *, on: Executor | None = None) -> Row | None:
        """The row of a stream, by its id or its text; or of a key that the perspective chose."""
        with translated():
            row = await (on or self._connections).fetchval(self._row_of, self._perspective.name, str(key))
        return None if row is None else self._decode(row)

    async def find(
        self, *, limit: int | None = None, after: UUID | str | None = None, on: Executor | None = None, **columns: Any
    ) -> list[Row]:
        """The rows whose declared columns have these values, in the order of their keys; None means no value."""
        unknown = columns.keys() - {column.name for column in self._perspective.columns}
        if unknown:
            declared = ", ".join(column.name for column in self._perspective.columns) or "none"
            raise UsageError(
                f"{self._perspective.name} has no column {', '.join(sorted(unknown))}; it has {declared}. "
                "Declare it: @app.perspective(columns=[…])"
            )
        values = msgspec.json.encode(columns).decode()
        defined = _definition(column for column in self._perspective.columns if column.name in columns)
        with translated():
            rows = await (on or self._connections).fetch(
                self._find_rows, self._perspective.name, values, defined, None if after is None else str(after), limit
            )
        return [self._decode(row["row"]) for row in rows]


async def register_perspective(
    perspective: Perspective[Any], connections: Executor, *, schema: str = "whippletree"
) -> None:
    """Make a perspective's rows and say which events it folds. Idempotent; any number of instances may do it at once.

    A column that is defined otherwise than in the rows that are there needs a rebuild, which is said in the log. Raises
    `InvalidSetting` for what no rebuild can change, and for a table that is not there.
    """
    with translated():
        if perspective.row_type is not None:
            to_rebuild = await connections.fetchval(
                call(schema, "register_perspective_rows", 5),
                perspective.name,
                "uuid" if perspective.key is None else "text",
                _definition(perspective.columns),
                msgspec.json.encode(perspective.indexes).decode(),
                [] if perspective.key is None else list(perspective.patterns),
            )
            if to_rebuild is not None:
                log.to_be_rebuilt(perspective.name, to_rebuild)
        elif perspective.tables:
            tables = [await _located(table, perspective.name, connections) for table in perspective.tables]
            await connections.fetchval(call(schema, "register_perspective_tables", 2), perspective.name, tables)
        # One that chooses its keys follows the feed instead, and no stream has work for it.
        if perspective.key is None:
            await connections.fetchval(
                call(schema, "register_perspective", 2), perspective.name, list(perspective.patterns)
            )


def _definition(columns: Iterable[Column]) -> str:
    return msgspec.json.encode({c.name: {"path": c.path, "type": c.sql_type} for c in columns}).decode()


async def _located(table: str, of: str, connections: Executor) -> str:
    """A table of the search path with its schema, which is not that of whoever rebuilds."""
    found = await connections.fetchval(_LOCATE, table)
    if found is None:
        raise InvalidSetting(f"{of} writes table {table}, which is not there; make it before the service starts")
    return str(found)
