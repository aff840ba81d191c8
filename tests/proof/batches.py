"""The whole of process_work_batch as one operation of a session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from tests.proof.interleaving import Effect, Operation
from tests.proof.operations import NAMES, claimed, freed, held_by, numbered, reported, stored
from tests.proof.world import ALICE, BOB, LEASE, STALE, Held, Known, World


def batch(
    who: UUID, *, completes: Sequence[int] = (1,), stores: Sequence[int] = (), renews: Sequence[int] = ()
) -> Operation:
    """The whole of process_work_batch: heartbeat, eviction, reports, store, partitions and claim in one call."""

    async def call(connection: asyncpg.Connection, world: World, known: Known) -> Sequence[Effect]:
        done = {s: held_by(world, known, who, s) for s in numbered(world, completes)}
        extended = {s: held_by(world, known, who, s) for s in numbered(world, renews)}
        new = [_element(stream) for stream in numbered(world, stores)]
        row = await connection.fetchrow(
            _BATCH,
            who,
            json.dumps([_outcome(run, i) for run in done.values() for i in run.message_ids]),
            json.dumps(new),
            json.dumps([_outcome(run, run.message_ids[0]) for run in extended.values()]),
            LEASE,
            STALE,
            world.now,
        )
        assert row is not None
        rejected = {UUID(element["message_id"]) for element in json.loads(row["rejected"])}
        effects = await _stored_now(connection, world, new)
        others = {ALICE, BOB} - {
            row[0] for row in await connection.fetch("SELECT instance_id FROM wh_service_instances")
        }
        effects += [freed(world, other) for other in others]
        for stream, run in done.items():
            effects += _finished(world, who, stream, run, rejected)
        for stream, run in extended.items():
            effects.append(reported(world, "renew", who, stream, run, None, run.message_ids[0] in rejected))
        for stream, run in _runs(json.loads(row["claimed_outbox_messages"])):
            known[who, stream] = run
            effects.append(claimed(world, who, stream, run))
        return effects

    parts = {"completes": completes, "stores": stores, "renews": renews}
    said = [f"{verb} {' '.join(f'S{number}' for number in streams)}" for verb, streams in parts.items() if streams]
    # An evicted instance is told so.
    return Operation(f"{NAMES[who]}'s batch {', '.join([*said, 'claims'])}", call, expects=("WH001",))


def _finished(world: World, who: UUID, stream: UUID, done: Held, rejected: set[UUID]) -> list[Effect]:
    """Reports on single messages: those accepted are one completion, and so are those refused."""
    versions = dict(zip(done.message_ids, done.versions, strict=True))
    accepted = [version for message_id, version in versions.items() if message_id not in rejected]
    refused = [version for message_id, version in versions.items() if message_id in rejected]
    effects = [reported(world, "complete", who, stream, done, max(accepted), False)] if accepted else []
    return effects + ([reported(world, "complete", who, stream, done, max(refused), True)] if refused else [])


async def _stored_now(connection: asyncpg.Connection, world: World, new: Sequence[dict[str, Any]]) -> list[Effect]:
    rows = await connection.fetch(
        "SELECT stream_id, version FROM wh_messages WHERE message_id = ANY ($1) ORDER BY version",
        [UUID(element["message_id"]) for element in new],
    )
    return [stored(world, row[0], row[1]) for row in rows]


def _runs(claimed: Sequence[dict[str, Any]]) -> list[tuple[UUID, Held]]:
    streams: dict[str, list[dict[str, Any]]] = {}
    for message in claimed:
        streams.setdefault(message["stream_id"], []).append(message)
    return [
        (
            UUID(s),
            Held(run[0]["lease_token"], tuple(m["version"] for m in run), tuple(UUID(m["message_id"]) for m in run)),
        )
        for s, run in streams.items()
    ]


def _outcome(run: Held, message_id: UUID) -> dict[str, Any]:
    return {"message_id": str(message_id), "status": 2, "lease_token": run.token}


def _element(stream: UUID) -> dict[str, Any]:
    return {"message_id": str(uuid4()), "stream_id": str(stream), "message_type": "Happened", "payload": {}}


_BATCH = """
SELECT * FROM process_work_batch(
  p_instance_id => $1, p_service_name => 'test', p_host_name => 'test', p_process_id => 1, p_outbox_completions => $2,
  p_new_outbox_messages => $3, p_renew_outbox_lease_ids => $4, p_lease_seconds => $5,
  p_stale_threshold_seconds => $6, p_as_of => $7)
"""
