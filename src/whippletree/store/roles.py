"""Who may do what: kinds of database roles, each with the rights that it needs and no others.

The role that migrates owns everything. A producer stores, a worker runs an instance, a viewer reads. Every kind works
through functions that run with the owner's rights; an upgrade gives every role what its kind needs by then.
"""

from __future__ import annotations

from enum import StrEnum

import asyncpg

from whippletree.store.database import translated
from whippletree.store.statements import call


class RoleKind(StrEnum):
    """What a database role is to do."""

    PRODUCER = "producer"
    """Stores messages and events. Reads nothing."""
    WORKER = "worker"
    """Runs an instance: stores, claims and reports."""
    VIEWER = "viewer"
    """Reads every table and view, and changes nothing."""


async def grant(connection: asyncpg.Connection, schema: str, kind: RoleKind, role: str) -> None:
    """Give a role what its kind needs, besides what it has. Idempotent. The connection is the owner's."""
    with translated():
        await connection.execute(call(schema, f"grant_{kind}", 1), role)


async def revoke(connection: asyncpg.Connection, schema: str, role: str) -> None:
    """Take everything in the schema back from a role."""
    with translated():
        await connection.execute(call(schema, "revoke_access", 1), role)
