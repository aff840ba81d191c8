"""Rebuilds of perspectives that choose their keys: in parts which the instances share, and then along the feed.

Every instance that has such a perspective takes a few parts at a time, and the next when it has ended them; each part
has one holder at a time, as the live rows have. See `docs/decisions/rebuild-by-key.md`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

import asyncpg

from whippletree.dispatch.multi_stream import MultiStreamPerspective
from whippletree.dispatch.rebuild_part import RebuildPart, Stage
from whippletree.dispatch.subscriber import Follower
from whippletree.store.database import translated
from whippletree.store.statements import call
from whippletree.work import log
from whippletree.work.feed_head import FeedHead
from whippletree.work.part_subscription import PARTS_HELD


class FeedRebuilds:
    """Follows rebuilds while there are any. `follow` and `unfollow` are told of each as it begins and ends; `held_up`
    says whether a part that is held here does not move at present, and None of one that is not held here."""

    def __init__(
        self,
        followers: Iterable[Follower],
        connections: asyncpg.Pool[asyncpg.Record],
        follow: Callable[[Follower], Awaitable[None]],
        unfollow: Callable[[str], Awaitable[None]],
        held_up: Callable[[str], bool | None],
        *,
        schema: str = "whippletree",
    ) -> None:
        self._live = {f.perspective.name: f for f in followers if isinstance(f, MultiStreamPerspective)}
        self._connections = connections
        self._follow = follow
        self._unfollow = unfollow
        self._held_up = held_up
        self._followed: set[str] = set()
        self._feed_rebuilds = call(schema, "feed_rebuilds", 1)

    async def keep_looking(self, head: FeedHead, every: float) -> None:
        """Look for ever; return at once when this program has no such perspective."""
        while self._live:
            try:
                await self._look()
            except Exception as error:
                # Whatever it is: without this task rebuilds would wait for ever, silently.
                log.rebuilds_unknown(error)
            await head.wait(every)

    async def _look(self) -> None:
        with translated():
            rows = await self._connections.fetch(self._feed_rebuilds, sorted(self._live))
        found = {follower.name: follower for follower in (self._follower(*row[:5]) for row in rows)}
        free = {name for name, row in zip(found, rows, strict=True) if row["free"]}
        for name in self._followed - found.keys():
            await self._end(name)
        for name, follower in found.items():
            if not isinstance(follower, RebuildPart) and name not in self._followed:
                await self._begin(follower)
        await self._choose_parts({n: part for n, part in found.items() if isinstance(part, RebuildPart)}, free)

    async def _choose_parts(self, parts: Mapping[str, Follower], free: set[str]) -> None:
        """Take as many as are worked at once. Each instance does, so that one that has ended its own takes the next."""
        room = PARTS_HELD
        for name in self._followed & parts.keys():
            held_up = self._held_up(name)
            if held_up is None and name not in free:
                # Another was quicker.
                await self._end(name)
            elif not held_up:
                room -= 1
        left = sorted(free & parts.keys() - self._followed)
        for name in random.sample(left, min(len(left), max(0, room))):
            await self._begin(parts[name])

    async def _begin(self, follower: Follower) -> None:
        self._followed.add(follower.name)
        await self._follow(follower)

    async def _end(self, name: str) -> None:
        await self._unfollow(name)
        self._followed.discard(name)

    def _follower(self, name: str, generation: int, stage: str | None, part: int, through: int) -> Follower:
        live = self._live[name]
        if stage is None:
            return replace(live, generation=generation)
        return RebuildPart(
            perspective=live.perspective,
            types=live.types,
            schema=live.schema,
            generation=generation,
            stage=Stage(stage),
            part=part,
            through=through,
        )
