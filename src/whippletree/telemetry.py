"""What others can see of the work: traces that follow a message across processes, and counters.

Only the interface of OpenTelemetry is needed; without its SDK nothing is recorded. A recorded span costs more than a
small message, so there is one span for a batch, in the trace of its first message, and counters are plain integers that
are read when somebody asks for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

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
    subscriber_completed: int = _count("events that subscribers and perspectives with a key have finished")
    subscriber_failed: int = _count("events at which one of them raised")
    subscriber_takeovers: int = _count("times that this instance began to follow as one of them")
    transactions_committed: int = _count("transactions of receptors")
    leases_lost: int = _count("leases that another instance has taken, or that ran out")
    leases_kept_alive: int = _count("leases that were renewed while the event loop was blocked")
    batches: int = _count("work batches: reports and claims")
    active_leases: int = _gauge("leases in hand")
    stale_leases: int = _gauge("leases in hand that were not renewed in time")
    perspective_empty_polls: int = _gauge("polls in a row that found no checkpoint to move")
    perspective_idle: int = _gauge("1 when the perspectives have nothing to do")
    database_not_ready_checks: int = _gauge("calls in a row for which the database was not ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one subscriber stands in one instance."""

    subscriber: str
    state: Enum
    lag: int | None
    """Events between the last one that it has passed and the end of the feed; None where it is not followed."""


class Observed(Protocol):
    """Whatever has counters and subscribers: a service."""

    @property
    def counters(self) -> Counters: ...

    @property
    def standings(self) -> Sequence[Standing]: ...


def trace_headers() -> dict[str, str]:
    """The trace that is under way, as headers of a message; empty when none is."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


def trace_of(headers: str | None) -> TraceContext | None:
    """The trace that a message's headers name. Headers can be anything: whoever inserts a message writes them."""
    if headers is None or "traceparent" not in headers:
        return None
    try:
        carrier = json.loads(headers)
    except (ValueError, RecursionError):
        return None
    if not isinstance(carrier, dict):
        return None
    return propagate.extract({name: value for name, value in carrier.items() if isinstance(value, str)})


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


def export(observed: Observed, service: str) -> None:
    """Offer counters and subscribers to OpenTelemetry, which reads them when it exports."""
    meter = metrics.get_meter("whippletree")
    for counter in fields(Counters):
        make = meter.create_observable_gauge if "gauge" in counter.metadata else meter.create_observable_counter
        words = counter.metadata["words"]
        make(f"whippletree.{counter.name}", callbacks=[_counter(observed, counter.name, service)], description=words)
    for name, (words, samples) in _OF_SUBSCRIBERS.items():
        callback = _gauge_of_subscribers(observed, samples, service)
        meter.create_observable_gauge(f"whippletree.{name}", callbacks=[callback], description=words)


def prometheus(observed: Observed, service: str, registry: CollectorRegistry) -> None:
    """Offer them to Prometheus, which reads them when it scrapes. Needs the extra `prometheus`."""
    registry.register(_Collector(observed, service))


_Samples = Callable[[Standing], Iterable[tuple[dict[str, str], int]]]


def _states(standing: Standing) -> Iterable[tuple[dict[str, str], int]]:
    return [({"state": state.value}, int(state is standing.state)) for state in type(standing.state)]


def _lag(standing: Standing) -> Iterable[tuple[dict[str, str], int]]:
    return [] if standing.lag is None else [({}, standing.lag)]


_OF_SUBSCRIBERS: dict[str, tuple[str, _Samples]] = {
    "subscriber_state": ("1 for the state in which the subscriber is in this instance, 0 for the others", _states),
    "subscriber_lag": ("events that the subscriber has before it, where this instance follows as it", _lag),
}


def _counter(observed: Observed, name: str, service: str) -> Callable[..., list[metrics.Observation]]:
    return lambda _: [metrics.Observation(getattr(observed.counters, name), {"service": service})]


def _gauge_of_subscribers(
    observed: Observed, samples: _Samples, service: str
) -> Callable[..., list[metrics.Observation]]:
    return lambda _: [
        metrics.Observation(value, {"service": service, "subscriber": standing.subscriber, **labels})
        for standing in observed.standings
        for labels, value in samples(standing)
    ]


class _Collector:
    """What prometheus_client calls a collector."""

    def __init__(self, observed: Observed, service: str) -> None:
        self._observed = observed
        self._service = service

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counters = self._observed.counters
        for counter in fields(Counters):
            family = GaugeMetricFamily if "gauge" in counter.metadata else CounterMetricFamily
            made = family(f"whippletree_{counter.name}", counter.metadata["words"], labels=["service"])
            made.add_metric([self._service], getattr(counters, counter.name))
            yield made
        standings = self._observed.standings
        for name, (words, samples) in _OF_SUBSCRIBERS.items():
            gauge = GaugeMetricFamily(f"whippletree_{name}", words)
            for standing in standings:
                for labels, value in samples(standing):
                    of = {"service": self._service, "subscriber": standing.subscriber, **labels}
                    gauge.add_sample(gauge.name, of, value)
            yield gauge
