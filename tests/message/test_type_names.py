"""The user's own types travel under stable names, and a wrong registration is refused with what to write instead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest

from whippletree.errors import DuplicateName, InvalidMessage, InvalidSetting, UnknownName
from whippletree.message.type_names import MessageKind, MessageTypes

EVENT, COMMAND = MessageKind.EVENT, MessageKind.COMMAND


@dataclass(frozen=True)
class Placed:
    order_id: UUID
    lines: list[Line] = field(default_factory=list)


@dataclass(frozen=True)
class Line:
    article: str
    count: int


class Shipped(pydantic.BaseModel):
    order_id: str
    count: int = 1


class Paid(msgspec.Struct):
    order_id: str
    amount: int


@pytest.fixture
def types() -> MessageTypes:
    return MessageTypes()


@pytest.mark.parametrize(
    "message",
    [Placed(uuid4(), [Line("bar", 2)]), Shipped(order_id="17"), Paid(order_id="17", amount=3)],
    ids=["dataclass", "pydantic", "msgspec"],
)
def test_a_message_comes_back_as_it_was(types: MessageTypes, message: Any) -> None:
    registered: Any = types.register(type(message), kind=EVENT, stream="order_id", name="shop.It")

    assert types.decode("shop.It", 1, registered.encode(message)) == message
    assert registered.stream_of(message) == message.order_id


def test_a_type_may_name_one_that_is_defined_after_it(types: MessageTypes) -> None:
    @dataclass
    class Node:
        name: str
        below: list[Placed] = field(default_factory=list)

    types.register(Node, kind=COMMAND, stream=None)
    assert types.decode("Node", 1, '{"name": "a"}') == Node("a")


@pytest.mark.parametrize(
    ("python_type", "options", "advice"),
    [
        (Placed, {"kind": EVENT, "stream": None}, "needs a stream; say for example stream='order_id'"),
        (Placed, {"kind": EVENT, "stream": "order"}, "no field 'order' to name its stream by; it has order_id, lines"),
        (Paid, {"kind": EVENT, "stream": "amount"}, "say for example stream=lambda message: f'amount-"),
        (int, {"kind": COMMAND, "stream": None}, "put @dataclass"),
        (Placed, {"kind": COMMAND, "stream": None, "name": "two words"}, "letters, digits"),
        (Placed, {"kind": COMMAND, "stream": None, "shape": 0}, "counted from 1"),
        (Placed, {"kind": COMMAND, "stream": None, "topic": ""}, "such as 'orders'"),
        ("Placed", {"kind": COMMAND, "stream": None}, "not a class"),
    ],
)
def test_a_wrong_registration_says_what_to_write(
    types: MessageTypes, python_type: Any, options: dict[str, Any], advice: str
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        types.register(python_type, **options)
    assert advice in str(refused.value)


def test_a_name_and_a_class_are_registered_once(types: MessageTypes) -> None:
    types.register(Placed, kind=COMMAND, stream=None)
    with pytest.raises(DuplicateName, match="registered already, as Placed"):
        types.register(Placed, kind=COMMAND, stream=None, name="other")
    with pytest.raises(DuplicateName, match="give another name="):
        types.register(Shipped, kind=COMMAND, stream=None, name="Placed")


def test_a_number_is_no_stream(types: MessageTypes) -> None:
    registered = types.register(Paid, kind=EVENT, stream=lambda paid: paid.amount)
    with pytest.raises(InvalidMessage, match="give a UUID, or a text such as 'order-17'"):
        registered.stream_of(Paid("17", 3))


@pytest.mark.parametrize("python_type", [Shipped, Paid])
def test_what_cannot_be_read_is_told_without_its_contents(types: MessageTypes, python_type: Any) -> None:
    types.register(python_type, kind=COMMAND, stream=None, name="It")
    with pytest.raises(InvalidMessage, match="this is no It") as refused:
        types.decode("It", 1, '{"order_id": 5, "count": "secret", "amount": "secret"}')
    assert "secret" not in str(refused.value)


def test_an_unknown_type_and_a_newer_shape_are_told_apart(types: MessageTypes) -> None:
    types.register(Paid, kind=COMMAND, stream=None)
    with pytest.raises(UnknownName, match="no type of the name Other"):
        types.decode("Other", 1, "{}")
    with pytest.raises(UnknownName, match="deploy the newer program"):
        types.decode("Paid", 2, "{}")


def test_an_old_shape_is_lifted_before_it_is_read(types: MessageTypes) -> None:
    types.register(Paid, kind=COMMAND, stream=None, shape=2)
    types.upcasters.add("Paid", 1, lambda old: {"order_id": old["order"], "amount": 0})
    assert types.decode("Paid", 1, '{"order": "17"}') == Paid("17", 0)
