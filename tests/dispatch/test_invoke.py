"""A function is called with what its annotations ask for, and a wrong signature is refused when it is registered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from whippletree.dispatch.context import Context, IdempotencyKey, idempotency_key
from whippletree.dispatch.invoke import Invocation, Providers, Surroundings, classes_in, read_signature
from whippletree.errors import DuplicateName, InvalidSetting
from whippletree.message.ids import StreamId
from whippletree.store.transaction import Transaction


@dataclass
class Placed:
    number: int


@dataclass
class Shipped:
    number: int


class Clock:
    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture
def providers() -> Providers:
    made = iter("abc")
    providers = Providers()
    providers.add(Clock, lambda: Clock(next(made)))
    return providers


@pytest.fixture
def read(providers: Providers) -> Callable[..., Invocation]:
    return lambda function: read_signature(function, name=function.__name__, providers=providers)


def around() -> Surroundings:
    context = Context(
        message_id=uuid4(),
        message_type="Placed",
        stream_id=StreamId(uuid4()),
        version=3,
        attempts=1,
        created_at=datetime.now(UTC),
    )
    return Surroundings(context=context, key=idempotency_key("f", context.message_id))


async def test_what_is_asked_for_is_given(read: Callable[..., Invocation], providers: Providers) -> None:
    async def f(event: Placed | Shipped, key: IdempotencyKey, clock: Clock, context: Context, more: int = 7) -> str:
        return f"{event.number} {clock.name} {context.version} {more} {key}"

    invocation, surroundings = read(f), around()
    assert invocation.message_types == (Placed, Shipped)
    assert await invocation(Placed(1), surroundings, providers) == f"1 a 3 7 f:{surroundings.context.message_id}"
    assert await invocation(Shipped(2), surroundings, providers) == f"2 b 3 7 f:{surroundings.context.message_id}"


async def test_an_asynchronous_provider_is_awaited(providers: Providers) -> None:
    async def give() -> int:
        return 5

    async def f(event: Placed, number: int) -> int:
        return number

    providers.add(int, give)
    invocation = read_signature(f, name="f", providers=providers)
    assert await invocation(Placed(1), around(), providers) == 5


async def test_a_plain_function_runs_in_a_thread(read: Callable[..., Invocation], providers: Providers) -> None:
    def f(event: Placed) -> int:
        return threading.get_ident()

    assert await read(f)(Placed(1), around(), providers) != threading.get_ident()


async def test_what_a_function_raises_is_raised(read: Callable[..., Invocation], providers: Providers) -> None:
    def f(event: Placed) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read(f)(Placed(1), around(), providers)


def _nothing() -> None: ...
def _unannotated(event): ...  # type: ignore[no-untyped-def]
def _variable(*events: Placed) -> None: ...
def _by_name(*, event: Placed) -> None: ...
def _stranger(event: Placed, other: bytes) -> None: ...
def _unknown(event: NoSuchClass) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (_nothing, "takes no message; write def _nothing(event: OrderPlaced)"),
        (_unannotated, "annotate it"),
        (_variable, "name each parameter"),
        (_by_name, "let its first parameter be the message"),
        (_stranger, "app.provide()"),
        (_unknown, "import it outside of TYPE_CHECKING"),
    ],
)
def test_a_wrong_signature_says_what_to_write(
    read: Callable[..., Invocation], function: Callable[..., Any], advice: str
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        read(function)
    assert advice in str(refused.value)


async def test_what_it_awaited_and_was_cancelled_is_a_failure_but_its_own_cancellation_goes_on(
    read: Callable[..., Invocation], providers: Providers
) -> None:
    began = asyncio.Event()

    async def waits(event: Placed) -> None:
        waiting = asyncio.create_task(asyncio.Event().wait())
        if event.number == 1:
            waiting.cancel()
        began.set()
        await waiting

    with pytest.raises(RuntimeError, match="something that it awaited was cancelled"):
        await read(waits)(Placed(1), around(), providers)
    began.clear()
    calling = asyncio.create_task(read(waits)(Placed(2), around(), providers))
    await began.wait()
    calling.cancel()
    await asyncio.wait([calling])
    assert calling.cancelled()


def test_a_provider_is_a_function_of_a_type_of_the_users_own(providers: Providers) -> None:
    with pytest.raises(DuplicateName):
        providers.add(Clock, lambda: Clock("again"))
    with pytest.raises(InvalidSetting, match="lambda: value"):
        providers.add(str, "value")  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="given by Whippletree itself"):
        providers.add(Transaction, lambda: None)


def test_the_classes_of_an_annotation_are_found() -> None:
    assert classes_in(Placed | None) == (Placed,)
    assert classes_in(list[Placed | Shipped]) == (Placed, Shipped)
    assert classes_in(tuple[Placed, ...]) == (Placed,)
    assert classes_in(None) == classes_in(Any) == ()
