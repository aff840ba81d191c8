"""Reports as the database takes them, arrays of columns, and which of them it refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg

from whippletree.claim.held import Run, StreamReports, rejections_of
from whippletree.message.outcome import Failure, MessageFailure


def columns_of(reports: StreamReports) -> list[list[Any]]:
    """The reports as the database takes them: one array per column, verb by verb."""
    return [
        *_columns(_keys(run, through) for run, through in reports.completed.items()),
        *_failures(reports),
        *_columns(_keys(run, version) for run, version in reports.released.items()),
        *_columns((_keys(run) for run in reports.renewed), 3),
    ]


def lost_runs(reports: StreamReports, rows: Iterable[asyncpg.Record]) -> list[Run]:
    """The runs whose reports were refused; each of their messages is rejected."""
    lost = []
    for row in rows:
        if row[0] == "rejected":
            run = _reported(reports, row[15])[row[2] - 1]
            reports.rejected.extend(rejections_of(reports.in_hand[run], row[15]))
            lost.append(run)
    return lost


def _reported(reports: StreamReports, verb: str) -> list[Run]:
    """The runs of one verb, in the order in which they were handed in."""
    match verb:
        case "complete":
            return list(reports.completed)
        case "fail":
            return list(reports.failed)
        case "release":
            return list(reports.released)
        case _:
            return list(reports.renewed)


def _keys(run: Run, *more: Any) -> tuple[Any, ...]:
    return run.queue, run.stream_id, run.lease_token, *more


def _failures(reports: StreamReports) -> list[list[Any]]:
    return _columns(
        (
            _keys(run, version, _storable(_told(failure)), failure.retry_seconds, str(failure.verdict))
            for run, (version, failure) in reports.failed.items()
        ),
        7,
    )


def _columns(rows: Iterable[tuple[Any, ...]], width: int = 4) -> list[list[Any]]:
    """Rows turned into one array per column, as the database takes them."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def _told(failure: Failure) -> str:
    trace = failure.stack_trace if isinstance(failure, MessageFailure) else None
    return f"{failure.error}\n{trace}" if trace else failure.error


def _storable(error: str) -> str:
    """An error's text can hold anything; PostgreSQL's text cannot."""
    return error.replace("\x00", "\\0").encode("utf-8", "replace").decode()[:10_000]
