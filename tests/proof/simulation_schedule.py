"""The steps of a schedule, chosen by its seed, and the quiet end in which everything has to drain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from uuid import UUID

from tests.proof.simulation_instance import Fault, VirtualInstance, choose_outcomes, complete_all
from tests.proof.simulation_ledger import Report, Row, Step, Violation
from tests.proof.simulation_storer import New, Storer, new_message
from tests.proof.simulation_world import PARTITIONS, Connections, World, as_inbox
from whippletree.claim.batch import WorkBatchFlags, WorkReport
from whippletree.message.envelope import Queue

_MOST_INSTANCES = 6
_MOST_ROUNDS = 40
_EVERYTHING = {Queue.OUTBOX: 100, Queue.INBOX: 100}


class Schedule:
    """One schedule. The same seed makes the same one, whatever ran before."""

    def __init__(self, connections: Connections, seed: int) -> None:
        self._rng = Random(seed)
        self._world = World(connections, self._rng)
        self._moves: list[Callable[[], Awaitable[None]]] = [
            *[self._work] * 36,
            *[self._store] * 14,
            *[self._store_and_wait] * 4,
            *[self._end_store] * 4,
            *[self._redeliver] * 3,
            *[self._move_clock] * 8,
            *[self._join] * 4,
            *[self._leave] * 2,
            *[self._crash] * 3,
            *[self._pause] * 3,
            *[self._send_letter] * 8,
            *[self._operate] * 5,
        ]

    @property
    def steps(self) -> list[str]:
        return self._world.schedule

    async def run(self) -> None:
        """Steps with faults, then the end without."""
        await self._world.begin()
        for _ in range(self._rng.randint(1, 3)):
            await self._join()
        try:
            for _ in range(self._rng.randint(20, 40)):
                self._world.pass_time(self._rng.choice((0.0, 0.0, 0.1, 0.5, 1.5)))
                await self._rng.choice(self._moves)()
            await self._drain()
        finally:
            for storer in self._world.storers:
                if storer.transaction is not None:
                    await storer.roll_back()

    async def _work(self) -> None:
        awake = [i for i in self._world.instances if i.paused_until is None or i.paused_until <= self._world.now]
        if not awake:
            return
        instance = self._rng.choice(awake)
        instance.paused_until = None
        fault = self._rng.choices(tuple(Fault), (80, 7, 13))[0]
        passing = self._rng.choice((0, 0, 1))
        await self._world.exchange(instance, self._report(instance), fault=fault, passing=passing, unread=0.4)

    def _report(self, instance: VirtualInstance) -> WorkReport:
        again = instance.unanswered
        if again is not None and self._rng.random() < 0.7 and not self._would_wait(again):
            return again
        outcomes, renewals = choose_outcomes(instance, self._rng)
        limits = {queue: self._rng.choice((1, 2, 5, 20)) for queue in Queue if self._rng.random() < 0.8}
        flags = WorkBatchFlags.SKIP_CLAIM if self._rng.random() < 0.2 else WorkBatchFlags.NONE
        arriving = [m for m in self._messages() if m.queue == "inbox"] if self._rng.random() < 0.1 else []
        return WorkReport(
            outcomes=outcomes,
            renewals=renewals,
            limits=limits,
            flags=flags,
            new_inbox_messages=[as_inbox(message) for message in arriving],
        )

    async def _store(self) -> None:
        storer = self._idle_storer()
        if storer is None:
            return
        await storer.store(self._messages(), self._world.received, self._world.now)
        await self._end(storer, commit=self._rng.random() < 0.85)

    async def _store_and_wait(self) -> None:
        storer = self._rng.choice(self._world.storers)
        others = {m.stream[1] for other in self._world.storers if other is not storer for m in other.stored}
        messages = [m for m in self._messages(busy=others) if m.message_id not in others]
        await storer.store(messages, self._world.received, self._world.now)
        await self._world.observe(f"a transaction with {_names(storer.stored)} stays open", Step(self._world.now))

    async def _end_store(self) -> None:
        for storer in self._world.storers:
            if storer.transaction is not None:
                await self._end(storer, commit=self._rng.random() < 0.7)
                return

    async def _end(self, storer: Storer, *, commit: bool) -> None:
        names = _names(storer.stored)
        if not commit:
            await storer.roll_back()
            await self._world.observe(f"{names} rolled back", Step(self._world.now))
            return
        stored = self._world.accept(await storer.commit())
        step = Step(self._world.now, stored=[(message.stream, message.message_id) for message in stored])
        await self._world.observe(f"{names} stored", step)

    async def _redeliver(self) -> None:
        storer = self._idle_storer()
        busy = self._world.busy_streams()
        known = [message for message in self._world.received.bodies.values() if message.stream[1] not in busy]
        if storer is None or not known:
            return
        copies = [self._rng.choice(known) for _ in range(self._rng.randint(1, 3))]
        changed = [copy._replace(payload=self._rng.choice((copy.payload, '{"changed": true}'))) for copy in copies]
        await storer.store(changed + self._messages(), self._world.received, self._world.now)
        await self._end(storer, commit=True)

    async def _move_clock(self) -> None:
        lease, stale = self._world.lease, self._world.settings.stale_threshold_seconds
        by = self._rng.choice((lease / 3, lease, lease * 1.1, stale + 1, -1.0, -5.0))
        self._world.pass_time(by)
        await self._world.observe(f"the clock moves by {by:g} s", Step(self._world.now))

    async def _join(self) -> None:
        if len(self._world.instances) < _MOST_INSTANCES:
            instance = await self._world.join(session=self._rng.random() < 0.5)
            await self._world.observe(f"{instance.name} starts", Step(self._world.now))

    async def _leave(self) -> None:
        if self._world.instances:
            instance = self._rng.choice(self._world.instances)
            await self._world.db.execute("SELECT leave($1, $2)", instance.instance_id, self._world.now)
            await self._world.forget(instance)
            await self._world.observe(f"{instance.name} leaves", Step(self._world.now))

    async def _crash(self) -> None:
        if self._world.instances:
            instance = self._rng.choice(self._world.instances)
            await self._world.forget(instance)
            await self._world.observe(f"{instance.name} crashes", Step(self._world.now))

    async def _pause(self) -> None:
        if self._world.instances:
            instance = self._rng.choice(self._world.instances)
            instance.paused_until = self._world.now + timedelta(seconds=self._world.lease * 1.2)
            await self._world.observe(f"{instance.name} stands still", Step(self._world.now))

    async def _send_letter(self) -> None:
        """A report that comes late, or in another's name, or under a token of the past."""
        rows = self._world.ledger.tables.rows
        letter = self._forged_letter() or (self._rng.choice(self._world.letters) if self._world.letters else None)
        if letter is None:
            return
        row = rows.get(letter.stream)
        head, last = (row.head_version, row.leased_through) if row is not None else (0, None)
        version = self._rng.choice((head, head + 1, head + 1, head + 1, last or 1, (last or 1) + 1))
        verb = self._rng.choice(("complete", "complete", "fail", "release", "renew"))
        refused = await self._deliver(verb, letter, version)
        if refused == _must_take(verb, letter, version, row):
            raise Violation(f"{verb} {version}, {letter}, was {'refused' if refused else 'taken'} for {row}")
        step = Step(self._world.now, reports=[letter._replace(through=version if verb == "complete" else 0)])
        words = f"{verb} {version} of {letter.stream} by {letter.instance_id} under {letter.token}"
        await self._world.observe(f"a letter: {words}: {'refused' if refused else 'taken'}", step)

    def _forged_letter(self) -> Report | None:
        """On a stream that is held: by its holder under an earlier token, or by another under its token."""
        rows = self._world.ledger.tables.rows
        held = sorted(stream for stream, row in rows.items() if row.instance_id is not None)
        if not held or self._rng.random() < 0.2:
            return None
        stream = self._rng.choice(held)
        holder, token = rows[stream].instance_id, rows[stream].lease_token
        assert holder is not None
        assert token is not None
        others = [letter.instance_id for letter in self._world.letters if letter.instance_id != holder]
        match self._rng.randrange(4):
            case 0:
                return Report(holder, stream, token)
            case 1:
                return Report(self._rng.choice(others) if others else UUID(int=1), stream, token)
            case _:
                return Report(holder, stream, token - self._rng.randint(1, 3))

    async def _deliver(self, verb: str, letter: Report, version: int) -> bool:
        """Whether the database refused the report."""
        named = (letter.instance_id, [letter.stream[0]], [letter.stream[1]], [letter.token])
        match verb:
            case "complete":
                call, rest = "complete_messages($1, $2, $3, $4, $5, false, $6)", [[version]]
            case "fail":
                call, rest = "fail_messages($1, $2, $3, $4, $5, '{late}', '{1}', '{retry}', 5, $6)", [[version]]
            case "release":
                call, rest = "release_messages($1, $2, $3, $4, $5, $6)", [[version]]
            case _:
                call, rest = f"renew_leases($1, $2, $3, $4, {self._world.lease}, $5)", []
        return bool(await self._world.db.fetchval(f"SELECT {call}", *named, *rest, self._world.now))

    async def _operate(self) -> None:
        rows = self._world.ledger.tables.rows
        if not rows:
            return
        stream = self._rng.choice(sorted(rows))
        row = rows[stream]
        held = row.lease_expiry is not None and row.lease_expiry > self._world.now
        if self._rng.random() < 0.6:
            verb, call = "redrives", "redrive_stream($1, $2, $3)"
            done = await self._world.db.fetchval(f"SELECT {call}", *stream, self._world.now)
        else:
            verb, call = "skips", "skip_message($1, $2, $3, 'poison', $4)"
            version = row.head_version + self._rng.choice((1, 1, 1, 2))
            done = await self._world.db.fetchval(f"SELECT {call}", *stream, version, self._world.now)
        if done and held:
            raise Violation(f"an operator {verb} {stream} while it is leased: {row}")
        step = Step(self._world.now, operated={stream} if done else set())
        await self._world.observe(f"an operator {verb} {stream}: {done}", step)

    async def _drain(self) -> None:
        """No more faults. Whoever is still there works; time passes; all that was committed has to be finished."""
        world = self._world
        for storer in world.storers:
            if storer.transaction is not None:
                await self._end(storer, commit=True)
        if not world.instances:
            await self._join()
        for _ in range(_MOST_ROUNDS):
            for instance in list(world.instances):
                await world.exchange(instance, WorkReport(outcomes=complete_all(instance), limits=_EVERYTHING))
            if not world.instances:
                await self._join()
            parked = [stream for stream, row in world.ledger.tables.rows.items() if row.ready_at is None]
            for stream in parked:
                await world.db.execute("SELECT redrive_stream($1, $2, $3)", *stream, world.now)
            if parked:
                await world.observe("an operator redrives what is parked", Step(world.now, operated=set(parked)))
            if not world.ledger.tables.rows and len(world.instances) == len(world.ledger.tables.members):
                break
            world.pass_time(world.lease * 0.7)
        world.ledger.check_drained()
        await self._check_shares()

    async def _check_shares(self) -> None:
        """Once everybody has polled, every partition has one live owner, and shares differ by at most one."""
        world = self._world
        for _ in range(2):
            for instance in world.instances:
                await world.exchange(instance, WorkReport(limits=_EVERYTHING))
        owners = Counter([row[0] for row in await world.db.fetch("SELECT instance_id FROM wh_partitions")])
        shares = [owners.get(instance.instance_id, 0) for instance in world.instances]
        if sum(shares) != PARTITIONS or max(shares) - min(shares) > 1:
            raise Violation(f"the partitions are shared {shares} among the living, {owners.total()} in all: {owners}")

    def _messages(self, busy: set[UUID] | None = None) -> list[New]:
        """Some messages for streams that nobody else has in an open transaction."""
        taken = self._world.busy_streams() if busy is None else busy
        free = [stream for stream in self._world.streams if stream not in taken]
        return [new_message(self._rng, free, self._world.now) for _ in range(self._rng.choice((1, 1, 2, 3, 6)))]

    def _would_wait(self, report: WorkReport) -> bool:
        """Whether the report stores into a stream that somebody has in an open transaction."""
        return not self._world.busy_streams().isdisjoint(message.stream for message in report.new_inbox_messages)

    def _idle_storer(self) -> Storer | None:
        return next((storer for storer in self._world.storers if storer.transaction is None), None)


def _must_take(verb: str, letter: Report, version: int, row: Row | None) -> bool:
    """Whether the database has to take the report: the lease is the reporter's, and the version is in hand."""
    if row is None or (row.instance_id, row.lease_token) != (letter.instance_id, letter.token):
        return False
    if verb == "renew":
        return True
    if verb == "fail":
        return version == row.head_version + 1
    return row.head_version < version <= (row.leased_through or 0)


def _names(messages: list[New]) -> str:
    return " ".join(f"{message.stream[0][0]}{str(message.stream[1])[:4]}" for message in messages) or "nothing"
