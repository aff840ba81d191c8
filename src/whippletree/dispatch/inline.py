"""Inline perspectives: folded in the appending transaction, so that whoever reads after it sees the event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whippletree.dispatch.perspective_folder import PerspectiveFolder
from whippletree.errors import PerspectiveFailed
from whippletree.message.envelope import PerspectiveWork
from whippletree.message.ids import StreamId
from whippletree.store.publishing import NewMessages
from whippletree.store.statements import call
from whippletree.store.transaction import Connection


class InlinePerspectives:
    """What `EventStore` calls after it has appended, in the same transaction.

    An event appended by a program that does not know the perspective, or before it was inline, is ordinary work: a
    worker does it, or the next append to its stream, which takes the work from whoever has it.
    """

    def __init__(self, folder: PerspectiveFolder) -> None:
        self._folder = folder
        self._names = [name for name, perspective in sorted(folder.perspectives.items()) if perspective.inline]
        self._take_over = call(folder.schema, "take_over_streams", 2)
        self._save = call(folder.schema, "save_checkpoints", 4)

    def __bool__(self) -> bool:
        return bool(self._names)

    async def after_publishing(self, new: NewMessages, versions: Sequence[int], connection: Connection) -> None:
        """Fold what was just published, in the transaction that published it."""
        last: dict[StreamId, int] = {}
        for append, version in zip(new.events, versions, strict=False):
            last[append.stream_id] = version
        await self._fold(last, connection)

    async def __call__(self, stream_id: StreamId, version: int, connection: Connection) -> None:
        """Fold the stream up to a version. Raises `PerspectiveFailed`, and then the append must not commit."""
        await self._fold({stream_id: version}, connection)

    async def _fold(self, last: Mapping[StreamId, int], connection: Connection) -> None:
        # By name and then by stream, as workers lock them: two transactions must not wait for each other in a circle.
        for name in self._names:
            taken = await connection.fetch(self._take_over, name, sorted(last))
            if not taken:
                continue
            queue = f"perspective/{name}"
            work = [PerspectiveWork(queue, stream, after, None, last[stream], 1, 0) for stream, after in taken]
            folded = await self._folder.fold(work, None, connection)
            swapped = await self._folder.write(folded, connection)
            for one in folded:
                if one.failed is not None or one in swapped:
                    reason = one.failed or "its rows were swapped; append again"
                    stream_id = one.work.stream_id
                    raise PerspectiveFailed(f"{name} did not take what was appended to stream {stream_id}: {reason}")
            as_of = await connection.fetchval("SELECT clock_timestamp()")
            streams = [one.stream_id for one in work]
            await connection.execute(self._save, [queue] * len(work), streams, [one.version for one in work], as_of)
