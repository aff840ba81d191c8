"""The states from which sessions start. In each alice knows a run of the first stream, in force still or no more."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tests.proof.world import ALICE, BOB, World, claim, report, store
from tests.scenario import T0, seconds


async def waiting(world: World) -> None:
    """Two messages wait. Alice held them once and gave them back."""
    await leased(world)
    await _reports(world, "release", None)


async def leased(world: World) -> None:
    """Alice holds the stream's two messages."""
    await _stored(world, world.streams[:1] * 2)
    await _claimed(world, 100)


async def leased_in_part(world: World) -> None:
    """Alice holds the first two of three messages."""
    await _stored(world, world.streams[:1] * 3)
    await _claimed(world, 2)


async def orphaned(world: World) -> None:
    """Alice's lease on two messages ran out."""
    await leased(world)
    world.now = T0 + seconds(40)


async def failed(world: World) -> None:
    """The first of two messages failed and waits for its retry."""
    await leased(world)
    world.now = T0 + seconds(8)
    await _reports(world, "fail", 1)


async def drained(world: World) -> None:
    """The stream's only message is finished."""
    await _stored(world, world.streams[:1])
    await _claimed(world, 100)
    await _reports(world, "complete", 1)


async def empty(world: World) -> None:
    """The stream is drained, but its workers' row is there: somebody stored into it and rolled back."""
    await drained(world)
    await world.db.execute("SELECT activate_streams('outbox', $1, '{1}', $2, $3)", world.streams[:1], [T0], T0)


async def both_leased(world: World) -> None:
    """Alice holds the only message of each of two streams."""
    await _stored(world, world.streams)
    await _claimed(world, 100)


async def taken_over(world: World) -> None:
    """Alice's lease ran out, and bob holds the first of her two messages."""
    await orphaned(world)
    await _claimed(world, 100, BOB)


async def clock_went_back(world: World) -> None:
    """The second message bears an earlier time than the first."""
    world.now = T0 + seconds(5)
    await _stored(world, world.streams[:1])
    world.now = T0
    await _stored(world, world.streams[:1])


async def second_not_due(world: World) -> None:
    """The second of three messages is scheduled for later."""
    await _stored(world, world.streams[:1] * 3)
    later = T0 + seconds(3600)
    await world.db.execute("UPDATE wh_messages SET scheduled_for = $1 WHERE version = 2", later)


async def _stored(world: World, streams: Sequence[UUID]) -> None:
    for stream, version in zip(streams, await store(world.db, streams, world.now), strict=True):
        world.history.stored(stream, [version])


async def _claimed(world: World, run_limit: int, who: UUID = ALICE) -> None:
    got = await claim(world.db, world, who, run_limit=run_limit)
    assert got, "what was stored could not be claimed"
    world.known |= {(who, stream): held for stream, held in got}


async def _reports(world: World, verb: str, version: int | None) -> None:
    stream = world.streams[0]
    held = world.known[ALICE, stream]
    refused = await report(world.db, verb, ALICE, {stream: held}, [version], world.now)
    assert not refused, f"alice was not let {verb}"
    match verb:
        case "complete":
            world.history.completed(ALICE, stream, held.token, held.versions[-1])
        case "fail":
            world.history.failed(ALICE, stream, held.token)
        case _:
            world.history.released(ALICE, stream, held.token)


STATES = (waiting, leased, leased_in_part, orphaned, failed, drained, empty)
