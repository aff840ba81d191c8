from __future__ import annotations

import time
from uuid import uuid4

import msgspec
import pytest

from whippletree.errors import InvalidMessage
from whippletree.message import wire
from whippletree.message.envelope import ClaimedMessage, Queue
from whippletree.message.ids import StreamId, new_message_id


def claimed(payload: str = "{}", headers: str | None = None, *, ordered: bool = True) -> ClaimedMessage:
    message_id = new_message_id()
    return ClaimedMessage(
        queue=Queue.OUTBOX,
        stream_id=StreamId(uuid4() if ordered else message_id),
        version=7,
        message_id=message_id,
        message_type="OrderPlaced",
        topic="orders",
        payload=payload,
        headers=headers,
        correlation_id=uuid4(),
        causation_id=None,
        created=time.time(),
        attempts=1,
        lease_token=1,
    )


@pytest.mark.parametrize("payload", ["null", '{"b":1.10, "a" : [1e2,\n-0.0]}', '"\\u00e9 é"', '{"a":1,"a":2}'])
@pytest.mark.parametrize("headers", [None, '{"tenant":  "süd"}'])
def test_a_message_comes_back_as_it_went(payload: str, headers: str | None) -> None:
    message = claimed(payload, headers)
    back = wire.decode(wire.encode(message))
    assert (back.payload_text, back.headers_text) == (payload, headers)
    assert (back.message_id, back.stream_id, back.version) == (message.message_id, message.stream_id, 7)
    assert back.received() == wire.received(message)


def test_anybody_can_read_it() -> None:
    message = claimed('{"total": 12}')
    read = msgspec.json.decode(wire.encode(message))
    assert read["payload"] == {"total": 12}
    assert read["version"] == 7


def test_a_message_without_a_stream_names_none() -> None:
    assert "stream_id" not in msgspec.json.decode(wire.encode(claimed(ordered=False)))


def test_fields_of_a_later_version_are_passed_over() -> None:
    body = wire.encode(claimed())
    assert wire.decode(body[:-1] + b',"later":[1]}') == wire.decode(body)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"message_id":', b"[" * 100_000], ids=range(6))
def test_anything_else_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(InvalidMessage, match="the delivery is not a message"):
        wire.decode(body)


def test_text_that_is_not_utf8_is_refused() -> None:
    body = wire.encode(claimed('{"a":"x"}')).replace(b'"x"', b'"\xff"')
    with pytest.raises(InvalidMessage):
        wire.decode(body)


def test_the_trace_context_is_found_among_the_headers() -> None:
    assert wire.trace_context('{"traceparent": "00-ab-cd-01", "tenant": 1}') == {"traceparent": "00-ab-cd-01"}
    assert wire.trace_context('{"traceparent": 7}') == {}
    assert wire.trace_context('["traceparent"]') == {}
    assert wire.trace_context('{"traceparent": ' + "[" * 5000 + "]" * 5000 + "}") == {}
    assert wire.trace_context(None) == {}
