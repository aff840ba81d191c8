"""Calls of our SQL functions. The schema is a name that was validated, so quoting it is all that is needed."""

from __future__ import annotations

from whippletree.settings import valid_schema


def call(schema: str, function: str, parameters: int) -> str:
    """The statement that calls a function with numbered parameters and returns its rows."""
    numbers = ", ".join(f"${number}" for number in range(1, parameters + 1))
    return f'SELECT * FROM "{valid_schema(schema)}".{function}({numbers})'
