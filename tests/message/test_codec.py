"""Payloads are encoded strictly, in the producer: what a reader would refuse or change is refused, in plain words."""

from __future__ import annotations

import enum
import json
import math
from collections import UserDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest

from whippletree.errors import InvalidMessage
from whippletree.message.codec import MAX_PAYLOAD_BYTES, Payload, check_json, encode

ID = UUID("01890000-0000-7000-8000-000000000001")
ROUNDED = "is an integer that readers would round; send it as a string"
SURROGATE = "contains a lone surrogate, which is not a character"
NUL = "contains the character NUL, which PostgreSQL text cannot hold"
DEEP = "payload is nested more than 64 deep"


@dataclass(frozen=True)
class Line:
    article: str
    price: Decimal


@dataclass(frozen=True)
class Order:
    order_id: UUID
    at: datetime
    lines: list[Line]
    per_day: dict[int, int]


class OrderStruct(msgspec.Struct):
    order_id: UUID
    due: date


class Colour(enum.Enum):
    RED = "red"


class Customer(str):
    """A text of a class of its own."""


class Model:
    """Has the method by which pydantic models are told."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"mode": mode, "id": str(ID)}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            Order(ID, datetime(2040, 1, 1, tzinfo=UTC), [Line("bolt", Decimal("1.50"))], {1: 2}),
            (
                f'{{"order_id":"{ID}","at":"2040-01-01T00:00:00Z","lines":[{{"article":"bolt","price":"1.50"}}],'
                '"per_day":{"1":2}}'
            ),
        ),
        (OrderStruct(ID, date(2040, 1, 1)), f'{{"order_id":"{ID}","due":"2040-01-01"}}'),
        (Model(), f'{{"mode":"json","id":"{ID}"}}'),
        (MappingProxyType({"a": UserDict({"b": None})}), '{"a":{"b":null}}'),
        ({ID: Colour.RED, "who": Customer("Ann")}, f'{{"{ID}":"red","who":"Ann"}}'),
        ((True, 1.5, -(2**63 - 1), "ä€😀"), '[true,1.5,-9223372036854775807,"ä€😀"]'),
        (nested(64), "[" * 64 + "1" + "]" * 64),
        ("\\u0000", '"\\\\u0000"'),
    ],
    ids=["dataclass", "struct", "pydantic", "mappings", "keys", "numbers", "deep", "backslash"],
)
def test_what_people_use_becomes_json(value: object, text: str) -> None:
    assert encode(value) == text
    check_json(text)
    assert json.loads(text) == json.loads(encode(value))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "payload is nan, which JSON does not have; use null or a string"),
        ({"a": [1, {"b": math.inf}]}, "payload.a[1].b is inf, which JSON does not have; use null or a string"),
        ({"name": "a\x00b"}, f"payload.name {NUL}"),
        ({"\x00": 1}, f"payload has a key that {NUL}"),
        (["\ud800"], f"payload[0] {SURROGATE}"),
        ({"a": {"\ud800": 1}}, f"payload.a has a key that {SURROGATE}"),
        ({"id": 2**63}, f"payload.id {ROUNDED}"),
        ({"id": -(2**63)}, f"payload.id {ROUNDED}"),
        (nested(65), DEEP),
        (nested(100_000), DEEP),
        ({(1, 2): 3}, "payload has the key (1, 2); JSON keys are strings"),
        ({None: 3}, "payload has the key None; JSON keys are strings"),
        ({"a": {1: "x", "1": "y"}}, "payload.a has two keys that are the same text, a number and a string"),
        (object(), "payload of type object cannot be JSON: JSON has no form for object"),
        ({"d": deque([1])}, "payload of type dict cannot be JSON: JSON has no form for deque"),
        (
            "x" * 10_000_000,
            (
                "payload has 10000002 bytes, more than the 262144 allowed; "
                "store large bodies elsewhere and send their address"
            ),
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) and not value.startswith("x") else "",
)
def test_what_cannot_be_json_is_refused_with_the_place_and_the_remedy(value: object, words: str) -> None:
    with pytest.raises(InvalidMessage) as refusal:
        encode(value)
    assert str(refusal.value) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "payload is not JSON: Input data was truncated"),
        ("{", "payload is not JSON: Input data was truncated"),
        ("NaN", "payload is not JSON: invalid character (byte 0)"),
        ("1e999", "payload is not JSON: Number out of range"),
        ('{"a": "\\u0000"}', f"payload.a {NUL}"),
        ('"\ud800"', f"payload {SURROGATE}"),
        ("[18446744073709551616]", f"payload[0] {ROUNDED}"),
        ("[" * 65 + "]" * 65, DEEP),
        ("[" * 100_000 + "]" * 100_000, DEEP),
    ],
    ids=["nothing", "half", "nan", "infinity", "nul", "surrogate", "integer", "65", "deep"],
)
def test_json_text_of_ones_own_is_held_to_the_same_rules(text: str, words: str) -> None:
    with pytest.raises(InvalidMessage) as refusal:
        check_json(text)
    assert str(refusal.value) == words


def test_a_payload_that_is_not_text_is_told_how_to_become_it() -> None:
    mistaken: Any = {"a": 1}
    with pytest.raises(InvalidMessage, match=r"^payload is a dict, not JSON text; use encode\(\) to make it$"):
        check_json(mistaken)


def test_size_is_counted_in_bytes_and_the_limit_can_be_raised() -> None:
    fits = '"' + "x" * (MAX_PAYLOAD_BYTES - 2) + '"'
    check_json(fits)
    assert encode("x" * (MAX_PAYLOAD_BYTES - 2)) == fits
    euros = "€" * (MAX_PAYLOAD_BYTES // 3)
    for refuse in (lambda: encode(euros), lambda: check_json(f'"{euros}"')):
        with pytest.raises(InvalidMessage, match="payload has 262145 bytes, more than the 262144 allowed"):
            refuse()
    assert encode(euros, max_bytes=2 * MAX_PAYLOAD_BYTES) == f'"{euros}"'
    check_json(f'"{euros}"', max_bytes=2 * MAX_PAYLOAD_BYTES)


def test_what_we_encoded_is_not_read_a_second_time() -> None:
    # Were it read, this would be found wanting.
    check_json(Payload("{"))
    assert isinstance(encode({}), Payload)
