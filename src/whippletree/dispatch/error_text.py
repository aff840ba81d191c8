"""An error in words that may be stored and shown: without the contents of rows, statements or payloads.

Drivers put values into their details, SQLAlchemy puts parameters into its message, pydantic quotes the input. Of such
errors only the names remain: the class, the SQLSTATE, the table, the column, the constraint.
"""

from __future__ import annotations

import asyncpg

from whippletree.errors import Error
from whippletree.message.type_names import without_contents

_LONGEST = 2_000
_NAMES = ("table_name", "column_name", "constraint_name")


def error_text(error: BaseException) -> str:
    """The error as one text."""
    name = type(error).__name__
    if (database_error := _of_database(error)) is not None:
        return f"{name}: {_named(database_error)}"
    if isinstance(error, Error):
        return str(error)[:_LONGEST]
    validation = isinstance(error, ValueError) and hasattr(error, "error_count")
    text = without_contents(error) if validation else str(error)
    return f"{name}: {text}"[:_LONGEST] if text else name


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of a database error, whichever library raised it."""
    found = _of_database(error)
    return None if found is None else _state(found)


_OUTAGE = ("08", "25006", "53100", "53300", "57P", "58")
"""Connection lost, read-only since another server took over, disk full, too many connections, shutdown, hardware."""


def is_outage(error: BaseException) -> bool:
    """Whether the database lacks something or goes away: whatever was tried is not to blame."""
    return (sqlstate(error) or "").startswith(_OUTAGE)


def _of_database(error: BaseException | None) -> BaseException | None:
    """The driver's error: this one, or the one that SQLAlchemy or Django wrapped."""
    if error is None:
        return None
    if isinstance(error, asyncpg.PostgresError) or _state(error) is not None:
        return error
    if type(error).__module__.startswith(("sqlalchemy", "django.db", "psycopg")):
        return _of_database(getattr(error, "orig", None) or error.__cause__) or error
    return None


def _state(error: BaseException) -> str | None:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state if isinstance(state, str) else None


def _named(error: BaseException) -> str:
    diagnosis = getattr(error, "diag", error)
    names = [f"{name.removesuffix('_name')} {value}" for name in _NAMES if (value := getattr(diagnosis, name, None))]
    return ", ".join([f"SQLSTATE {_state(error) or 'unknown'}", *names])
