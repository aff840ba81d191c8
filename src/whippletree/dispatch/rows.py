"""The rows of a perspective, as its users read them. They come from the live generation, whichever that is."""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from whippletree.dispatch.perspective import Perspective
from whippletree.errors import UsageError
from whippletree.store.database import translated
from whippletree.store.event_store import Executor
from whippletree.store.statements import call

Row = TypeVar("Row")


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
        self._find_rows = call(schema, "find_rows", 4)

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
        with translated():
            rows = await (on or self._connections).fetch(
                self._find_rows, self._perspective.name, values, None if after is None else str(after), limit
            )
        return [self._decode(row["row"]) for row in rows]


async def register_perspective(
    perspective: Perspective[Any], connections: Executor, *, schema: str = "whippletree"
) -> None:
    """Make a perspective's rows and say which events it folds. Idempotent; any number of instances may do it at once.

    Raises `InvalidSetting` for a change of definition that cannot be made in place.
    """
    with translated():
        if perspective.row_type is not None:
            columns = {c.name: {"path": c.path, "type": c.sql_type} for c in perspective.columns}
            await connections.fetchval(
                call(schema, "register_perspective_rows", 4),
                perspective.name,
                "uuid" if perspective.key is None else "text",
                msgspec.json.encode(columns).decode(),
                msgspec.json.encode(perspective.indexes).decode(),
            )
        await connections.fetchval(
            call(schema, "register_perspective", 2), perspective.name, list(perspective.patterns)
        )
