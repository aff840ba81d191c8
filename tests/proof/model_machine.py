"""Hypothesis drives the database and the model side by side, and looks for a step after which they differ."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

import asyncpg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.proof.model import NEVER, Claim, Coordinator, StreamName, Visible, Waiting

T0 = datetime(2040, 1, 1, tzinfo=UTC)
INSTANCES = (UUID(int=0xA11CE), UUID(int=0xB0B))
STREAMS = tuple(UUID(int=0x5EED0000 + number) for number in range(3))
PARTITIONS = 4

queues = st.sampled_from(("outbox", "inbox"))
instances = st.sampled_from(INSTANCES)
places = st.integers(0, 11)
versions = st.sampled_from((1, 1, 1, 2, 3, 0))
"""Counted from the head."""

_STORE = {queue: f"SELECT store_{queue}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)" for queue in ("outbox", "inbox")}
_VISIBLE = """
  SELECT '{0}', message_id, version, status, attempts, error, instance_id, lease_expiry, scheduled_for, parked
  FROM wh_{0}"""
_ROWS = """
  SELECT queue, stream_id, head_version, NULLIF(ready_at, 'infinity'), lease_token, leased_through,
    partition_of(stream_hash, (SELECT partition_count FROM wh_settings))
  FROM wh_active_streams
  UNION ALL SELECT NULL, message_id, NULL, NULL, NULL, NULL, NULL FROM wh_dead_letters"""
_EMPTY = """
  DELETE FROM wh_messages; DELETE FROM wh_active_streams; DELETE FROM wh_streams;
  DELETE FROM wh_dead_letters; DELETE FROM wh_message_deduplication"""


class CoordinatorMachine(RuleBasedStateMachine):
    """Two instances, three streams and any number of messages without one, in two queues."""

    runner: ClassVar[asyncio.Runner]
    db: ClassVar[asyncpg.Connection]
    max_attempts: ClassVar[int] = 3
    lease_seconds: ClassVar[float] = 30.0
    partitions: ClassVar[dict[UUID, int]] = {}
    """Of the streams met so far, as the database hashes them."""

    def __init__(self) -> None:
        super().__init__()
        owners: list[UUID | None] = [INSTANCES[partition % 2] for partition in range(PARTITIONS)]
        self.model = Coordinator(self.lease_seconds, self.max_attempts, T0, owners)
        self.leases: list[tuple[UUID, StreamName, int]] = []
        """Every lease that was ever handed out: holder, stream, token."""
        self.stored = 0
        self._run(self.db.execute(_EMPTY))
        self._own_partitions()

    @rule(
        queue=queues,
        streams=st.lists(st.sampled_from((*STREAMS, None)), min_size=1, max_size=5),
        later=st.sampled_from((None, None, None, 5, 40)),
    )
    def store(self, queue: str, streams: list[UUID | None], later: int | None) -> None:
        ids = [self._new_id() for _ in streams]
        due = [None] * (len(ids) - 1) + [None if later is None else self.model.now + timedelta(seconds=later)]
        nothing = [None] * len(ids)
        texts = [["Happened"] * len(ids), ["topic"] * len(ids), ["{}"] * len(ids)]
        answer = self._value(
            _STORE[queue], streams, nothing, ids, *texts, nothing, nothing, nothing, due, self.model.now
        )
        expected = [
            self.model.store((queue, stream or id_), Waiting(id_, when, stream is None), self._partition(stream or id_))
            for stream, id_, when in zip(streams, ids, due, strict=True)
        ]
        assert answer == (expected if queue == "outbox" else ["stored"] * len(ids))

    @rule(
        instance=instances,
        queue=queues,
        limit=st.sampled_from((1, 2, 3, 20)),
        run_limit=st.sampled_from((1, 2, 100)),
    )
    def claim(self, instance: UUID, queue: str, limit: int, run_limit: int) -> None:
        rows = self._run(
            self.db.fetch(
                "SELECT stream_id, version, lease_token FROM"
                " claim_messages($1, $2, $3, $4, $5, 1000000, $6, '-infinity', $7)",
                *(instance, queue, limit, self.lease_seconds, run_limit, self.max_attempts, self.model.now),
            )
        )
        token = max([row["lease_token"] for row in rows], default=0)
        assert {row["lease_token"] for row in rows} <= {token}
        assert token == 0 or all(token > older for _, _, older in self.leases)
        claimed: dict[UUID, list[int]] = {}
        for row in rows:
            claimed.setdefault(row["stream_id"], []).append(row["version"])
        self._follow(Claim(instance, queue, limit, run_limit), token, claimed)
        self.leases += [(instance, (queue, stream_id), token) for stream_id in claimed]

    def _follow(self, claim: Claim, token: int, claimed: dict[UUID, list[int]]) -> None:
        """Go on with the possible world that the database chose."""
        shown = self._visible()
        plans = []
        for plan in self.model.plans(claim):
            if plan in plans:
                continue
            plans.append(plan)
            if {name[1]: run for name, run in plan.items() if run} == claimed:
                world = self.model.copy()
                world.claim(plan, claim, token)
                if world.visible() == shown:
                    self.model = world
                    return
        raise AssertionError(f"claimed {claimed}; the model allows {plans[:20]}; the views show {shown}")

    @precondition(lambda self: self.leases)
    @rule(place=places, by=st.sampled_from((None, None, None, *INSTANCES)), version=versions)
    def complete(self, place: int, by: UUID | None, version: int) -> None:
        holder, name, token = self._lease(place, by)
        through = self._head(name) + version
        refused = self._value(
            "SELECT complete_messages($1, $2, $3, $4, $5, false, $6)",
            *(holder, [name[0]], [name[1]], [token], [through], self.model.now),
        )
        assert (refused == []) == self.model.complete(name, holder, token, through)

    @precondition(lambda self: self.leases)
    @rule(
        place=places,
        by=st.sampled_from((None, None, None, *INSTANCES)),
        version=versions,
        seconds=st.sampled_from((0.0, 1.0, 60.0)),
        verdict=st.sampled_from(("retry", "retry", "park", "postpone")),
    )
    def fail(self, place: int, by: UUID | None, version: int, seconds: float, verdict: str) -> None:
        holder, name, token = self._lease(place, by)
        failed = self._head(name) + version
        refused = self._value(
            "SELECT fail_messages($1, $2, $3, $4, $5, '{boom}', $6, $7, $8, $9)",
            *(holder, [name[0]], [name[1]], [token], [failed], [seconds], [verdict], self.max_attempts, self.model.now),
        )
        assert (refused == []) == self.model.fail(name, holder, token, failed, seconds, verdict)

    @precondition(lambda self: self.leases)
    @rule(place=places, by=st.sampled_from((None, None, None, *INSTANCES)), version=versions)
    def release(self, place: int, by: UUID | None, version: int) -> None:
        holder, name, token = self._lease(place, by)
        given_back = self._head(name) + version
        refused = self._value(
            "SELECT release_messages($1, $2, $3, $4, $5, $6)",
            *(holder, [name[0]], [name[1]], [token], [given_back], self.model.now),
        )
        assert (refused == []) == self.model.release(name, holder, token, given_back)

    @precondition(lambda self: self.leases)
    @rule(place=places, by=st.sampled_from((None, None, None, *INSTANCES)))
    def renew(self, place: int, by: UUID | None) -> None:
        holder, name, token = self._lease(place, by)
        refused = self._value(
            "SELECT renew_leases($1, $2, $3, $4, $5, $6)",
            *(holder, [name[0]], [name[1]], [token], self.lease_seconds, self.model.now),
        )
        assert (refused == []) == self.model.renew(name, holder, token)

    @precondition(lambda self: self.model.written)
    @rule(place=places)
    def redrive(self, place: int) -> None:
        name = self._name(place)
        assert self._value("SELECT redrive_stream($1, $2, $3)", *name, self.model.now) == self.model.redrive(name)

    @precondition(lambda self: self.model.written)
    @rule(place=places, version=versions)
    def skip(self, place: int, version: int) -> None:
        name = self._name(place)
        skipped = self._head(name) + version
        done = self._value("SELECT skip_message($1, $2, $3, 'poison', $4)", *name, skipped, self.model.now)
        assert done == self.model.skip(name, skipped)

    @rule(seconds=st.sampled_from((0.1, 1.0, 6.0, 31.0, 31.0, -2.0)))
    def pass_time(self, seconds: float) -> None:
        self.model.now += timedelta(seconds=seconds)

    @rule(instance=instances)
    def evict(self, instance: UUID) -> None:
        self._run(self.db.execute("SELECT free_instances($1, $2)", [instance], self.model.now))
        self.model.free(instance)

    @precondition(lambda self: None in self.model.owners)
    @rule()
    def come_back(self) -> None:
        self.model.owners = [INSTANCES[partition % 2] for partition in range(PARTITIONS)]
        self._own_partitions()

    @invariant()
    def the_tables_say_what_the_model_says(self) -> None:
        """The views message by message, the workers' rows, and the dead letters."""
        assert self._visible() == self.model.visible()
        rows = self._run(self.db.fetch(_ROWS))
        assert {(row[0], row[1]): tuple(row[2:]) for row in rows if row[0] is not None} == {
            name: (
                stream.head,
                None if stream.ready_at == NEVER else stream.ready_at,
                None if stream.lease is None else stream.lease.token,
                None if stream.lease is None else stream.lease.through,
                stream.partition,
            )
            for name, stream in self.model.streams.items()
        }
        assert sorted(row[1] for row in rows if row[0] is None) == sorted(self.model.dead)

    def _visible(self) -> dict[tuple[str, UUID], Visible]:
        query = " UNION ALL ".join(_VISIBLE.format(queue) for queue in ("outbox", "inbox"))
        return {(row[0], row[1]): Visible(*row[2:]) for row in self._run(self.db.fetch(query))}

    def _lease(self, place: int, by: UUID | None) -> tuple[UUID, StreamName, int]:
        """One of the latest leases, perhaps in another's name."""
        holder, name, token = self.leases[-1 - place % len(self.leases)]
        return by or holder, name, token

    def _name(self, place: int) -> StreamName:
        names = list(self.model.streams) or list(self.model.written)
        return names[place % len(names)]

    def _head(self, name: StreamName) -> int:
        stream = self.model.streams.get(name)
        return self.model.written[name] if stream is None else stream.head

    def _new_id(self) -> UUID:
        self.stored += 1
        return UUID(int=0xFACE0000 + self.stored)

    def _partition(self, stream_id: UUID) -> int:
        if stream_id not in self.partitions:
            self.partitions[stream_id] = self._value("SELECT partition_of(stream_hash($1), $2)", stream_id, PARTITIONS)
        return self.partitions[stream_id]

    def _own_partitions(self) -> None:
        self._run(
            self.db.execute(
                "UPDATE wh_partitions SET instance_id = ($1::uuid[])[partition_number % 2 + 1]", list(INSTANCES)
            )
        )

    def _value(self, query: str, *arguments: Any) -> Any:
        return self._run(self.db.fetchval(query, *arguments))

    def _run(self, call: Any) -> Any:
        return self.runner.run(call)
