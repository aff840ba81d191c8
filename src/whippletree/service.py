"""One instance of a service, put together: connections, coordinator, session, workers, loop. Nothing else composes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakSet

import asyncpg

from whippletree import log, telemetry
from whippletree.app import App
from whippletree.claim.coordinator import CoordinatorSettings, WorkCoordinator
from whippletree.claim.instance import ServiceInstance, new_session_name
from whippletree.claim.keeper import LeaseKeeper
from whippletree.claim.session import InstanceSession
from whippletree.dispatch.handling import Handling
from whippletree.dispatch.multi_stream import MultiStreamPerspective
from whippletree.dispatch.perspective_runner import PerspectiveRunner
from whippletree.dispatch.rows import register_perspective
from whippletree.dispatch.subscriber import Follower
from whippletree.dispatch.transport import Transport
from whippletree.errors import InvalidSetting, StoreError
from whippletree.settings import Dsn
from whippletree.store.database import open_connection, open_pool, prepare, serving, translated
from whippletree.store.startup import Severity, examine
from whippletree.store.statements import call
from whippletree.telemetry import Counters, Standing
from whippletree.work.inbox_receiver import InboxReceiver
from whippletree.work.loop import LoopSettings, WorkLoop
from whippletree.work.maintenance import end_silent_transactions, maintain
from whippletree.work.outbox_worker import OutboxWorker
from whippletree.work.perspective_worker import PerspectiveWorker
from whippletree.work.receptor_worker import ReceptorWorker
from whippletree.work.settings import ReceptorSettings
from whippletree.work.subscription_worker import SubscriptionWorker
from whippletree.work.worker import Worker

KINDS = ("receptors", "perspectives", "subscribers", "schedule", "outbox", "receive")
"""The kinds of work that an instance can do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """How one instance runs. Times are seconds."""

    kinds: Collection[str] = KINDS
    pool_size: int = 10
    grace: float = 30.0
    """How long begun work may take when the instance is asked to end."""
    maintenance_interval: float = 300
    """How often old message ids are forgotten, at least, where the kind `schedule` is worked."""
    receptors: ReceptorSettings = field(default_factory=ReceptorSettings)
    coordinator: CoordinatorSettings = field(default_factory=lambda: CoordinatorSettings(lease_seconds=60))
    loop: LoopSettings = field(default_factory=LoopSettings)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.kinds) - set(KINDS)):
            raise InvalidSetting(f"there is no kind of work {unknown[0]!r}; there are {', '.join(KINDS)}")
        if self.pool_size <= self.receptors.transactions:
            raise InvalidSetting(
                f"pool_size is {self.pool_size}, but {self.receptors.transactions} transactions may be open at once; "
                "it has to be larger, lest nobody can report"
            )


class Service:
    """Runs the work of an app in this process, until `stop`. Use `running` as a context, once."""

    def __init__(self, app: App, settings: ServiceSettings | None = None) -> None:
        self.app = app
        self.settings = settings or ServiceSettings()
        self._session_name = new_session_name(app.name, app.settings.schema)
        self.instance = ServiceInstance(service_name=app.name, metadata={"session": self._session_name})
        self._counters = Counters()
        self.subscriptions: SubscriptionWorker | None = None
        """Those who follow the feed in this process; None when there are none."""
        self._receiver: InboxReceiver | None = None
        self._loop: WorkLoop | None = None
        self._keeper: LeaseKeeper | None = None
        self._stopped = asyncio.Event()

    @property
    def counters(self) -> Counters:
        """What this instance has done."""
        if self._loop is not None:
            self._counters.batches = self._loop.turns
            self._counters.database_not_ready_checks = self._loop.not_ready
            runs, now = self._loop.coordinator.held.runs(), time.monotonic()
            life = self.settings.coordinator.lease_seconds
            self._counters.active_leases = len(runs)
            self._counters.stale_leases = sum(now - run.renewed_at > life for run in runs)
        if self._keeper is not None:
            self._counters.leases_kept_alive = self._keeper.renewed
        followed = self.subscriptions.ever_followed() if self.subscriptions else []
        self._counters.subscriber_completed = sum(subscription.applied for subscription in followed)
        self._counters.subscriber_failed = sum(subscription.failures for subscription in followed)
        self._counters.subscriber_takeovers = sum(subscription.takeovers for subscription in followed)
        return self._counters

    @property
    def standings(self) -> Sequence[Standing]:
        """How the subscribers and the perspectives with a key stand in this instance."""
        return self.subscriptions.standings() if self.subscriptions else ()

    def stop(self, grace: float | None = None) -> None:
        """Ask the instance to end: it claims nothing more, finishes what is begun, and gives back the rest."""
        self._stopped.set()
        if self._loop is not None:
            self._loop.stop(self.settings.grace if grace is None else grace)

    async def run(self) -> None:
        """Work until `stop`, or until something fails that waiting does not mend."""
        async with self.running() as work:
            await work

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Work while the context is open; the task ends when the instance does. Leaving it stops gracefully."""
        async with AsyncExitStack() as stack:
            dsn = await stack.enter_async_context(serving(self.app.settings))
            await prepare(dsn, self.app.settings)
            name, wires = {"application_name": self._session_name}, WeakSet[asyncpg.Connection]()
            opening = open_pool(dsn, size=self.settings.pool_size, server_settings=name, opened=wires.add)
            pool = await stack.enter_async_context(opening)
            stack.enter_context(self.app.using(pool, self._counters))
            await self._register(pool)
            schema, direct = self.app.settings.schema, self.app.settings.direct_dsn or dsn
            coordinator = WorkCoordinator(pool, self.instance, self._coordinator_settings(), schema=schema)
            longest = self.settings.loop.longest_lease
            self._keeper = LeaseKeeper(direct, coordinator, longest_lease=longest, schema=schema)
            stack.enter_context(self._keeper)
            session = InstanceSession(direct, coordinator, schema=schema, beside=wires)
            await stack.enter_async_context(session)
            await self._look(dsn)
            workers = self._workers(coordinator, pool)
            if self.app.outside is not None and {"outbox", "receive"} & set(self.settings.kinds):
                transport = await stack.enter_async_context(self.app.outside.factory(pool, coordinator))
                workers += self._outbox_worker(transport)
                self._receiver = self._inbox_receiver(transport, pool)
            if followers := self.followers():
                self.subscriptions = SubscriptionWorker(
                    pool, session, self.instance.instance_id, followers, schema=self.app.settings.schema
                )
                await stack.enter_async_context(self.subscriptions)
            self._loop = WorkLoop(coordinator, workers, self.settings.loop, wake=session.wake, rejoined=session.renew)
            if self._stopped.is_set():
                self._loop.stop(0)
            telemetry.export(self, self.app.name)
            log.started(self.app.name, self.instance.instance_id, dsn)
            work = asyncio.create_task(self._work(self._loop, pool), name="whippletree work")
            try:
                yield work
            finally:
                self.stop()
                await asyncio.wait([work])
                log.ended(self.app.name, self.instance.instance_id)
            work.result()

    async def _work(self, loop: WorkLoop, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        ending = end_silent_transactions(pool, loop.coordinator.settings.lease_seconds, schema=self.app.settings.schema)
        beside = [asyncio.create_task(ending, name="whippletree silent transactions")]
        if "schedule" in self.settings.kinds:
            beside.append(asyncio.create_task(self._store_due(pool), name="whippletree schedule"))
            tidying = maintain(pool, schema=self.app.settings.schema, interval=self.settings.maintenance_interval)
            beside.append(asyncio.create_task(tidying, name="whippletree maintenance"))
        if self._receiver is not None:
            beside.append(asyncio.create_task(self._receiver.run(), name="whippletree receive"))
        for task in beside:
            task.add_done_callback(self._stop_if_failed)
        try:
            await loop.run()
        finally:
            for task in beside:
                task.cancel()
            ends = await asyncio.gather(*beside, return_exceptions=True)
        for failed in (end for end in ends if isinstance(end, Exception)):
            raise failed

    def _stop_if_failed(self, beside: asyncio.Task[None]) -> None:
        # An instance does not go on with half of its work, silently.
        if not beside.cancelled() and beside.exception() is not None:
            self.stop()

    async def _look(self, dsn: Dsn) -> None:
        """Say what is wrong with what the instance relies on; what makes it impossible is raised."""
        connection = await open_connection(dsn)
        try:
            findings = await examine(connection, self.app.settings.schema)
        finally:
            await connection.close()
        for finding in findings:
            if finding.severity is Severity.ERROR:
                raise StoreError(str(finding))
            log.found(finding.severity, str(finding))

    async def _store_due(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        """Store scheduled messages as they become due."""
        statement = call(self.app.settings.schema, "store_due_messages", 0)
        longest = self.settings.loop.polling_interval
        while not self._stopped.is_set():
            try:
                with translated():
                    pause = await pool.fetchval(statement)
            except Exception as error:
                # Whatever it is: without this task scheduled messages would wait for ever, silently.
                log.schedule_failed(error)
                pause = None
            wait = longest if pause is None else min(max(pause, 0.005), longest)
            await asyncio.sleep(random.uniform(wait * 0.9, wait))  # noqa: S311 - jitter

    async def _register(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        """Make known which stored events the receptors and perspectives of this program take."""
        self.app.receptors.check()
        statement = call(self.app.settings.schema, "register_receptor", 2)
        with translated():
            for receptor in self.app.receptors:
                if receptor.event_types:
                    names = sorted(self.app.receptors.stored_types(receptor))
                    await pool.execute(statement, receptor.name, names)
            # Else the first two to publish an event of a new type would wait for each other.
            await pool.execute(call(self.app.settings.schema, "resolve_event_types", 1), self.app.types.event_names())
        for perspective in self.app.perspectives.values():
            await register_perspective(perspective, pool, schema=self.app.settings.schema)

    def _workers(self, coordinator: WorkCoordinator, pool: asyncpg.Pool[asyncpg.Record]) -> list[Worker]:
        app = self.app
        workers: list[Worker] = []
        if "receptors" in self.settings.kinds:
            workers.append(
                ReceptorWorker(
                    coordinator,
                    pool,
                    Handling(app.types, app.receptors, app.providers),
                    app.receptors,
                    app.router,
                    settings=self.settings.receptors,
                    schema=app.settings.schema,
                    counters=self._counters,
                )
            )
        if "perspectives" in self.settings.kinds and any(p.key is None for p in app.perspectives.values()):
            workers.append(self._perspective_worker(coordinator, pool))
        return workers

    def _perspective_worker(
        self, coordinator: WorkCoordinator, pool: asyncpg.Pool[asyncpg.Record]
    ) -> PerspectiveWorker:
        return PerspectiveWorker(
            PerspectiveRunner(self.app.folder(), pool, coordinator), coordinator, counters=self._counters
        )

    def followers(self) -> list[Follower]:
        """Those of this program who follow the feed."""
        app, kinds = self.app, self.settings.kinds
        followers: list[Follower] = list(app.subscribers.values()) if "subscribers" in kinds else []
        if "perspectives" in kinds:
            followers += [
                MultiStreamPerspective(perspective=perspective, types=app.types, schema=app.settings.schema)
                for perspective in app.perspectives.values()
                if perspective.key is not None
            ]
        return followers

    def _outbox_worker(self, transport: Transport) -> list[Worker]:
        return [OutboxWorker(transport, counters=self._counters)] if "outbox" in self.settings.kinds else []

    def _inbox_receiver(self, transport: Any, pool: asyncpg.Pool[asyncpg.Record]) -> InboxReceiver | None:
        outside = self.app.outside
        if outside is None or not outside.receives or "receive" not in self.settings.kinds:
            return None
        if not hasattr(transport, "subscribe"):
            raise InvalidSetting(f"{type(transport).__name__} delivers nothing; leave out receives=")
        return InboxReceiver(
            transport,
            pool,
            topics=outside.receives,
            group=self.app.name,
            schema=self.app.settings.schema,
            counters=self._counters,
        )

    def _coordinator_settings(self) -> CoordinatorSettings:
        # Policies park; the coordinator's own limit is only for what ends the process each time.
        of_perspectives = (perspective.retry for perspective in self.app.perspectives.values())
        policies = [*(receptor.retry for receptor in self.app.receptors), *of_perspectives]
        attempts = [retry.attempts + 1 for retry in policies]
        given = self.settings.coordinator
        return replace(given, max_attempts=max([given.max_attempts, *attempts]))
