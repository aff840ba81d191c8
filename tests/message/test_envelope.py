"""A message is checked before anything is sent; the words say what to mend."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
import uuid_utils

from whippletree.errors import InvalidMessage
from whippletree.message.codec import Payload, encode
from whippletree.message.envelope import InboxMessage, OutboxMessage
from whippletree.message.ids import MessageId, new_message_id

ZEROS = UUID(int=0)
TYPE_RULE = "must be 1 to 200 letters, digits, or any of _ . + / : -"
NO_TIME = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))
NO_STREAM = "leave it out for a message without order"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stream": ""}, f"stream is empty; {NO_STREAM}"),
        ({"stream": ZEROS}, f"stream is all zeros; {NO_STREAM}"),
        ({"stream": str(ZEROS)}, f"stream is all zeros; {NO_STREAM}"),
        ({"stream": 7}, "stream is of type int; give a UUID or a text"),
        ({"stream": "a\x00"}, "stream contains the character NUL, which PostgreSQL text cannot hold"),
        ({"stream": "s" * 1001}, "stream has more than 1000 characters"),
        ({"topic": "t" * 1001}, "topic has more than 1000 characters"),
        ({"topic": None}, "topic is of type NoneType; give a text"),
        ({"stream": "\ud800"}, "stream contains a lone surrogate, which is not a character"),
        ({"message_id": ZEROS}, "message_id is all zeros; give every message an id of its own"),
        ({"message_id": "abc"}, "message_id is of type str; give a uuid.UUID"),
        ({"message_id": uuid_utils.uuid7()}, "message_id is of type uuid_utils.UUID; give a uuid.UUID"),
        ({"correlation_id": str(ZEROS)}, "correlation_id is of type str; give a uuid.UUID"),
        ({"causation_id": 5}, "causation_id is of type int; give a uuid.UUID"),
        ({"message_type": ""}, f"message_type '' {TYPE_RULE}"),
        ({"message_type": "Order Placed"}, f"message_type 'Order Placed' {TYPE_RULE}"),
        ({"message_type": "OrderPlaced\n"}, f"message_type 'OrderPlaced\\n' {TYPE_RULE}"),
        ({"message_type": ".*"}, f"message_type '.*' {TYPE_RULE}"),
        ({"message_type": "x" * 201}, f"message_type '{'x' * 201}' {TYPE_RULE}"),
        ({"message_type": None}, f"message_type None {TYPE_RULE}"),
        ({"topic": "a\x00"}, "topic contains the character NUL, which PostgreSQL text cannot hold"),
        (
            {"scheduled_for": datetime(2040, 1, 1)},
            "scheduled_for has no time zone; use datetime.now(timezone.utc) and the like",
        ),
        ({"scheduled_for": "2040-01-01T00:00:00Z"}, "scheduled_for is of type str; give a datetime"),
        ({"scheduled_for": date(2040, 1, 1)}, "scheduled_for is of type datetime.date; give a datetime"),
        ({"scheduled_for": NO_TIME}, "scheduled_for is, in UTC, not within the years 1 to 9999"),
        ({"payload": "{'a': 1}"}, "payload is not JSON: object keys must be strings (byte 1)"),
        ({"payload": {"a": 1}}, "payload is a dict, not JSON text; use encode() to make it"),
        ({"headers": "!"}, "headers is not JSON: invalid character (byte 0)"),
        ({"headers": '{"a": "\\u0000"}'}, "headers.a contains the character NUL, which PostgreSQL text cannot hold"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else next(iter(value)),
)
def test_a_message_that_cannot_be_stored_says_why(changes: dict[str, Any], words: str) -> None:
    sound: dict[str, Any] = {"message_id": new_message_id(), "message_type": "Happened", "payload": "{}"}
    if "topic" in changes:
        kinds = [OutboxMessage(**{**sound, **changes})]
    else:
        kinds = [OutboxMessage(**{**sound, **changes}), InboxMessage(**{**sound, **changes})]  # type: ignore[list-item]
    for message in kinds:
        with pytest.raises(InvalidMessage) as refusal:
            message.check()
        assert str(refusal.value) == words


@pytest.mark.parametrize(
    "message_type",
    ["OrderPlaced", "shop.orders.OrderPlaced", "Shop.Orders+Placed", "urn:shop/order-placed:v1", "x" * 200],
)
def test_type_names_of_all_schools_are_taken(message_type: str) -> None:
    OutboxMessage(message_type=message_type, payload="{}").check()


def test_a_full_message_is_sound() -> None:
    OutboxMessage(
        message_type="Happened",
        payload=encode({"a": 1}),
        topic="orders",
        stream="customer 42",
        headers='{"tenant": "a"}',
        correlation_id=uuid4(),
        causation_id=uuid4(),
        scheduled_for=datetime(2040, 1, 1, tzinfo=UTC),
    ).check()


def test_every_message_gets_an_id_of_its_own() -> None:
    first, second = (OutboxMessage(message_type="Happened", payload="{}") for _ in range(2))
    assert first.message_id != second.message_id


def test_a_larger_payload_is_sound_where_the_installation_allows_it() -> None:
    message = InboxMessage(message_id=MessageId(uuid4()), message_type="Happened", payload='"' + "x" * 300_000 + '"')
    with pytest.raises(InvalidMessage, match="payload has 300002 bytes, more than the 262144 allowed"):
        message.check()
    message.check(max_payload_bytes=1_000_000)


def test_what_encode_made_is_taken_as_it_is() -> None:
    OutboxMessage(message_type="Happened", payload=Payload("not looked at")).check()
