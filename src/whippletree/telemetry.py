"""What others can see of the work: traces that follow a message across processes, and counters.

Only the interface of OpenTelemetry is needed; without its SDK nothing is recorded. A recorded span costs more than a
small message, so there is one span for a batch, in the trace of its first message, and counters are plain integers that
are read when somebody asks for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context as TraceContext
from opentelemetry.context import attach, detach

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

_tracer = trace.get_tracer("whippletree")

LINKS = 32
"""The other messages of a batch whose traces its span is linked with, at most."""


def _count(words: str) -> int:
    return field(default=0, metadata={"words": words})


def _gauge(words: str) -> int:
    return field(default=0, metadata={"words": words, "gauge": True})


@dataclass(slots=True)
class Counters:
    """What one instance has done since it started, and how it stands. The names are those of the metrics."""

    outbox_stored: int = _count("messages that this process has stored in the outbox")
    outbox_published: int = _count("messages that the transport has confirmed")
    outbox_failed: int = _count("messages that the transport refused")
    deliveries_stored: int = _count("deliveries of the transport that were stored in the inbox")
    deliveries_duplicate: int = _count("deliveries that the inbox had accepted before")
    deliveries_conflict: int = _count("deliveries with an accepted id and another body")
    deliveries_parked: int = _count("deliveries that cannot be stored and were kept as dead letters")
    inbox_received: int = _count("messages that were claimed from the inbox")
    inbox_completed: int = _count("messages of the inbox that were handled")
    inbox_failed: int = _count("messages of the inbox whose receptor raised")
    receptor_received: int = _count("stored events that were claimed for a receptor")
    receptor_completed: int = _count("stored events that a receptor has handled")
    receptor_failed: int = _count("stored events whose receptor raised")
    perspective_received: int = _count("checkpoints that were claimed")
    perspective_completed: int = _count("checkpoints that were moved")
    perspective_failed: int = _count("checkpoints whose perspective raised")
    transactions_committed: int = _count("transactions of receptors")
    leases_lost: int = _count("leases that another instance has taken, or that ran out")
    leases_kept_alive: int = _count("leases that were renewed while the event loop was blocked")
    batches: int = _count("work batches: reports and claims")
    active_leases: int = _gauge("leases in hand")
    stale_leases: int = _gauge("leases in hand that were not renewed in time")
    perspective_empty_polls: int = _gauge("polls in a row that found no checkpoint to move")
    perspective_idle: int = _gauge("1 when the perspectives have nothing to do")
    database_not_ready_checks: int = _gauge("calls in a row for which the database was not ready")


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
def span(
    name: str, headers: Iterable[str | None], *, since: int | None = None, **attributes: str | int
) -> Iterator[None]:
    """A span for a batch: in the trace of its first message, linked with those of the others. None where there is no
    trace to follow. `since` is when it began, in nanoseconds, if not now."""
    named = dict.fromkeys(each for each in headers if traced(each))
    if not named:
        yield
        return
    parent, *others = [trace_of(each) for each in islice(named, LINKS + 1)]
    links = [trace.Link(trace.get_current_span(other).get_span_context()) for other in others if other is not None]
    with _tracer.start_as_current_span(name, context=parent, links=links, start_time=since, attributes=attributes):
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
        make = meter.create_observable_gauge if "gauge" in counter.metadata else meter.create_observable_counter
        words = counter.metadata["words"]
        make(f"whippletree.{counter.name}", callbacks=[_observer(read, counter.name, service)], description=words)


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
            family = GaugeMetricFamily if "gauge" in counter.metadata else CounterMetricFamily
            made = family(f"whippletree_{counter.name}", counter.metadata["words"], labels=["service"])
            made.add_metric([self._service], getattr(counters, counter.name))
            yield made
