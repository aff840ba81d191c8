"""Negative controls: the same schedules fail on a deliberate mutation of the protocol, and pass without it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import asyncpg
import pytest

from tests.proof import operations as op
from tests.proof.batches import batch
from tests.proof.conftest import Interleave
from tests.proof.interleaving import Counterexample, Operation, Script, transaction
from tests.proof.mutants import MUTANTS, Mutant, Patch, StalePatch
from tests.proof.states import (
    both_leased,
    clock_went_back,
    drained,
    empty,
    leased,
    leased_in_part,
    orphaned,
    second_not_due,
    taken_over,
    waiting,
)
from tests.proof.world import ALICE, BOB, State


@dataclass(frozen=True, slots=True)
class Harness:
    """The schedules that kill a mutant, and words of the counterexample that it dies of."""

    state: State
    scripts: tuple[Script, ...]
    verdict: str


def harness(state: State, *operations: Operation, verdict: str) -> Harness:
    """Each operation in a session of its own."""
    return Harness(state, tuple(transaction(operation) for operation in operations), verdict)


KILLS = {
    "complete without the token": harness(
        orphaned, op.claim(ALICE), op.complete(ALICE, first=True), verdict="the latest is"
    ),
    "complete without the instance": harness(leased, op.complete_for(BOB, ALICE), verdict="without a lease"),
    "fail without the token": harness(orphaned, op.claim(ALICE), op.fail(ALICE), verdict="the latest is"),
    "release without the token": harness(orphaned, op.claim(ALICE), op.release(ALICE), verdict="the latest is"),
    "renew without the token": harness(orphaned, op.claim(ALICE), op.renew(ALICE), verdict="the latest is"),
    "one token for all leases": harness(waiting, op.claim(ALICE), verdict="was given out after token"),
    "complete beyond the lease": harness(leased_in_part, op.complete(ALICE, through=3), verdict="does not hold"),
    "complete what is complete": harness(
        leased, op.complete(ALICE, first=True), op.complete(ALICE, first=True), verdict="does not hold"
    ),
    "fail what is not the head": harness(leased, op.fail(ALICE, second=True), verdict="before version 1 was settled"),
    "redrive what is leased": harness(leased, op.redrive(), verdict="but ready at"),
    "skip what is leased": harness(leased, op.skip(), verdict="was skipped while"),
    "order by created_at": harness(clock_went_back, op.claim(ALICE), verdict="got versions [2, 1]"),
    "versions from a sequence": harness(drained, op.store(1), verdict="cannot be reached"),
    "the next version by looking at the last": harness(drained, op.store(1), op.store(1), verdict="23505"),
    "the head does not move": harness(leased, op.complete(ALICE, first=True), verdict="gap: the head is 0"),
    "a failure keeps the run": harness(leased, op.fail(ALICE), verdict="but ready at"),
    "parked heads are skipped": harness(leased, op.park(ALICE), verdict="gap: the head is 1"),
    "a message that is not due holds nobody back": harness(
        second_not_due, op.claim(ALICE, gets=(1,)), verdict="got versions (1, 2, 3)"
    ),
    "a message that is not due is passed over": harness(
        second_not_due, op.claim(ALICE, gets=(1,)), verdict="got versions (1, 2, 3)"
    ),
    "a suspect does not go alone": harness(orphaned, op.claim(BOB, gets=(1,)), verdict="got versions (1, 2)"),
    "lease at store": harness(leased, op.claim(ALICE), verdict="could not be claimed"),
    "leases never expire": harness(orphaned, op.claim(ALICE), verdict="nobody can claim 2 messages"),
    "leases do not hold": harness(leased, op.claim(ALICE), verdict="got it while"),
    "an expired lease stays with the owner": harness(orphaned, op.claim(BOB, gets=(1,)), verdict="got versions ()"),
    "a renewal forgets the lease": harness(leased, op.renew(ALICE), verdict="but ready at"),
    "attempts are not counted at the claim": harness(leased, op.store(1), verdict="the attempt was not counted"),
    "a release deletes": harness(leased, op.release(ALICE), verdict="lost: pending to"),
    "eviction frees everybody's leases": harness(
        taken_over, op.remove_dead_instances(BOB), op.claim(ALICE), verdict="got it while"
    ),
    "eviction leaves the leases": Harness(
        leased,
        (transaction(op.remove_dead_instances(BOB), op.claim(BOB, gets=(1,))),),
        "got versions ()",
    ),
    "claims wait for each other": harness(orphaned, op.claim(ALICE), op.claim(BOB), verdict="waited for another"),
    "claims do not lock": harness(orphaned, op.claim(ALICE), op.claim(BOB), verdict="waited for another"),
    "a drained stream is removed at a glance": harness(leased, op.store(1), op.complete(ALICE), verdict="stranded"),
    "an empty stream is removed at a glance": harness(
        empty, op.store(1), op.claim(ALICE), verdict="waited for another"
    ),
    "storing does not keep the workers' row": harness(leased, op.store(1), op.complete(ALICE), verdict="stranded"),
    "storing shuts out those who work": harness(
        leased, op.store(1), replace(op.renew(ALICE), never_waits=True), verdict="waited for another"
    ),
    "storing waits for those who work": harness(
        leased, op.store(1, never_waits=True), op.renew(ALICE), verdict="waited for another"
    ),
    "storing only asks for the workers' row": harness(
        leased, op.store(1), op.complete(ALICE), verdict="could not be claimed"
    ),
    "storing one does not keep the workers' row": harness(leased, op.insert(), op.complete(ALICE), verdict="stranded"),
    "storing one only asks for the workers' row": harness(leased, op.insert(), op.complete(ALICE), verdict="stranded"),
    "streams locked as they come": harness(
        both_leased,
        op.renew(ALICE, 1),
        batch(ALICE, completes=[1], renews=[2]),
        batch(ALICE, completes=[2], renews=[1]),
        verdict="deadlock",
    ),
    "completions lock as they come": harness(
        both_leased, op.renew(ALICE, 1), op.complete(ALICE, 1, 2), op.complete(ALICE, 2, 1), verdict="deadlock"
    ),
    "renewals lock as they come": harness(
        both_leased, op.renew(ALICE, 1), op.renew(ALICE, 1, 2), op.renew(ALICE, 2, 1), verdict="deadlock"
    ),
    "streams numbered as they come": harness(drained, op.store(1), op.store(1, 2), op.store(2, 1), verdict="deadlock"),
    "report before storing": Harness(
        leased,
        (transaction(op.store(2), op.store(1)), transaction(batch(ALICE, completes=[1], stores=[2]))),
        "deadlock",
    ),
    "claim from anybody's partition": harness(waiting, op.claim(BOB, gets=()), verdict="got versions (1, 2)"),
    "a newcomer robs the owner": harness(waiting, op.own_partitions(BOB), verdict="from an active owner"),
    "a busy partition is handed over": harness(leased, op.own_partitions(ALICE), verdict="where it holds a lease"),
    "a duplicate is stored again": harness(drained, op.receive(), op.receive(), verdict="23505"),
    "a duplicate takes a version": harness(drained, op.receive(), op.receive(), verdict="written to 2"),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_a_mutation_of_the_protocol_is_caught(
    interleave: Interleave, db: asyncpg.Connection, mutant: Mutant
) -> None:
    kill = KILLS[mutant.name]
    assert await interleave(kill.state, *kill.scripts) > 0
    await mutant.install(db)
    with pytest.raises(Counterexample) as caught:
        await interleave(kill.state, *kill.scripts)
    assert kill.verdict in str(caught.value)


def test_every_harness_has_its_mutant() -> None:
    assert KILLS.keys() == {mutant.name for mutant in MUTANTS}


async def test_a_counterexample_reads_step_by_step(interleave: Interleave, db: asyncpg.Connection) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "storing does not keep the workers' row")
    await mutant.install(db)
    with pytest.raises(Counterexample) as caught:
        await interleave(leased, transaction(op.store(1)), transaction(op.complete(ALICE)))
    *steps, violation = str(caught.value).splitlines()
    assert steps == [
        "from leased:",
        "  session 1: store into S1",
        "  session 2: alice: complete S1",
        "  session 1: COMMIT",
        "  session 2: COMMIT",
    ]
    assert violation == "outbox S1: stranded: versions 3 to 3 wait without a workers' row"


def test_a_patch_that_no_longer_fits_is_not_passed_over() -> None:
    with pytest.raises(StalePatch, match="holds 0 times, not once"):
        Mutant("stale", (Patch("claim_messages", "no such text", ""),)).sources()
