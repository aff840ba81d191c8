"""Commits what a transport delivered to the inbox. Once it is there, the transport may forget it.

A delivery never comes in a circle. One that is no message at all, and one whose id was accepted before with another
body, are kept among the dead letters. One that is a message of a stream but cannot be stored as it is keeps its place:
a message of the type `whippletree/unstorable` stands for it, and holds the stream until an operator has decided.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

import asyncpg
import msgspec

from whippletree.errors import InvalidMessage
from whippletree.message import wire
from whippletree.message.envelope import InboxMessage
from whippletree.message.ids import MessageId
from whippletree.store.inbox import StoreOutcome
from whippletree.store.new_messages import as_arrays
from whippletree.store.statements import call
from whippletree.store.transaction import Connection

UNSTORABLE = "whippletree/unstorable"
UNDECODABLE = "whippletree/undecodable"


class Undecodable(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that cannot wait in the inbox."""

    topic: str
    body: bytes
    error: str


Received: TypeAlias = InboxMessage | Undecodable


def read(topic: str, body: bytes, max_payload_bytes: int) -> Received:
    """A delivery as the inbox can take it."""
    try:
        message = wire.decode(body).received()
    except InvalidMessage as error:
        return Undecodable(topic=topic, body=body, error=str(error))
    try:
        message.check(max_payload_bytes=max_payload_bytes)
    except InvalidMessage as error:
        return stand_in(message, topic, str(error))
    return message


def stand_in(message: InboxMessage, topic: str, error: str) -> Received:
    """What is stored for a message that cannot be: its stand-in where it has a stream to hold."""
    lost = _as_payload(message.payload.encode(), error)
    substitute = InboxMessage(
        message_id=message.message_id,
        message_type=UNSTORABLE,
        payload=lost if len(lost) <= _LONGEST else _as_payload(b"", error),
        source_topic=topic,
        stream=message.stream,
        correlation_id=message.correlation_id,
        causation_id=message.causation_id,
    )
    try:
        substitute.check()
    except InvalidMessage:
        return Undecodable(topic=topic, body=message.payload.encode(), error=error)
    if message.stream is None or message.message_type == UNSTORABLE:
        return Undecodable(topic=topic, body=message.payload.encode(), error=error)
    return substitute


async def receive(received: Sequence[Received], *, on: Connection, schema: str) -> tuple[StoreOutcome | None, ...]:
    """Store deliveries in the order given, within the transaction of `on`; None for what became a dead letter."""
    messages = [one for one in received if isinstance(one, InboxMessage)]
    poison = [one for one in received if isinstance(one, Undecodable)]
    outcomes = iter(await receive_messages(messages, on=on, schema=schema) if messages else ())
    if poison:
        await _park(poison, on, schema)
    return tuple(next(outcomes) if isinstance(one, InboxMessage) else None for one in received)


async def receive_messages(messages: Sequence[InboxMessage], *, on: Connection, schema: str) -> list[StoreOutcome]:
    """Store messages that need no more checking. With none, see whether the inbox can be reached."""
    outcomes = await on.fetchval(call(schema, "receive_messages", 10), *as_arrays(messages))
    return [StoreOutcome(outcome) for outcome in outcomes]


async def _park(poison: Sequence[Undecodable], on: Connection, schema: str) -> None:
    nothing = [None] * len(poison)
    await on.execute(
        call(schema, "park_deliveries", 10),
        [_identity(one) for one in poison],
        nothing,
        [UNDECODABLE] * len(poison),
        [one.topic for one in poison],
        [_as_payload(one.body) for one in poison],
        nothing,
        nothing,
        nothing,
        [one.error for one in poison],
        "undecodable",
    )


def _identity(poison: Undecodable) -> MessageId:
    """The same whenever the same delivery comes."""
    digest = hashlib.sha256(poison.topic.encode() + b"\n" + poison.body).digest()
    return MessageId(UUID(bytes=digest[:16]))


def _as_payload(body: bytes, error: str | None = None) -> str:
    """Any bytes as JSON that PostgreSQL can hold."""
    try:
        text = body.decode()
        shown = {"body": text} if "\x00" not in text else {"base64": base64.b64encode(body).decode()}
    except UnicodeDecodeError:
        shown = {"base64": base64.b64encode(body).decode()}
    return msgspec.json.encode(shown if error is None else {"error": error, **shown}).decode()
