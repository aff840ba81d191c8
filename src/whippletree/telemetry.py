"""What others can see of the work: traces that follow a message across processes."""

from __future__ import annotations

from opentelemetry import propagate


def trace_headers() -> dict[str, str]:
    """The trace that is under way, as headers of a message; empty when none is."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers
