"""Runs perspectives over claimed streams: reads, folds, and commits rows and checkpoints in one transaction.

Many streams share a transaction, and none can spoil it for the others: a stream whose fold raises keeps what came
before the bad event and fails there; one whose lease is lost is left out; one whose row the database refuses fails
alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from whippletree.claim.coordinator import WorkCoordinator
from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.folding import Folded
from whippletree.dispatch.perspective_folder import PerspectiveFolder
from whippletree.errors import StoreError, StoreUnavailable
from whippletree.message.envelope import PerspectiveWork
from whippletree.message.outcome import Outcome
from whippletree.store.database import is_gone, lent, translated
from whippletree.store.statements import call

_ROUNDS = 3
"""How often a whole transaction is tried, after a deadlock or the like, before its streams are tried one by one."""


class PerspectiveRunner:
    """Folds claimed work, and commits it together with its end."""

    def __init__(
        self, folder: PerspectiveFolder, connections: asyncpg.Pool[asyncpg.Record], coordinator: WorkCoordinator
    ) -> None:
        self.folder = folder
        self._connections = connections
        self._coordinator = coordinator

    async def fold(self, work: Sequence[PerspectiveWork], batch_size: int) -> list[Folded]:
        """Fold streams of one perspective, up to `batch_size` events of each. Nothing is written yet."""
        with translated():
            async with lent(self._connections) as connection:
                return await self.folder.fold(work, batch_size, connection)

    async def commit(self, folded: Sequence[Folded]) -> list[Folded]:
        """Write rows and move checkpoints, in one transaction. Those whose lease is lost, or whose rows were swapped
        meanwhile, come back, and nothing was written of them."""
        left, lost = list(folded), list[Folded]()
        with translated():
            for _ in range(_ROUNDS):
                try:
                    refused = await self._commit_once(left)
                except (asyncpg.PostgresError, StoreError) as error:
                    # Nobody knows yet whose fault it is.
                    _require_answer(error)
                    continue
                lost += refused
                left = [one for one in left if one not in refused]
                if not refused or not left:
                    return lost
            for one in left:
                lost += await self._commit_alone(one)
        return lost

    async def unworked(self) -> list[str]:
        """The perspectives that have work which no running instance does."""
        with translated():
            rows = await self._connections.fetch(call(self.folder.schema, "unworked_perspectives", 0))
        return [row[0] for row in rows]

    async def _commit_alone(self, one: Folded) -> list[Folded]:
        try:
            return await self._commit_once([one])
        except asyncpg.PostgresError as error:
            _require_answer(error)
            one.changed, one.events, one.row = False, [], None
            retry = self.folder.perspectives[one.work.registered_name].retry
            one.fail(one.after + 1, f"its row cannot be written: {error_text(error)}", error, retry)
            return await self._commit_once([one])

    async def _commit_once(self, folded: Sequence[Folded]) -> list[Folded]:
        """One transaction. Those that were refused come back, and then nothing was written of any."""
        async with lent(self._connections) as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                await self.folder.keep_from_inline(folded, connection)
                swapped = await self.folder.write(folded, connection)
                outcomes: list[Outcome] = [outcome for one in folded for outcome in one.outcomes()]
                handed_in = await self._coordinator.report(outcomes, on=connection)
            except BaseException:
                if not is_gone(connection):
                    await transaction.rollback()
                raise
            if handed_in.rejected:
                await transaction.rollback()
                handed_in.forget()
                lost = {(rejection.queue, rejection.message_id) for rejection in handed_in.rejected}
                return [one for one in folded if (one.work.queue, one.work.stream_id) in lost]
            if swapped:
                await transaction.rollback()
                return swapped
            await transaction.commit()
        handed_in.settle()
        return []


def _require_answer(error: Exception) -> None:
    """Go on only after an error that the server reported of the transaction itself."""
    gone = isinstance(error, StoreUnavailable | asyncpg.PostgresConnectionError)
    if gone or (getattr(error, "sqlstate", None) or "").startswith(("57P", "53")):
        raise error
