"""What is in messages and rows stays there: no failure carries it into logs, error columns, metrics or traces."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import asyncpg
import pydantic
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from prometheus_client import CollectorRegistry, generate_latest

import whippletree as wt
from tests.waiting import until
from tests.work.shop import QUICK, drained, running
from whippletree import telemetry
from whippletree.cli.json_log import JsonFormatter
from whippletree.dispatch.error_text import without_details
from whippletree.message.codec import encode
from whippletree.message.envelope import InboxMessage
from whippletree.message.ids import new_message_id
from whippletree.settings import Dsn
from whippletree.store.inbox import store_inbox

SECRET = "hunter2"
"""In every payload and in every row."""


@dataclass(frozen=True)
class Paid:
    order: str
    card: str


@dataclass(frozen=True)
class Pay:
    order: str
    card: str


class Card(pydantic.BaseModel):
    number: int


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """All that is logged, as text and as JSON, and all that is traced."""
    text = io.StringIO()
    handlers = [logging.StreamHandler(text), logging.StreamHandler(text)]
    handlers[1].setFormatter(JsonFormatter())
    logger = logging.getLogger("whippletree")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    for handler in handlers:
        logger.addHandler(handler)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=text)))
    monkeypatch.setattr(telemetry, "_tracer", provider.get_tracer("whippletree"))
    yield text
    for handler in handlers:
        logger.removeHandler(handler)
    logger.setLevel(before)


async def test_no_failure_tells_the_contents_of_messages_or_rows(
    dsn: Dsn, db: asyncpg.Connection, written: io.StringIO
) -> None:
    await db.execute("CREATE TABLE public.cards (number text PRIMARY KEY, owner text NOT NULL CHECK (owner <> number))")
    await db.execute("INSERT INTO public.cards VALUES ($1, 'Ada')", SECRET)
    app = wt.App("shop", dsn=dsn.reveal())
    app.event(stream="order")(Paid)
    app.command(stream="order")(Pay)
    ways = {
        "not null": "INSERT INTO public.cards VALUES ($1 || 'x', NULL)",
        "check": "INSERT INTO public.cards VALUES ($1, $1)",
        "unique": "INSERT INTO public.cards VALUES ($1, 'Bob')",
        "cast": "SELECT $1::text::integer",
        "json": "SELECT ('{\"password\": ' || $1)::jsonb",
    }

    @app.receptor(retry=QUICK, on_poison="skip")
    async def pay(command: Pay, tx: wt.Transaction) -> None:
        if command.order in ways:
            await tx.execute(ways[command.order], command.card)
        elif command.order == "argument":
            await tx.execute("SELECT $1::integer", command.card)
        elif command.order == "validation":
            Card.model_validate({"number": command.card})
        elif command.order == "wrapped":
            try:
                await tx.execute(ways["unique"], command.card)
            except asyncpg.UniqueViolationError as error:
                raise LookupError("the card is there already") from error

    @app.receptor(retry=QUICK, name="external", effects="external")
    async def tell(event: Paid) -> None:
        Card.model_validate({"number": event.card})

    @app.perspective(retry=QUICK)
    def card(row: Card | None, event: Paid) -> Card | None:
        return Card.model_validate({"number": event.card})

    @app.perspective(retry=QUICK, tables=["public.cards"])
    async def by_hand(event: Paid, tx: wt.Transaction) -> None:
        await tx.execute(ways["unique"], event.card)

    @app.subscriber("diary", retry=QUICK)
    async def diary(event: Paid, tx: wt.Transaction) -> None:
        await tx.execute(ways["check"], event.card)

    orders = [*ways, "argument", "validation", "wrapped"]
    registry = CollectorRegistry()
    async with running(app) as service:
        telemetry.prometheus(service, app.name, registry)
        await app.publish_all([Pay(order, SECRET) for order in orders])
        await app.publish(Paid("order", SECRET))
        for payload in (encode({"order": "unreadable", "card": [SECRET]}), encode([SECRET])):
            broken = InboxMessage(message_id=new_message_id(), message_type="Pay", payload=payload, stream="unreadable")
            await store_inbox([broken], on=db)
        await until(lambda: db.fetchval("SELECT state = 'parked' FROM wh_subscribers WHERE subscriber_name = 'diary'"))
        await drained(db)
        metrics = generate_latest(registry).decode()
    assert await db.fetchval("SELECT count(*) FROM wh_dead_letters") == len(orders)
    told = {
        "the log and the traces": written.getvalue(),
        "the metrics": metrics,
        **{column: str(await db.fetch(f"SELECT {column}")) for column in _ERRORS},
    }
    assert all(len(text) > 10 for text in told.values())
    assert [place for place, text in told.items() if SECRET in text] == []


_ERRORS = (
    "error FROM wh_active_streams WHERE error IS NOT NULL",
    "error, reason FROM wh_dead_letters",
    "error FROM wh_subscribers WHERE error IS NOT NULL",
    "error FROM wh_perspective_checkpoints WHERE error IS NOT NULL",
    "error FROM wh_inbox WHERE error IS NOT NULL",
)


def test_a_traceback_is_kept_without_what_the_database_says_of_the_row() -> None:
    def fails() -> None:
        raise asyncpg.UniqueViolationError(SECRET)

    error: Exception
    try:
        try:
            fails()
        except asyncpg.PostgresError as inner:
            raise LookupError("no such card") from inner
    except LookupError as raised:
        error = raised
    record = logging.LogRecord(
        "shop", logging.ERROR, "", 0, "it failed", (), (type(error), without_details(error), error.__traceback__)
    )
    text = logging.Formatter().format(record)
    assert "in fails" in text
    assert "asyncpg.exceptions.UniqueViolationError: SQLSTATE 23505" in text
    assert "LookupError: no such card" in text
    assert SECRET not in text.replace("asyncpg.UniqueViolationError(SECRET)", "")

    own = LookupError(SECRET)
    assert without_details(own) is own, "what a program says is its own affair"
