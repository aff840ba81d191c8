"""One follower's way through the feed, while it is held: read, apply, move the checkpoint; retry, park, go on.

Effects and checkpoint commit together, under an epoch that whoever takes over raises. A holder that was stopped and
wakes up is refused at its next call, and whatever it had open is undone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from uuid import UUID

import asyncpg

from whippletree.complete.retry import Next, decide
from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.policy import OnPoison
from whippletree.dispatch.subscriber import Follower
from whippletree.errors import CheckpointMoved, StoreError
from whippletree.message.event import NumberedEvent
from whippletree.store.feed import Feed
from whippletree.telemetry import span
from whippletree.work import log
from whippletree.work.feed_head import FeedHead
from whippletree.work.subscriber_row import EffectsFailed, Position, SubscriberRow, SubscriptionState

_PAGE = 500
_LAZILY = 1_000
"""Numbers of events that were not chosen after which the checkpoint is moved past them."""
_PAUSE = 0.2
"""Seconds between two attempts to reach the database."""
_LOOK_EVERY = 5.0
"""Seconds after which an idle or held up subscriber looks at its row, though nobody woke it."""


class Subscription:
    """Follows the feed for one follower under one epoch at a time. All attributes are there to be looked at."""

    def __init__(
        self,
        follower: Follower,
        connections: asyncpg.Pool[asyncpg.Record],
        feed: Feed,
        instance_id: UUID,
        tell: Callable[[Subscription], None],
        *,
        schema: str = "whippletree",
    ) -> None:
        self.follower = follower
        self.name = follower.name
        self.state = SubscriptionState.STANDBY
        self.applied = 0
        self.failures = 0
        self.takeovers = 0
        self.at = Position(0, 0, datetime.min)
        self.attempts = 0
        self._row = SubscriberRow(follower.name, connections, schema=schema)
        self._feed = feed
        self._instance_id = instance_id
        self._tell = tell
        self._passed = 0
        self._single_through = 0
        self._saved_at = 0.0
        self._unsaved = 0
        self._held_until = 0.0
        self._stopping = False
        self._waiting = False

    def stop(self) -> None:
        """End after the events that are being applied."""
        self._stopping = True

    def lag(self, last: int) -> int:
        """Events up to that number of the feed that it has not passed."""
        return max(0, last - self._passed)

    def say(self, state: SubscriptionState) -> None:
        if state is not self.state:
            self.state = state
            log.subscriber_is(self.name, state.value, self.at.checkpoint, self.at.epoch)
            self._tell(self)

    async def follow(self, head: FeedHead) -> None:
        """Follow until stopped. Raises `LeaseLost` when another has begun to; cancelled, it undoes what is open."""
        self._stopping = False
        await self._until_answered(head, lambda: self._begin(head))
        self.takeovers += 1
        if self.state is not SubscriptionState.PARKED:
            self.say(SubscriptionState.CATCHING_UP)
        while not self._stopping:
            try:
                await self._step(head)
            except CheckpointMoved:
                await self._look()
            except StoreError as error:
                # Whether the last commit happened is not known: the row says it.
                log.subscriber_waits(self.name, error)
                await self._until_answered(head, self._look)
        with suppress(CheckpointMoved):
            await self._save()
        await self.leave()

    async def catch_up(self, head: FeedHead) -> bool:
        """Begin, apply what the feed has, and leave; what fails is tried once. False when it could not come to the end:
        an event failed, now or before, or it is paused."""
        await self._begin(head)
        try:
            while self._passed < head.last and not self._held_up() and await self._read_on(head.last):
                pass
            await self._save()
        finally:
            await self.leave()
        return self._passed >= head.last

    async def leave(self) -> None:
        """Say that nobody follows; no attempt is counted against the next event."""
        await self._row.leave(self.at.epoch)

    async def _step(self, head: FeedHead) -> None:
        if pause := self._held_up():
            await head.wait(pause)
            await self._look()
        elif self._passed >= head.last:
            await self._idle(head)
        else:
            await self._read_on(head.last)

    def _held_up(self) -> float:
        """Seconds until it is time to look whether it may go on; 0 when it may."""
        return min(_LOOK_EVERY, max(0.0, self._held_until - time.monotonic()))

    async def _read_on(self, last: int) -> bool:
        """Whether everything that was read is applied."""
        page = await self._feed.page(self._passed, last, self.follower.chosen, _PAGE)
        if len(page.events) == _PAGE and self.state is SubscriptionState.LIVE:
            await self._now(SubscriptionState.CATCHING_UP, waiting=False)
        if applied := await self._apply(page.events):
            self._passed = max(self._passed, page.through)
        if self._passed - self.at.checkpoint >= _LAZILY:
            await self._save()
        return applied

    async def _idle(self, head: FeedHead) -> None:
        if self._passed > self.at.checkpoint and self._save_in() <= 0:
            await self._save()
        waiting = head.listening and not head.hurried
        if (self.state, self._waiting) != (SubscriptionState.LIVE, waiting):
            # An append that looked just before this was committed has seen nobody waiting: look once more.
            await self._now(SubscriptionState.LIVE, waiting=waiting)
            head.last = max(head.last, await self._feed.last_number())
            return
        seen = head.last
        await head.wait(max(0.001, self._save_in()) if self._passed > self.at.checkpoint else _LOOK_EVERY)
        if head.last == seen:
            await self._look()

    async def _apply(self, events: Sequence[NumberedEvent]) -> bool:
        """Whether all of them are applied."""
        if self.follower.transactional:
            return await self._in_transactions(events)
        with self._span(events):
            return await self._one_by_one(events)

    async def _in_transactions(self, events: Sequence[NumberedEvent]) -> bool:
        done = 0
        while done < len(events) and not self._stopping:
            first = events[done].number
            alone = self.attempts > 0 or first <= self._single_through
            batch = events[done : done + (1 if alone else self.follower.checkpoint.count)]
            if await self._spent(first):
                return False
            try:
                await self._transaction(batch)
            except EffectsFailed as failed:
                if len(batch) > 1:
                    # Which one of them it was shows when each is tried alone.
                    self._single_through = batch[-1].number
                    continue
                await self._failed(first, failed.cause)
                return False
            done += len(batch)
            self.applied += len(batch)
        return done == len(events)

    async def _transaction(self, events: Sequence[NumberedEvent]) -> None:
        attempt, through = self.attempts + 1, events[-1].number
        with self._span(events):
            await self._row.commit(self.at, through, lambda tx: self.follower.apply(events, tx, attempt))
        self._moved(through)

    def _span(self, events: Sequence[NumberedEvent]) -> AbstractContextManager[None]:
        headers = (numbered.event.metadata for numbered in events)
        return span("subscribers", headers, subscriber=self.name, events=len(events))

    async def _one_by_one(self, events: Sequence[NumberedEvent]) -> bool:
        policy = self.follower.checkpoint
        for numbered in events:
            if self._stopping or await self._spent(numbered.number):
                return False
            try:
                await self.follower.apply([numbered], None, self.attempts + 1)
            except Exception as error:
                await self._save()
                await self._failed(numbered.number, error)
                return False
            self._passed = numbered.number
            self.applied += 1
            self._unsaved += 1
            if self._unsaved >= policy.count or self._save_in() <= 0:
                await self._save()
        return True

    async def _spent(self, number: int) -> bool:
        """Park before an attempt too many: the process ended each time that the event was tried."""
        if self.attempts < self.follower.retry.attempts:
            return False
        await self._failed(number, None)
        return True

    async def _failed(self, number: int, error: Exception | None) -> None:
        self.failures += 1
        decision = None if error is None else decide(self.follower.retry, OnPoison.PARK, error, self.attempts + 1)
        attempts = self.attempts + (decision is not None and decision.next is not Next.POSTPONE)
        delay = None if decision is None else decision.retry_seconds
        words = "its process ended each time that it was tried" if error is None else error_text(error)
        await self._row.fail(self.at, number, attempts, words, delay)
        self.attempts = attempts
        log.subscriber_failed(self.name, number, attempts, words)
        if delay is None:
            self.say(SubscriptionState.PARKED)
        self._held_until = time.monotonic() + (math.inf if delay is None else delay)

    async def _save(self) -> None:
        if self._passed > self.at.checkpoint:
            await self._row.advance(self.at, self._passed)
            self._moved(self._passed)

    def _save_in(self) -> float:
        """Seconds until the checkpoint is to be written. What was only passed over can wait."""
        seconds = _LOOK_EVERY if self.follower.transactional else self.follower.checkpoint.seconds
        return self._saved_at + seconds - time.monotonic()

    def _moved(self, through: int) -> None:
        self.at = self.at._replace(checkpoint=through)
        self._passed = max(self._passed, through)
        self._saved_at, self._unsaved = time.monotonic(), 0
        self.attempts = 0

    async def _now(self, state: SubscriptionState, *, waiting: bool) -> None:
        self._take_note(await self._row.record(self.at.epoch, state.value, waiting))
        if self.state is not SubscriptionState.PARKED:
            self.say(state)

    async def _look(self) -> None:
        """What has become of the row: somebody may have redriven, skipped or paused."""
        state = SubscriptionState.CATCHING_UP if self.state is SubscriptionState.PARKED else self.state
        await self._now(state, waiting=self._waiting)

    async def _until_answered(self, head: FeedHead, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await ask()
            except StoreError:
                await head.wait(_PAUSE)

    async def _begin(self, head: FeedHead) -> None:
        self._take_note(await self._row.hold(self._instance_id))
        self._saved_at, self._unsaved = time.monotonic(), 0
        # Whoever has not caught up with this is not live.
        head.last = max(head.last, await self._feed.last_number())

    def _take_note(self, row: asyncpg.Record) -> None:
        at = Position(row["checkpoint"], row["epoch"], row["server"])
        if at != self.at:
            # What was passed since may not be there: another server took over without the last events.
            self.at, self._passed = at, at.checkpoint
        self.attempts = row["attempts"]
        self._waiting = row["waiting"]
        if row["state"] == SubscriptionState.PARKED.value:
            self.say(SubscriptionState.PARKED)
        elif self.state is SubscriptionState.PARKED:
            self.say(SubscriptionState.CATCHING_UP)
        self._held_until = time.monotonic() + row["held_up"]
