"""Runs the subscribers of one instance: those that it alone runs, and those whose lock it holds.

One dedicated connection, that of the instance's session, serves all locks and both ways of waking; everything else goes
through the pool.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import asyncpg

from whippletree.claim.exclusive import ExclusiveLocks, ExclusiveSettings
from whippletree.claim.session import InstanceSession
from whippletree.dispatch.rebuild_part import RebuildPart
from whippletree.dispatch.subscriber import Follower, InstanceMode
from whippletree.errors import DuplicateName, InvalidSetting, LeaseLost, UnknownName
from whippletree.store.feed import Feed
from whippletree.telemetry import Standing
from whippletree.work import log
from whippletree.work.feed_head import FeedHead
from whippletree.work.feed_rebuilds import FeedRebuilds
from whippletree.work.part_subscription import PARTS_AT_ONCE, PartSubscription
from whippletree.work.subscriber_row import SubscriptionState, make_known
from whippletree.work.subscription import Subscription

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,119}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """How subscribers are run. Times are seconds."""

    poll_every: float = 1
    """How often the feed is looked at when nobody wakes us."""
    grace: float = 10
    """How long stopping waits for what is being applied."""
    exclusive: ExclusiveSettings = field(default_factory=ExclusiveSettings)


class SubscriptionWorker:
    """Use it as a context. `changed` is told of every change of state of a subscription, and returns at once."""

    def __init__(
        self,
        connections: asyncpg.Pool[asyncpg.Record],
        session: InstanceSession,
        instance_id: UUID,
        followers: Iterable[Follower],
        settings: SubscriptionSettings | None = None,
        *,
        changed: Callable[[Subscription], None] = lambda subscription: None,
        schema: str = "whippletree",
    ) -> None:
        self._connections = connections
        self._session = session
        self._settings = settings or SubscriptionSettings()
        self._feed = Feed(connections, schema=schema)
        self._subscriptions: dict[str, Subscription] = {}
        self._tell = changed
        self._instance_id = instance_id
        self._schema = schema
        self._room = asyncio.Semaphore(PARTS_AT_ONCE)
        for follower in followers:
            if not NAME.fullmatch(follower.name):
                raise InvalidSetting(
                    f"{follower.name!r} cannot be a subscriber's name: use up to 120 letters, digits and any of "
                    "_ . : / -, beginning with a letter or _"
                )
            if follower.name in self._subscriptions:
                raise DuplicateName(f"there is a subscriber {follower.name} already; give each a name of its own")
            self._add(follower)
        self._locks = ExclusiveLocks(session, self._gained, self._lost, self._settings.exclusive, schema=schema)
        self._locks.surplus = self._give_up
        self._running: dict[str, asyncio.Task[None]] = {}
        self._unwinding: dict[str, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._head: FeedHead | None = None
        self._former: list[Subscription] = []
        live = [subscription.follower for subscription in self._subscriptions.values()]
        self._rebuilds = FeedRebuilds(
            live, connections, self._follow_rebuild, self._unfollow, self._held_up, schema=schema
        )

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """By name, with their states and counts."""
        return self._subscriptions

    def ever_followed(self) -> list[Subscription]:
        """Also those of rebuilds that have ended: what was counted stays counted."""
        return [*self._subscriptions.values(), *self._former]

    def standings(self) -> list[Standing]:
        """How each stands here; the lag only of those that this process follows as."""
        last = self._head.last if self._head else 0
        idle = (SubscriptionState.STANDBY, SubscriptionState.LOST)
        return [
            Standing(subscriber=name, state=one.state, lag=None if one.state in idle else one.lag(last))
            # Asked from other threads, too.
            for name, one in list(self._subscriptions.items())
        ]

    async def __aenter__(self) -> Self:
        coordinated = {name for name, s in self._subscriptions.items() if s.follower.mode is InstanceMode.COORDINATED}
        if coordinated and self._session.degraded is not None:
            raise InvalidSetting(
                f"subscriber {min(coordinated)} is coordinated, which needs a connection of its own to PostgreSQL, but "
                f"{self._session.degraded}. Set direct_dsn (WHIPPLETREE_DIRECT_DSN) to an address that does not lead "
                "through the pooler, or use InstanceMode.SINGLE_INSTANCE and run one instance only."
            )
        for subscription in self._subscriptions.values():
            await make_known(subscription.follower, self._feed, self._connections, schema=self._schema)
        self._head = FeedHead(self._feed, self._locks.feed_wake, self._settings.poll_every)
        await self._locks.start(coordinated)
        self._spawn(self._head.keep_looking(), "whippletree feed head")
        self._spawn(self._rebuilds.keep_looking(self._head, self._settings.poll_every), "whippletree feed rebuilds")
        for name in self._subscriptions.keys() - coordinated:
            self._gained(name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(self._end(name) for name in list(self._subscriptions)))
        await self._locks.stop()
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)

    async def unsubscribe(self, name: str) -> None:
        """Stop following as a subscriber in this process; a standby elsewhere takes over at once."""
        if name not in self._subscriptions:
            raise UnknownName(f"there is no subscriber {name}; there are {', '.join(sorted(self._subscriptions))}")
        await self._end(name)
        await self._locks.release({name}, for_good=True)

    def _add(self, follower: Follower) -> None:
        around = self._connections, self._feed, self._instance_id, self._tell
        if isinstance(follower, RebuildPart):
            self._subscriptions[follower.name] = PartSubscription(follower, *around, self._room)
        else:
            self._subscriptions[follower.name] = Subscription(follower, *around, schema=self._schema)

    async def _follow_rebuild(self, follower: Follower) -> None:
        """Follow what has a row already."""
        self._add(follower)
        await self._locks.add(follower.name, unshared=isinstance(follower, RebuildPart))

    async def _unfollow(self, name: str) -> None:
        await self.unsubscribe(name)
        former = self._subscriptions.pop(name)
        if former.takeovers:
            self._former.append(former)

    def _held_up(self, name: str) -> bool | None:
        """Whether a part that is held here does not move; None when it is not held here."""
        subscription = self._subscriptions[name]
        return isinstance(subscription, PartSubscription) and subscription.held_up if name in self._locks.held else None

    def _gained(self, name: str) -> None:
        run = self._run(name, self._unwinding.pop(name, None))
        self._running[name] = asyncio.create_task(run, name=f"whippletree subscriber {name}")

    def _lost(self, name: str) -> None:
        subscription = self._subscriptions[name]
        if task := self._running.pop(name, None):
            task.cancel()
            self._unwinding[name] = task
        subscription.say(SubscriptionState.LOST)
        subscription.say(SubscriptionState.STANDBY)

    def _give_up(self, name: str) -> None:
        async def give_up() -> None:
            await self._end(name)
            await self._locks.release({name})

        self._spawn(give_up(), f"whippletree gives up {name}")

    async def _run(self, name: str, former: asyncio.Task[None] | None) -> None:
        subscription = self._subscriptions[name]
        if former is not None:
            await asyncio.wait([former])
        assert self._head is not None
        while asyncio.current_task() is self._running.get(name):
            try:
                await subscription.follow(self._head)
                break
            except LeaseLost as error:
                log.subscriber_lost(name, error)
                subscription.say(SubscriptionState.LOST)
                if name not in self._locks.held:
                    return
            except Exception:
                # Nothing here is expected. Whoever gets the lock begins again; where there is none, we do.
                log.subscriber_broke_off(name)
                subscription.say(SubscriptionState.LOST)
                if name not in self._locks.held:
                    await self._head.wait(self._settings.poll_every)
                    continue
            self._spawn(self._locks.release({name}), f"whippletree releases {name}")
            break
        subscription.say(SubscriptionState.STANDBY)

    async def _end(self, name: str) -> None:
        task = self._running.pop(name, None)
        if task is None:
            return
        subscription = self._subscriptions[name]
        subscription.stop()
        assert self._head is not None
        self._head.tell()
        await asyncio.wait([task], timeout=self._settings.grace)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
            try:
                await subscription.leave()
            except Exception as error:
                log.subscriber_not_left(name, error)
            subscription.say(SubscriptionState.STANDBY)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
