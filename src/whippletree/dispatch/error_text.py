"""An error in words that may be stored, shown and logged: without the contents of rows, statements or payloads.

Drivers put values into their details, SQLAlchemy puts parameters into its message, pydantic quotes the input. Of such
errors only the names remain: the class, the SQLSTATE, the table, the column, the constraint.
"""

from __future__ import annotations

import sys

import asyncpg

from whippletree.errors import Error
from whippletree.message.type_names import without_contents

_LONGEST = 2_000
_OUTAGE = ("08", "25006", "53100", "53300", "57P", "58")
"""Connection lost, read-only since another server took over, disk full, too many connections, shutdown, hardware."""
_NAMES = ("table_name", "column_name", "constraint_name")


def error_text(error: BaseException) -> str:
    """The error as one text."""
    name = type(error).__name__
    if (database_error := _of_database(error)) is not None:
        return f"{name}: {_named(database_error)}"
    if isinstance(error, Error):
        return str(error)[:_LONGEST]
    text = without_contents(error) if _is_validation(error) else str(error)
    return f"{name}: {text}"[:_LONGEST] if text else name


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of a database error, whichever library raised it."""
    found = _of_database(error)
    return None if found is None else _state(found)


def without_details(error: BaseException) -> BaseException:
    """The error for a log, with its traceback and what it came from; those of a database, or of a validation, are told
    as `error_text` tells them. The error itself where none of them is such a one."""
    chain = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    if not any(map(_has_contents, chain)):
        return error
    told: BaseException | None = None
    for one in reversed(chain):
        words = error_text(one).removeprefix(type(one).__name__).removeprefix(": ") if _has_contents(one) else str(one)
        names = {"__module__": type(one).__module__, "__qualname__": type(one).__qualname__}
        copy: BaseException = type(type(one).__name__, (Exception,), names)(words).with_traceback(one.__traceback__)
        copy.__cause__, copy.__context__ = (told, None) if one.__cause__ is not None else (None, told)
        copy.__suppress_context__ = one.__suppress_context__
        told = copy
    assert told is not None
    return told


def being_handled() -> BaseException | bool:
    """The same of what is being handled: the `exc_info` of a log."""
    return without_details(error) if (error := sys.exception()) is not None else False


def is_outage(error: BaseException) -> bool:
    """Whether the database lacks something or goes away: whatever was tried is not to blame."""
    return (sqlstate(error) or "").startswith(_OUTAGE)


def _has_contents(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_has_contents, error.exceptions))
    return _of_database(error) is not None or _is_validation(error)


def _is_validation(error: BaseException) -> bool:
    return isinstance(error, ValueError) and hasattr(error, "error_count")


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
