"""Whatever the order in which instances join, leave and crash, every partition finds one live owner."""

from __future__ import annotations

import random
from datetime import datetime

import asyncpg
import pytest

from tests.guarantees.ownership import busy, drain, owners, require_balance
from tests.scenario import T0, Given, Message, RowsWorker, release, seconds

SEQUENCES = 100
STEPS = 8
STALE = 600


class Membership:
    """A seeded story of instances that come, work, and go. Leases outlive the story, so that only acts end them."""

    def __init__(self, seed: int, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection) -> None:
        self.chance = random.Random(seed)
        self.as_of: datetime = T0
        self.workers: list[RowsWorker] = []
        self.held: dict[RowsWorker, list[Message]] = {}
        self.story: list[str] = []
        self._pool = pool
        self._db = db

    async def acts(self) -> None:
        act = self.chance.choice(["join", "join", "leave", "crash", "hold", "let go"] if self.workers else ["join"])
        self.story.append(act)
        match act:
            case "join":
                self.workers.append(RowsWorker(self._pool, f"worker {len(self.story)}", lease_seconds=10**6))
            case "leave":
                gone = self.workers.pop(self.chance.randrange(len(self.workers)))
                await self._db.execute("SELECT leave($1, $2)", gone.instance_id, self.as_of)
                self.held.pop(gone, None)
            case "crash":
                gone = self.workers.pop(self.chance.randrange(len(self.workers)))
                self.held.pop(gone, None)
                await self._pass_time(STALE / 2, polling=True)
                await self._pass_time(STALE / 2 + 1, polling=False)
            case "hold":
                worker = self.chance.choice(self.workers)
                self.held.setdefault(worker, []).extend(await worker.claims(as_of=self.as_of, limit=4))
            case _:
                await self.let_go(self.chance.choice(self.workers))

    async def let_go(self, worker: RowsWorker) -> None:
        await worker.reports(*map(release, self.held.pop(worker, [])), as_of=self.as_of)
        assert worker.rejected == []

    async def polls(self, *, dozing: bool = False) -> None:
        """Everybody, or whoever is not dozing, polls once, in any order; nobody who holds a lease is robbed."""
        before, holders = await owners(self._db), await busy(self._db, self.as_of)
        live = {worker.instance_id for worker in self.workers}
        awake = self.chance.randint(0, len(self.workers)) if dozing else len(self.workers)
        for worker in self.chance.sample(self.workers, awake):
            await worker.polls(as_of=self.as_of)
        after = await owners(self._db)
        for partition, holder in holders.items():
            assert after[partition] == holder or before[partition] != holder or holder not in live, self.story

    async def _pass_time(self, how_long: float, *, polling: bool) -> None:
        self.as_of += seconds(how_long)
        if polling:
            await self.polls()


@pytest.mark.parametrize("quarter", range(4))
async def test_every_partition_has_one_live_owner_after_any_joins_leaves_and_crashes(
    quarter: int, given: Given, pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection
) -> None:
    await db.execute("SELECT change_partition_count(16)")
    stored = {(await given.outbox(stream=f"stream {number}"))[0] for number in range(12)}
    for seed in range(quarter, SEQUENCES, 4):
        membership = Membership(seed, pool, db)
        for _ in range(STEPS):
            await membership.acts()
            if membership.chance.random() < 0.4:
                await membership.polls(dozing=True)
                continue
            for _ in range(2):
                await membership.polls()
            live = {worker.instance_id for worker in membership.workers}
            assert not live or set((await owners(db)).values()) <= live, (seed, membership.story)
        for worker in membership.workers:
            await membership.let_go(worker)
        for _ in range(2):
            await membership.polls()
        if membership.workers:
            await require_balance(db, membership.workers)
        for worker in membership.workers:
            await db.execute("SELECT leave($1, $2)", worker.instance_id, T0)
        await db.execute("DELETE FROM wh_service_instances")
    last = RowsWorker(pool, "last")
    assert set(await drain([last], T0 + seconds(10**7))) == stored
