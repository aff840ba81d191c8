"""Building the rows of a perspective again, beside the live ones: start, watch, compare, swap, undo.

The workers of the perspective do the work, under ordinary leases, while new events go on reaching the live rows. What
is here says which generation of rows is which, and needs the rights of the schema's owner.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg
import msgspec

from whippletree.errors import InvalidSetting, NotApplied, StoreUnavailable, UnknownName
from whippletree.store.database import translated
from whippletree.store.event_store import Executor
from whippletree.store.statements import call

_PAUSE = 0.5
"""Seconds between two attempts, in which appends go on: an attempt keeps them waiting for as long at most."""
_PATIENCE = 30.0
_LOOK_EVERY = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PerspectiveOverview:
    """How a perspective and its rebuild stand. A generation is None when there is none."""

    perspective_name: str
    live_generation: int | None
    building_generation: int | None
    previous_generation: int | None
    waiting: int
    """Events that the live rows do not have yet."""
    parked: int
    rebuilt: int
    """Events that the rebuild has."""
    rebuild_waiting: int
    """Events that it does not have yet; those that stay in a parked stream are among them."""
    rebuild_streams: int
    """In so many streams."""
    rebuild_parked: int
    rebuild_sorted: int
    """Of one that chooses its keys: the events that are sorted by key, before they are folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The rows of one kind: equal, changed, added or gone in the rebuild, with a few of them (key, live, built)."""

    kind: str
    count: int
    samples: Sequence[Mapping[str, Any]]


class Rebuilds:
    """The rebuilds of perspectives. Each method is one transaction; what cannot be had at once is tried for a while."""

    def __init__(self, connections: Executor, *, schema: str = "whippletree", patience: float = _PATIENCE) -> None:
        """`patience` is for how many seconds an append or a fold that stays open is waited for."""
        self._connections = connections
        self._schema = schema
        self._patience = patience

    async def overview(self) -> list[PerspectiveOverview]:
        """Every perspective."""
        with translated():
            rows = await self._connections.fetch(call(self._schema, "perspective_overview", 0))
        return [PerspectiveOverview(**dict(row)) for row in rows]

    async def progress(self, name: str) -> PerspectiveOverview:
        """One perspective. Raises `UnknownName`."""
        with translated():
            row = await self._connections.fetchrow(call(self._schema, "perspective_overview", 1), name)
        if row is None:
            raise UnknownName(f"no perspective of the name {name} is registered")
        return PerspectiveOverview(**dict(row))

    async def start(self, name: str) -> int:
        """Begin: a new generation of rows, which those who run the perspective fill. Returns its number."""
        with translated():
            # What has a number is shared by all instances, if the perspective chooses its keys.
            await self._connections.fetchval(call(self._schema, "number_events", 0))
        generation = int(await self._ask(call(self._schema, "start_rebuild", 1), name))
        await self._tidy(name)
        return generation

    async def until_built(
        self, name: str, tell: Callable[[PerspectiveOverview], None] = lambda stands: None
    ) -> PerspectiveOverview:
        """Wait until nothing is left to build but what is parked; `tell` hears how it goes on."""
        while True:
            asked = time.monotonic()
            stands = await self.progress(name)
            tell(stands)
            if stands.building_generation is None:
                raise InvalidSetting(f"{name} is not being rebuilt: the rebuild was swapped or abandoned")
            if stands.rebuild_streams == stands.rebuild_parked:
                return stands
            # To look costs as much as there are streams: a tenth of the time at most.
            await asyncio.sleep(max(_LOOK_EVERY, 10 * (time.monotonic() - asked)))

    async def compare(self, name: str, *, samples: int = 5) -> list[Difference]:
        """How the rebuilt rows differ from the live ones at this moment."""
        with translated():
            rows = await self._connections.fetch(call(self._schema, "compare_rebuild", 2), name, samples)
        return [Difference(kind=kind, count=count, samples=msgspec.json.decode(found)) for kind, count, found in rows]

    async def swap(self, name: str, *, behind: int = 0) -> int:
        """Make the rebuilt rows the live ones; the old ones are kept for `undo`. Returns the live generation.

        Raises `NotApplied`, which says what is missing, when the rebuild stays behind the live rows in more than
        `behind` streams, or events of one that chooses its keys: readers would see these go back for a moment.
        """
        generation = int(await self._ask(call(self._schema, "swap_rebuild", 2), name, behind))
        await self._tidy(name)
        return generation

    async def undo(self, name: str) -> int:
        """Bring back the rows from before the last swap; the events since are folded into them again. Returns the live
        generation. What was live is kept in turn: to undo again brings it back."""
        return int(await self._ask(call(self._schema, "undo_swap", 1), name))

    async def abandon(self, name: str) -> int | None:
        """Give a rebuild up. Returns its generation; None when there was none."""
        generation: int | None = await self._ask(call(self._schema, "abandon_rebuild", 1), name)
        await self._tidy(name)
        return generation

    async def forget(self, name: str) -> int | None:
        """Drop the rows from before the last swap, which cannot be undone then. None when there were none."""
        generation: int | None = await self._ask(call(self._schema, "forget_previous", 1), name)
        await self._tidy(name)
        return generation

    async def _tidy(self, name: str) -> None:
        """Drop what is not needed any more. When somebody still reads it, the next call does so."""
        with translated(), suppress(asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            await self._connections.fetchval(call(self._schema, "drop_generations", 1), name)

    async def _ask(self, statement: str, *arguments: Any) -> Any:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                with translated():
                    try:
                        return await self._connections.fetchval(statement, *arguments)
                    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
                        if time.monotonic() > deadline:
                            raise StoreUnavailable(
                                "an append, a fold or a reader stays open, and it has to end first; "
                                "`whippletree doctor` names long transactions. Nothing was changed"
                            ) from None
            except NotApplied:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_PAUSE)
