"""Steps real sessions through an order of their steps, as PostgreSQL's own isolation tester does.

A session is a transaction: its operations, then COMMIT or ROLLBACK. BEGIN takes no snapshot and no lock, so it goes
with the first operation. A step that waits for a lock is left pending, the others go on, and it is picked up when it
ends, as PostgreSQL decides.
After every step the committed state is checked; at the end everything is drained, once and in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import asyncpg

from tests.proof.invariants import check
from tests.proof.world import Known, World

_PATIENCE = 2000
"""How often a step is looked at before it counts as stuck; each look waits for a few milliseconds at most."""

Effect = Callable[[], None]
Call = Callable[[asyncpg.Connection, World, Known], Awaitable[Sequence[Effect]]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a session. Its effects are told to the history when the session commits."""

    name: str
    call: Call
    never_waits: bool = False
    expects: tuple[str, ...] = ()
    """SQL states that are a proper answer; they end the session."""


@dataclass(frozen=True, slots=True)
class Script:
    """What one session does in its transaction."""

    operations: tuple[Operation, ...]
    end: str = "COMMIT"

    @property
    def steps(self) -> int:
        return len(self.operations) + 1


def transaction(*operations: Operation, end: str = "COMMIT") -> Script:
    return Script(operations, end)


class Counterexample(AssertionError):
    """A schedule that breaks the protocol, one line per step."""


def schedules(scripts: Sequence[Script]) -> Iterator[tuple[int, ...]]:
    """Every order of the sessions' steps: 6 for two sessions of two steps, 90 for three."""
    yield from _orders([script.steps for script in scripts])


async def explore(
    world: World, connections: Sequence[asyncpg.Connection], scripts: Sequence[Script], title: str
) -> int:
    """Run every schedule from the world's starting state; say how many. The first bad one is a `Counterexample`."""
    count = 0
    for schedule in schedules(scripts):
        count += 1
        try:
            await world.begin()
        except AssertionError as error:
            raise Counterexample(f"{title} this state cannot be reached: {error}") from error
        run = _Run(
            world, [_Session(i, s, c) for i, (s, c) in enumerate(zip(scripts, connections, strict=False))], title
        )
        await run.follow(schedule)
    return count


@dataclass(slots=True)
class _Session:
    number: int
    script: Script
    connection: asyncpg.Connection
    next_step: int = 0
    pending: asyncio.Task[str] | None = None
    effects: list[Effect] = field(default_factory=list)
    known: Known = field(default_factory=dict)
    failed: bool = False

    @property
    def pid(self) -> int:
        return self.connection.get_server_pid()

    @property
    def step_name(self) -> str:
        done = self.next_step >= len(self.script.operations)
        return self.script.end if done else self.script.operations[self.next_step].name


class _Run:
    """One schedule, followed to its end."""

    def __init__(self, world: World, sessions: Sequence[_Session], title: str) -> None:
        self.world = world
        self.sessions = sessions
        self.lines = [title]

    async def follow(self, schedule: Sequence[int]) -> None:
        try:
            # A session that waits cannot take its turn; it takes it as soon as it can.
            waiting = list(schedule)
            while waiting:
                free = next((n for n in waiting if self.sessions[n].pending is None), None)
                if free is None:
                    raise self.counterexample("deadlock: every session waits for another")
                waiting.remove(free)
                await self.step(self.sessions[free])
            for session in self.sessions:
                if session.pending is not None:
                    raise self.counterexample(f"session {session.number + 1} waits for ever")
            await self.verify(await self.world.drain())
        finally:
            await self.clean_up()

    async def step(self, session: _Session) -> None:
        self.lines.append(f"  session {session.number + 1}: {session.step_name}")
        place = len(self.lines) - 1
        session.pending = asyncio.create_task(self.perform(session), name=session.step_name)
        if not await self.ended(session):
            self.lines[place] += " … waits"
            operation = session.script.operations[min(session.next_step, len(session.script.operations) - 1)]
            if operation.never_waits:
                raise self.counterexample(f"{operation.name} waited for another session")
        while await self.one_goes_on(session):
            pass
        await self.verify([])

    async def one_goes_on(self, but: _Session) -> bool:
        """Pick up a session that waited and has come to the end of its step. That may let another one go on."""
        for session in self.sessions:
            if session is not but and session.pending is not None and await self.ended(session):
                self.lines.append(f"  session {session.number + 1}: … goes on")
                return True
        return False

    async def perform(self, session: _Session) -> str:
        if session.next_step == len(session.script.operations):
            await session.connection.execute("ROLLBACK" if session.failed else session.script.end)
            return "ended"
        if session.failed:
            return "skipped"
        if session.next_step == 0:
            await session.connection.execute("BEGIN")
        operation = session.script.operations[session.next_step]
        try:
            session.effects += await operation.call(session.connection, self.world, session.known)
        except asyncpg.PostgresError as error:
            if error.sqlstate not in operation.expects:
                raise
            session.failed = True
        return "done"

    async def ended(self, session: _Session) -> bool:
        """Wait until the session's step has ended, or is seen waiting for the lock of another of our sessions."""
        assert session.pending is not None
        ours = [other.pid for other in self.sessions]
        for _ in range(_PATIENCE):
            done, _pending = await asyncio.wait({session.pending}, timeout=0.005)
            if done:
                self.settle(session)
                return True
            if await self.world.db.fetchval("SELECT pg_blocking_pids($1) && $2::int[]", session.pid, ours):
                return False
        raise self.counterexample(f"{session.step_name} neither ends nor waits for a lock")

    def settle(self, session: _Session) -> None:
        task, session.pending = session.pending, None
        assert task is not None
        error = task.exception()
        if isinstance(error, asyncpg.PostgresError):
            raise self.counterexample(f"{session.step_name}: {error.sqlstate} {error}") from error
        if isinstance(error, AssertionError):
            raise self.counterexample(str(error)) from error
        if error is not None:
            raise error
        if task.result() == "ended" and not session.failed and session.script.end == "COMMIT":
            for effect in session.effects:
                effect()
            self.world.known.update(session.known)
        session.next_step += 1

    async def verify(self, more: Sequence[str]) -> None:
        violations = [*await check(self.world.db), *self.world.history.violations, *more]
        if violations:
            raise self.counterexample("\n".join(violations))

    def counterexample(self, reason: str) -> Counterexample:
        for unreadable, name in self.world.names.items():
            reason = reason.replace(str(unreadable), name)
        return Counterexample("\n".join([*self.lines, reason]))

    async def clean_up(self) -> None:
        """After a counterexample a session may still be waiting: end what it does, so that the database is free."""
        for session in self.sessions:
            if session.pending is not None:
                session.pending.cancel()
                await asyncio.wait({session.pending})
            if session.connection.is_in_transaction():
                await session.connection.execute("ROLLBACK")


def _orders(left: list[int]) -> Iterator[tuple[int, ...]]:
    if not any(left):
        yield ()
        return
    for number, steps in enumerate(left):
        if steps:
            rest = [*left[:number], steps - 1, *left[number + 1 :]]
            for order in _orders(rest):
                yield (number, *order)
