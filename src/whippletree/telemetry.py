"""What others can see of the work: traces that follow a message across processes, and counters.

Only the interface of OpenTelemetry is needed; without its SDK nothing is recorded. A recorded span costs more than a
small message, so there is one span for a batch, in the trace of its first message, and counters are plain integers that
are read when somebody asks for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context as TraceContext
from opentelemetry.context import attach, detach

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

_tracer = trace.get_tracer("whippletree")


@dataclass(slots=True)
class Counters:
    """What one instance has done since it started, and what it holds. The names are those of the metrics."""

    inbox_received: int = 0
    """Messages that were claimed from the inbox."""
    inbox_completed: int = 0
    inbox_failed: int = 0
    receptor_received: int = 0
    """Stored events that were claimed for a receptor."""
    receptor_completed: int = 0
    receptor_failed: int = 0
    transactions_committed: int = 0
    leases_lost: int = 0
    leases_kept_alive: int = 0
    """Leases that were renewed while the event loop was blocked."""
    batches: int = 0
    """Work batches: reports and claims."""
    active_leases: int = 0


GAUGES = frozenset({"active_leases"})


def trace_headers() -> dict[str, str]:
    """The trace that is under way, as headers of a message; empty when none is."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


def trace_of(headers: str | None) -> TraceContext | None:
    """The trace that a message's headers name."""
    if headers is None or "traceparent" not in headers:
        return None
    try:
        carrier = json.loads(headers)
    except ValueError:
        return None
    return propagate.extract(carrier) if isinstance(carrier, dict) else None


@contextmanager
def span(name: str, headers: str | None, **attributes: str | int) -> Iterator[None]:
    """A span for a batch, in the trace of its first message; none where there is no trace to follow."""
    if (parent := trace_of(headers)) is None:
        yield
        return
    with _tracer.start_as_current_span(name, context=parent, attributes=attributes):
        yield


@contextmanager
def following(headers: str | None) -> Iterator[None]:
    """Whatever is begun inside belongs to the trace that a message's headers name."""
    parent = trace_of(headers)
    if parent is None:
        yield
        return
    token = attach(parent)
    try:
        yield
    finally:
        detach(token)


def traced(headers: str | None) -> bool:
    """Whether there is a trace to follow. Quick, because every message is asked."""
    return headers is not None and "traceparent" in headers


def export(read: Callable[[], Counters], service: str) -> None:
    """Offer the counters to OpenTelemetry, which reads them when it exports."""
    meter = metrics.get_meter("whippletree")
    for counter in fields(Counters):
        make = meter.create_observable_gauge if counter.name in GAUGES else meter.create_observable_counter
        make(f"whippletree.{counter.name}", callbacks=[_observer(read, counter.name, service)])


def prometheus(read: Callable[[], Counters], service: str, registry: CollectorRegistry) -> None:
    """Offer the counters to Prometheus, which reads them when it scrapes. Needs the extra `prometheus`."""
    registry.register(_Collector(read, service))


def _observer(read: Callable[[], Counters], name: str, service: str) -> Callable[..., list[metrics.Observation]]:
    return lambda _: [metrics.Observation(getattr(read(), name), {"service": service})]


class _Collector:
    """What prometheus_client calls a collector."""

    def __init__(self, read: Callable[[], Counters], service: str) -> None:
        self._read = read
        self._service = service

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counters = self._read()
        for counter in fields(Counters):
            family = GaugeMetricFamily if counter.name in GAUGES else CounterMetricFamily
            made = family(f"whippletree_{counter.name}", f"See Counters.{counter.name}", labels=["service"])
            made.add_metric([self._service], getattr(counters, counter.name))
            yield made
