"""What is written down of an error: enough to mend it, and nothing of the data that it was about."""

from __future__ import annotations

import asyncpg
import msgspec

from whippletree.errors import Error
from whippletree.message.type_names import without_contents


def describe(error: BaseException) -> str:
    """The error in one line. What a driver says may quote a row, so only its condition and the names in it are kept;
    what a program says of itself is its own."""
    if isinstance(error, asyncpg.PostgresError):
        names = [getattr(error, part, None) for part in ("table_name", "column_name", "constraint_name")]
        about = ", ".join(name for name in names if name)
        return f"{type(error).__name__} ({error.sqlstate}{': ' + about if about else ''})"
    if getattr(error, "sqlstate", None) or type(error).__module__.startswith(("psycopg", "sqlalchemy")):
        return f"{type(error).__name__} ({getattr(error, 'sqlstate', None) or 'of the database'})"
    if isinstance(error, msgspec.MsgspecError) or type(error).__module__.startswith("pydantic"):
        return f"{type(error).__name__}: {without_contents(error) if isinstance(error, Exception) else ''}"
    return str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}".removesuffix(": ")
