"""A message as NATS takes it: its subject, its headers and its body, and the lines of the protocol that carry it."""

from __future__ import annotations

import re
from functools import lru_cache

from whippletree.message import wire
from whippletree.message.envelope import ClaimedMessage

_TOPIC = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_LONGEST_TOPIC = 1000
_ROOM_FOR_HEADERS = 2048


class Outgoing:
    """A message and its place in the batch that it came in."""

    __slots__ = ("body", "message", "place", "subject", "trace")

    def __init__(self, place: int, message: ClaimedMessage, prefix: str) -> None:
        self.place = place
        self.message = message
        self.subject = f"{prefix}.{message.topic}"
        self.body = wire.encode(message)
        self.trace = wire.trace_context(message.headers) if message.headers else {}

    def fault(self, max_payload: int) -> str | None:
        """Why NATS would not take it."""
        if not is_subject(self.message.topic):
            return no_subject(self.message.topic)
        if len(self.body) + _ROOM_FOR_HEADERS > max_payload:
            return f"the message has {len(self.body)} bytes, more than NATS takes: {max_payload} with its headers"
        return None

    def headers(self, stream: str) -> dict[str, str]:
        return {"Nats-Msg-Id": str(self.message.message_id), "Nats-Expected-Stream": stream, **self.trace}

    def frame(self, batch_id: str, number: int) -> bytes:
        """The protocol's lines for one message of an atomic batch: the client's own way of making them costs more than
        all else that is done for the message. Nothing here can hold a line break: ids are ours, and topic and trace
        have been looked at."""
        trace = "".join(f"{name}: {value}\r\n" for name, value in self.trace.items()) if self.trace else ""
        headers = (
            f"NATS/1.0\r\nNats-Msg-Id: {self.message.message_id}\r\nNats-Batch-Id: {batch_id}\r\n"
            f"Nats-Batch-Sequence: {number}\r\n{trace}\r\n"
        ).encode()
        size = f"HPUB {self.subject} {len(headers)} {len(headers) + len(self.body)}\r\n".encode()
        return b"%b%b%b\r\n" % (size, headers, self.body)


@lru_cache(maxsize=1000)
def is_subject(topic: str) -> bool:
    # A longer line ends the connection.
    return bool(_TOPIC.fullmatch(topic)) and topic.isprintable() and len(topic.encode()) <= _LONGEST_TOPIC


def no_subject(topic: str) -> str:
    return (
        f"topic {topic[:200]!r} cannot be a NATS subject: use words joined by dots, without spaces, * and >, "
        f"of {_LONGEST_TOPIC} bytes at most"
    )
