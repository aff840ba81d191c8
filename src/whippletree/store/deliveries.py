"""Commits what a transport delivered to the inbox. Once it is there, the transport may forget it.

No delivery comes in a circle. One that is no message, one that cannot be stored as it is, and one whose id was accepted
before with another body are kept whole among the dead letters. Where the message has a stream, a stand-in of the type
`whippletree/unstorable` takes its place: no receptor takes that, so the stream waits until an operator has decided.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

import msgspec

from whippletree.errors import InvalidMessage
from whippletree.message import wire
from whippletree.message.codec import MAX_PAYLOAD_BYTES
from whippletree.message.envelope import InboxMessage
from whippletree.message.ids import MessageId
from whippletree.store.inbox import StoreOutcome
from whippletree.store.new_messages import as_arrays
from whippletree.store.statements import call
from whippletree.store.transaction import Connection

UNSTORABLE = "whippletree/unstorable"
UNDECODABLE = "whippletree/undecodable"


class Poison(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that cannot be stored as a message."""

    topic: str
    body: bytes
    error: str
    message_type: str = UNDECODABLE
    stand_in: InboxMessage | None = None
    """What holds its stream, if it has one."""

    @property
    def identity(self) -> MessageId:
        """The same whenever the same delivery comes."""
        return MessageId(UUID(bytes=hashlib.sha256(self.topic.encode() + b"\n" + self.body).digest()[:16]))


Received: TypeAlias = InboxMessage | Poison


def read(topic: str, body: bytes, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> Received:
    """A delivery as the inbox can take it."""
    try:
        message = wire.decode(body).received()
    except InvalidMessage as error:
        return Poison(topic=topic, body=body, error=str(error))
    try:
        message.check(max_payload_bytes=max_payload_bytes)
    except InvalidMessage as error:
        return unstorable(message, topic, body, str(error))
    return message


def unstorable(message: InboxMessage, topic: str, body: bytes, error: str) -> Poison:
    """The delivery of a message that cannot be stored, with what stands in for it."""
    poison = Poison(topic=topic, body=body, error=error, message_type=UNSTORABLE)
    stand_in = InboxMessage(
        message_id=message.message_id,
        message_type=UNSTORABLE,
        payload=msgspec.json.encode({"dead_letter": poison.identity, "error": error[:500]}).decode(),
        source_topic=topic,
        stream=message.stream,
        correlation_id=message.correlation_id,
        causation_id=message.causation_id,
    )
    try:
        stand_in.check()
    except InvalidMessage:
        return poison
    return poison if message.stream is None else msgspec.structs.replace(poison, stand_in=stand_in)


async def receive(received: Sequence[Received], *, on: Connection, schema: str) -> list[StoreOutcome]:
    """Store deliveries in the order given, within the transaction of `on`. One outcome for each message of a stream or
    its own; poison without a stream has none."""
    messages = [one if isinstance(one, InboxMessage) else one.stand_in for one in received]
    storable = [message for message in messages if message is not None]
    if poison := [one for one in received if isinstance(one, Poison)]:
        await _park(poison, on, schema)
    return await receive_messages(storable, on=on, schema=schema) if storable else []


async def receive_messages(messages: Sequence[InboxMessage], *, on: Connection, schema: str) -> list[StoreOutcome]:
    """Store messages that need no more checking. With none, see whether the inbox can be reached."""
    outcomes = await on.fetchval(call(schema, "receive_messages", 10), *as_arrays(messages))
    return [StoreOutcome(outcome) for outcome in outcomes]


async def _park(poison: Sequence[Poison], on: Connection, schema: str) -> None:
    nothing = [None] * len(poison)
    await on.execute(
        call(schema, "park_deliveries", 10),
        [one.identity for one in poison],
        nothing,
        [one.message_type for one in poison],
        [one.topic for one in poison],
        [_as_json(one.body) for one in poison],
        nothing,
        nothing,
        nothing,
        [one.error for one in poison],
        "not storable",
    )


def _as_json(body: bytes) -> str:
    """Any bytes as JSON that PostgreSQL can hold."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\x00"
    shown = {"base64": base64.b64encode(body).decode()} if "\x00" in text else {"body": text}
    return msgspec.json.encode(shown).decode()
