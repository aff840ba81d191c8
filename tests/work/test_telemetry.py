"""A trace follows a message from its publisher to the last perspective; counters are there for whoever reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

import whippletree as wt
from tests.waiting import until
from tests.work.shop import Placed, Reserve, Reserved, drained, new_app, running
from whippletree import telemetry
from whippletree.service import Service
from whippletree.settings import Dsn
from whippletree.transports.in_process import InProcessTransport


@dataclass(frozen=True)
class Total:
    reserved: int


def total(row: Total | None, event: Reserved) -> Total:
    return Total((row.reserved if row else 0) + 1)


@dataclass(frozen=True)
class Charge:
    order: str


@asynccontextmanager
async def _in_process(_: Any, __: Any) -> AsyncIterator[InProcessTransport]:
    yield InProcessTransport()


def talking_to_itself(dsn: Dsn) -> wt.App:
    """A service whose events go out, come in again, and are counted by a perspective."""
    app = wt.App("shop", dsn=dsn.reveal())
    app.event(stream="order", topic="orders")(Placed)
    app.event(stream="order")(Reserved)
    app.transport(_in_process, receives=["orders"])
    app.perspective(total)
    return app


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", provider.get_tracer("whippletree"))
    yield exporter
    provider.shutdown()


async def test_a_trace_goes_on_in_whatever_a_message_causes(
    dsn: Dsn, db: asyncpg.Connection, spans: InMemorySpanExporter
) -> None:
    app = new_app(dsn)
    traces = []

    @app.receptor
    async def place(command: Reserve, tx: wt.Transaction) -> Placed:
        traces.append(trace.get_current_span().get_span_context().trace_id)
        return Placed(command.order)

    @app.receptor
    def look(event: Placed) -> None:
        traces.append(trace.get_current_span().get_span_context().trace_id)

    async with running(app):
        with telemetry._tracer.start_as_current_span("the caller's own") as caller:
            await app.publish(Reserve("order-1"))
        await drained(db)

    ours = caller.get_span_context().trace_id
    assert traces == [ours, ours]
    assert {span.context.trace_id for span in spans.get_finished_spans() if span.context} == {ours}
    assert [span.name for span in spans.get_finished_spans()].count("receptors") == 2


async def test_one_trace_leads_from_the_publisher_over_the_transport_to_the_perspective(
    dsn: Dsn, db: asyncpg.Connection, spans: InMemorySpanExporter
) -> None:
    app = talking_to_itself(dsn)

    @app.receptor
    async def reserve(event: Placed) -> Reserved:
        return Reserved(event.order)

    async with running(app):
        with telemetry._tracer.start_as_current_span("the caller's own") as caller:
            await app.publish(Placed("order-1"))
        await until(lambda: _applied(app, 2))
        await drained(db)

    ours = caller.get_span_context()
    finished = [span for span in spans.get_finished_spans() if span.name != "the caller's own"]
    assert {span.name for span in finished} == {"publish", "receive", "receptors", "perspectives"}
    for span in finished:
        assert _trace(span) == ours.trace_id
        assert span.parent is not None
        assert span.parent.span_id == ours.span_id


async def test_the_trace_leads_to_subscribers_and_to_perspectives_with_a_key(
    dsn: Dsn, db: asyncpg.Connection, spans: InMemorySpanExporter
) -> None:
    app = new_app(dsn)
    traces = []

    @app.subscriber("keeper")
    async def keep(event: Reserved, tx: wt.Transaction) -> None:
        traces.append(trace.get_current_span().get_span_context().trace_id)

    @app.subscriber("mailer")
    async def mail(event: Reserved, key: wt.IdempotencyKey) -> None:
        traces.append(trace.get_current_span().get_span_context().trace_id)

    app.perspective(key=lambda event: "all")(total)
    with telemetry._tracer.start_as_current_span("the caller's own") as caller:
        async with app.connected():
            await app.publish_all([Reserved("order-1"), Reserved("order-2")])
    async with running(app) as service:
        await until(lambda: _applied(app, 2))
        await until(lambda: service.counters.subscriber_completed == 6)

    ours = caller.get_span_context()
    assert traces == [ours.trace_id] * 4
    finished = [span for span in spans.get_finished_spans() if span.name == "subscribers"]
    assert {_trace(span) for span in finished} == {ours.trace_id}
    # The keeper commits each event; the others have a batch each.
    by_name = sorted((span.attributes["subscriber"], span.attributes["events"]) for span in finished if span.attributes)
    assert by_name == [("keeper", 1), ("keeper", 1), ("mailer", 2), ("perspective/total", 2)]


async def test_the_state_and_the_lag_of_every_subscriber_are_metrics(
    dsn: Dsn, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics, "get_meter", MeterProvider([reader]).get_meter)
    registry = CollectorRegistry()
    app = new_app(dsn)

    @app.subscriber("keeper", mode=wt.InstanceMode.COORDINATED)
    async def keep(event: Reserved, tx: wt.Transaction) -> None: ...

    @app.subscriber("mailer", retry=wt.Retry(attempts=1))
    async def mail(event: Reserved) -> None:
        raise ValueError("no mail")

    async with running(app) as service:
        telemetry.prometheus(service, "shop", registry)
        await app.publish_all([Reserved("order-1"), Reserved("order-2"), Reserved("order-3")])
        await until(lambda: _states(service) == {"keeper": "live", "mailer": "parked"})
        await until(lambda: _lags(service) == {"keeper": 0, "mailer": 3})
        data = reader.get_metrics_data()
        scraped = generate_latest(registry).decode()
        async with running(app) as second:
            # A subscriber of a single instance is the latest one's; one that is coordinated stays where it is.
            await until(lambda: _states(second) == {"keeper": "standby", "mailer": "parked"})
            assert _lags(second) == {"keeper": None, "mailer": 3}
        assert service.counters.subscriber_completed == 3
        assert service.counters.subscriber_failed == 1
    assert data is not None
    exported = {
        (metric.name, *sorted(point.attributes.items())): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if point.attributes and "subscriber" in point.attributes and hasattr(point, "value")
    }
    place = (("service", "shop"), ("state", "parked"), ("subscriber", "mailer"))
    assert exported["whippletree.subscriber_state", *place] == 1
    assert exported["whippletree.subscriber_lag", ("service", "shop"), ("subscriber", "mailer")] == 3
    for sample in (
        'whippletree_subscriber_state{service="shop",state="live",subscriber="keeper"} 1.0',
        'whippletree_subscriber_state{service="shop",state="parked",subscriber="keeper"} 0.0',
        'whippletree_subscriber_state{service="shop",state="parked",subscriber="mailer"} 1.0',
        'whippletree_subscriber_lag{service="shop",subscriber="mailer"} 3.0',
        'whippletree_subscriber_completed_total{service="shop"} 3.0',
    ):
        assert sample in scraped


def _states(service: Service) -> dict[str, str]:
    return {standing.subscriber: standing.state.value for standing in service.standings}


def _lags(service: Service) -> dict[str, int | None]:
    return {standing.subscriber: standing.lag for standing in service.standings}


async def _applied(app: wt.App, count: int) -> bool:
    return [row.reserved for row in await app.rows(total).find()] == [count]


async def test_the_span_of_a_batch_is_linked_with_the_traces_of_its_other_messages(spans: InMemorySpanExporter) -> None:
    headers, traces = [], []
    for _ in range(3):
        with telemetry._tracer.start_as_current_span("a caller") as caller:
            headers.append(f'{{"traceparent": "{telemetry.trace_headers()["traceparent"]}"}}')
            traces.append(caller.get_span_context().trace_id)
    spans.clear()
    with telemetry.span("publish", [None, *headers, headers[0], "no json: traceparent"], messages=6):
        pass
    (span,) = spans.get_finished_spans()
    assert _trace(span) == traces[0]
    assert [link.context.trace_id for link in span.links] == traces[1:]


def test_what_has_no_trace_has_no_span(spans: InMemorySpanExporter) -> None:
    with telemetry.span("publish", [None, "{}"]), telemetry.following(None):
        assert telemetry.trace_headers() == {}
    assert spans.get_finished_spans() == ()


def _trace(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


async def test_counters_tell_what_was_done(dsn: Dsn, db: asyncpg.Connection) -> None:
    app = new_app(dsn)

    @app.receptor(retry=wt.Retry(attempts=1), on_poison="park")
    async def reserve(command: Reserve) -> Placed | None:
        if command.number == 3:
            raise ValueError
        return Placed(command.order) if command.number == 2 else None

    @app.receptor
    async def look(event: Placed) -> None: ...

    async with running(app) as service:
        await app.publish_all([Reserve(f"order-{n}", n) for n in range(10)])
        await drained(db)
    counters = service.counters
    assert (counters.inbox_received, counters.inbox_completed, counters.inbox_failed) == (10, 9, 1)
    assert (counters.receptor_received, counters.receptor_completed) == (1, 1)
    assert counters.transactions_committed == 1
    assert counters.batches > 1


async def test_a_receptor_that_fails_in_its_transaction_is_counted_and_logged(
    dsn: Dsn, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    app = new_app(dsn)

    @app.receptor(retry=wt.Retry(attempts=1))
    async def reserve(command: Reserve, tx: wt.Transaction) -> None:
        raise ValueError("no")

    async with running(app) as service:
        await app.publish(Reserve("order-1"))
        await drained(db)
    assert service.counters.inbox_failed == 1
    assert "receptor reserve failed" in caplog.text


async def test_every_stage_is_counted_for_opentelemetry_and_for_prometheus(
    dsn: Dsn, db: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics, "get_meter", MeterProvider([reader]).get_meter)
    registry = CollectorRegistry()
    app = talking_to_itself(dsn)
    app.command(stream="order", topic="nowhere")(Charge)

    @app.receptor
    async def reserve(event: Placed) -> Reserved | None:
        return Reserved(event.order) if event.number == 0 else None

    async with running(app) as service:
        telemetry.prometheus(service, "shop", registry)
        await app.publish_all([Placed("order-1", 0), Placed("order-2", 1)])
        await until(lambda: _applied(app, 2))
        await drained(db)
        await app.publish(Charge("order-3"))
        await until(lambda: service.counters.outbox_failed == 1)
        await until(lambda: service.counters.active_leases == 0 and service.counters.perspective_idle == 1)
        exported = _exported(reader)
        scraped = generate_latest(registry).decode()

    expected = {
        "outbox_stored": 3,
        "outbox_published": 2,
        "outbox_failed": 1,
        "deliveries_stored": 2,
        "deliveries_duplicate": 0,
        "inbox_received": 2,
        "inbox_completed": 2,
        "inbox_failed": 0,
        "perspective_failed": 0,
        "active_leases": 0,
        "stale_leases": 0,
        "perspective_idle": 1,
        "database_not_ready_checks": 0,
    }
    assert {name: exported[f"whippletree.{name}"] for name in expected} == expected
    assert exported["whippletree.perspective_completed"] in (1, 2)
    assert exported["whippletree.perspective_empty_polls"] >= 2
    for name, value in expected.items():
        kind = (
            ""
            if name in ("active_leases", "stale_leases", "perspective_idle", "database_not_ready_checks")
            else "_total"
        )
        assert f'whippletree_{name}{kind}{{service="shop"}} {float(value)}' in scraped


def _exported(reader: InMemoryMetricReader) -> dict[str, int]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: int(point.value)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if hasattr(point, "value")
    }


@pytest.mark.parametrize("headers", ['{"traceparent": 5}', '{"traceparent": null, "baggage": [1]}', '["traceparent"]'])
def test_headers_that_name_no_trace_are_passed_over(headers: str) -> None:
    assert not telemetry.trace_of(headers)


def test_headers_too_deep_to_be_read_are_passed_over() -> None:
    assert telemetry.trace_of('{"traceparent": ' + "[" * 5000 + "]" * 5000 + "}") is None


async def test_a_message_is_handled_whatever_its_headers_are(dsn: Dsn, db: asyncpg.Connection) -> None:
    app, calls = new_app(dsn), []

    @app.receptor
    async def reserve(message: Reserve) -> None:
        calls.append(message.order)

    for order, headers in (("a", '{"traceparent": 5}'), ("b", "[1]"), ("c", '"traceparent"'), ("d", "{}")):
        await db.execute(
            "INSERT INTO wh_inbox (stream_key, message_type, payload, headers) VALUES ($1, 'Reserve', $2, $3)",
            *(order, f'{{"order": "{order}"}}', headers),
        )
    async with running(app):
        await drained(db)
    assert sorted(calls) == ["a", "b", "c", "d"]
