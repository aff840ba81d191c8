"""Messages and events on PostgreSQL alone: in order, nothing lost, worked by any number of instances."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whippletree.app import App
    from whippletree.dispatch.context import Context, IdempotencyKey
    from whippletree.dispatch.policy import Retry
    from whippletree.dispatch.receipt import Receipt
    from whippletree.dispatch.subscriber import CheckpointEvery, InstanceMode, Start
    from whippletree.errors import (
        CoordinationError,
        Error,
        HandlerError,
        InvalidMessage,
        InvalidSetting,
        NotApplied,
        StoreError,
        StoreUnavailable,
        UsageError,
        WrongVersion,
    )
    from whippletree.message.event import StoredEvent
    from whippletree.settings import Settings
    from whippletree.store.transaction import Transaction

# Each name and its home, which is imported when the name is first used: `whippletree --help` has to answer at once.
_HOMES = {
    "App": "whippletree.app",
    "CheckpointEvery": "whippletree.dispatch.subscriber",
    "Context": "whippletree.dispatch.context",
    "CoordinationError": "whippletree.errors",
    "Error": "whippletree.errors",
    "HandlerError": "whippletree.errors",
    "IdempotencyKey": "whippletree.dispatch.context",
    "InstanceMode": "whippletree.dispatch.subscriber",
    "InvalidMessage": "whippletree.errors",
    "InvalidSetting": "whippletree.errors",
    "NotApplied": "whippletree.errors",
    "Receipt": "whippletree.dispatch.receipt",
    "Retry": "whippletree.dispatch.policy",
    "Settings": "whippletree.settings",
    "Start": "whippletree.dispatch.subscriber",
    "StoreError": "whippletree.errors",
    "StoreUnavailable": "whippletree.errors",
    "StoredEvent": "whippletree.message.event",
    "Transaction": "whippletree.store.transaction",
    "UsageError": "whippletree.errors",
    "WrongVersion": "whippletree.errors",
}

__all__ = [
    "App",
    "CheckpointEvery",
    "Context",
    "CoordinationError",
    "Error",
    "HandlerError",
    "IdempotencyKey",
    "InstanceMode",
    "InvalidMessage",
    "InvalidSetting",
    "NotApplied",
    "Receipt",
    "Retry",
    "Settings",
    "Start",
    "StoreError",
    "StoreUnavailable",
    "StoredEvent",
    "Transaction",
    "UsageError",
    "WrongVersion",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
