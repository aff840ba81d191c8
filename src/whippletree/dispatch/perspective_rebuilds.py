"""What a program may ask of its perspectives' rows besides reading them: build them again, and tell what they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from whippletree.dispatch.key_replay import KeyReplay
from whippletree.dispatch.multi_stream import MultiStreamPerspective
from whippletree.dispatch.perspective import Perspective
from whippletree.dispatch.perspective_folder import PerspectiveFolder
from whippletree.dispatch.rebuild import Difference, PerspectiveOverview, Rebuilds
from whippletree.dispatch.replay import Replays, require_time_zone
from whippletree.errors import UsageError
from whippletree.message.type_names import MessageTypes

Named: TypeAlias = "str | Callable[..., Any]"
"""A perspective: its function, or its name."""


class PerspectiveRebuilds:
    """The rebuilds of one program. To start, swap, undo, abandon and forget needs the rights of the schema's owner."""

    def __init__(
        self,
        folder: PerspectiveFolder,
        types: MessageTypes,
        connections: asyncpg.Pool[asyncpg.Record],
        named: Callable[[Named], Perspective[Any]],
    ) -> None:
        self._rebuilds = Rebuilds(connections, schema=folder.schema)
        self._replays = Replays(folder, connections)
        self._types = types
        self._connections = connections
        self._schema = folder.schema
        self._named = named

    async def overview(self) -> Sequence[PerspectiveOverview]:
        """How every perspective of the database stands."""
        return await self._rebuilds.overview()

    async def progress(self, perspective: Named) -> PerspectiveOverview:
        """How a perspective and its rebuild stand."""
        return await self._rebuilds.progress(self._named(perspective).name)

    async def start(self, perspective: Named) -> int:
        """Begin to build the rows again, beside the live ones; the instances that run do it. Returns the generation."""
        return await self._rebuilds.start(self._named(perspective).name)

    async def until_built(self, perspective: Named) -> PerspectiveOverview:
        """Wait until the rebuild has caught up, but for what it has parked."""
        return await self._rebuilds.until_built(self._named(perspective).name)

    async def compare(self, perspective: Named, *, samples: int = 5) -> Sequence[Difference]:
        """How the rebuilt rows differ from the live ones at this moment: equal, changed, added, gone."""
        return await self._rebuilds.compare(self._named(perspective).name, samples=samples)

    async def swap(self, perspective: Named, *, behind: int = 0) -> int:
        """Show the rebuilt rows to readers, and keep the old ones. Raises `NotApplied` while the rebuild is behind."""
        return await self._rebuilds.swap(self._named(perspective).name, behind=behind)

    async def undo(self, perspective: Named) -> int:
        """Bring back the rows from before the last swap; what came since is folded into them again."""
        return await self._rebuilds.undo(self._named(perspective).name)

    async def abandon(self, perspective: Named) -> int | None:
        """Give a rebuild up. Returns its generation; None when there was none."""
        return await self._rebuilds.abandon(self._named(perspective).name)

    async def forget(self, perspective: Named) -> int | None:
        """Drop the rows that are kept for undo. Returns their generation; None when there were none."""
        return await self._rebuilds.forget(self._named(perspective).name)

    async def rebuild_stream(self, perspective: Named, stream: UUID | str) -> None:
        """Make the row of one stream anew from its events, in one transaction. Raises `PerspectiveFailed`, and then
        nothing has changed.

        For a perspective that chooses its keys give a key: all its events are read. One that writes by its own SQL has
        to say how a stream is removed from its tables, `clear=`.
        """
        found = self._named(perspective)
        if found.key is None:
            await self._replays.rebuild_stream(found.name, stream)
        else:
            await self._by_key(found).rebuild(str(stream))

    async def state_at(
        self, perspective: Named, stream: UUID | str, *, version: int | None = None, time: datetime | None = None
    ) -> Any:
        """The row of a stream as it was after a version or at a time, by the fold as it is now; None for no row.

        For a perspective that chooses its keys give a key, and no version: all its events are read.
        """
        found = self._named(perspective)
        if found.key is None:
            return await self._replays.state_at(found.name, stream, version=version, time=time)
        if version is not None:
            raise UsageError(f"{found.name} chooses its keys, and a key has no versions; say time=")
        require_time_zone(time)
        return await self._by_key(found).state_at(str(stream), time)

    def _by_key(self, perspective: Perspective[Any]) -> KeyReplay:
        follower = MultiStreamPerspective(perspective=perspective, types=self._types, schema=self._schema)
        return KeyReplay(follower, self._connections)
