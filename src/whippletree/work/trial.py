"""One call of a receptor or a subscriber in a transaction that somebody else ends: what it returned, and which rows it
changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whippletree.dispatch.handling import Found, Handling, Unhandled, Work
from whippletree.dispatch.policy import Effects
from whippletree.dispatch.routing import Origin, Router
from whippletree.dispatch.subscriber import Follower
from whippletree.errors import UsageError
from whippletree.message.event import NumberedEvent
from whippletree.store import publishing
from whippletree.store.publishing import NewMessages
from whippletree.store.transaction import Connection, Transaction
from whippletree.work.subscriber_row import EffectsFailed

# Differences of these count: what earlier transactions of the session did may not have been written away yet.
_CHANGES = r"""
    SELECT format('%I.%I', schemaname, relname) AS name, n_tup_ins AS inserted, n_tup_upd AS updated,
      n_tup_del AS deleted
    FROM pg_stat_xact_user_tables WHERE NOT (schemaname = $1 AND relname LIKE 'wh\_%')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """How many rows of a table a receptor changed."""

    table: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one call came to. The messages were stored in the same transaction, so they can be."""

    returned: Sequence[object]
    changed: Sequence[ChangedRows]


async def try_work(
    handling: Handling, router: Router, work: Work, *, on: Connection, schema: str, undone: bool = False
) -> Trial:
    """Call everybody who handles a piece of work, in the transaction that `on` is in, which is not ended here.

    Raises `CallFailed` when a receptor raises, and `UsageError` when nobody handles it, or when all is to be `undone`
    and something could not be.
    """
    try:
        found = handling.find(work)
    except Unhandled as fault:
        raise UsageError(str(fault)) from None
    if not found.receptors:
        raise UsageError(f"no receptor of this program handles it; it waits in {work.queue}")
    if undone:
        _require_undoable(found)
    before = await _changes(on, schema)
    returned = await handling.call(found, work, Transaction(on))
    after = await _changes(on, schema)
    new = NewMessages()
    origin = Origin(correlation_id=work.correlation_id or work.message_id, causation_id=work.message_id)
    for message in returned:
        router.add(message, new, origin)
    await publishing.publish(new, on=on, schema=schema)
    return Trial(returned=returned, changed=_differences(before, after))


async def try_event(follower: Follower, numbered: NumberedEvent, *, on: Connection, schema: str) -> Trial:
    """Let a subscriber apply an event, in the transaction that `on` is in, which is not ended here.

    Raises `EffectsFailed` when it raises, and `UsageError` when what it does could not be undone.
    """
    if not follower.transactional:
        raise UsageError(f"{follower.name} takes no Transaction: what it does cannot be undone, so it is not called")
    before = await _changes(on, schema)
    try:
        await follower.apply([numbered], Transaction(on), 1)
    except Exception as error:
        raise EffectsFailed(error) from error
    return Trial(returned=(), changed=_differences(before, await _changes(on, schema)))


def _require_undoable(found: Found) -> None:
    for receptor in found.receptors:
        if receptor.effects is Effects.EXTERNAL:
            raise UsageError(f"{receptor.name} has effects='external', which cannot be undone; it is not called")
        if not receptor.invocation.takes_transaction and not receptor.invocation.returns:
            raise UsageError(
                f"{receptor.name} neither takes a Transaction nor returns messages: what it does is done outside of "
                "the transaction and cannot be undone, so it is not called"
            )


async def _changes(connection: Connection, schema: str) -> dict[str, tuple[int, int, int]]:
    rows = await connection.fetch(_CHANGES, schema)
    return {row["name"]: (row["inserted"], row["updated"], row["deleted"]) for row in rows}


def _differences(before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]) -> list[ChangedRows]:
    found = []
    for table, counts in sorted(after.items()):
        inserted, updated, deleted = (
            now - then for now, then in zip(counts, before.get(table, (0, 0, 0)), strict=True)
        )
        if inserted or updated or deleted:
            found.append(ChangedRows(table=table, inserted=inserted, updated=updated, deleted=deleted))
    return found
