"""Identities. A UUID names a thing; it never says where the thing stands in an order."""

from __future__ import annotations

from typing import NewType
from uuid import UUID

import uuid_utils.compat

MessageId = NewType("MessageId", UUID)
StreamId = NewType("StreamId", UUID)
InstanceId = NewType("InstanceId", UUID)
EventId = NewType("EventId", UUID)


def new_message_id() -> MessageId:
    """A new id whose index entries lie next to those of its time."""
    return MessageId(uuid_utils.compat.uuid7())


def new_event_id() -> EventId:
    return EventId(uuid_utils.compat.uuid7())


def new_instance_id() -> InstanceId:
    return InstanceId(uuid_utils.compat.uuid7())
