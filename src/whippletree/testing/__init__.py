"""For the tests of programs that use Whippletree, on a real PostgreSQL; the fixture is `whippletree_database`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whippletree.testing.crashes import CrashReport, survives_crashes
    from whippletree.testing.database import Database
    from whippletree.testing.draining import NotDrained, drained
    from whippletree.testing.perspective_case import perspective
    from whippletree.testing.receptor_case import receptor
    from whippletree.work.trial import ChangedRows

# Imported when first used: pytest loads the plugin beside this in every run, whether a test wants it or not.
_HOMES = {
    "ChangedRows": "whippletree.work.trial",
    "CrashReport": "whippletree.testing.crashes",
    "Database": "whippletree.testing.database",
    "NotDrained": "whippletree.testing.draining",
    "drained": "whippletree.testing.draining",
    "perspective": "whippletree.testing.perspective_case",
    "receptor": "whippletree.testing.receptor_case",
    "survives_crashes": "whippletree.testing.crashes",
}

__all__ = [
    "ChangedRows",
    "CrashReport",
    "Database",
    "NotDrained",
    "drained",
    "perspective",
    "receptor",
    "survives_crashes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
