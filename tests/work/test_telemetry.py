"""A trace follows a message from its publisher through every receptor; counters are there for whoever reads them."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

import whippletree as wt
from tests.work.shop import Placed, Reserve, drained, new_app, running
from whippletree import telemetry
from whippletree.settings import Dsn


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
    assert "receptors" in {span.name for span in spans.get_finished_spans()}


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

    registry = CollectorRegistry()
    telemetry.prometheus(lambda: counters, "shop", registry)
    assert b'whippletree_inbox_completed_total{service="shop"} 9.0' in generate_latest(registry)
