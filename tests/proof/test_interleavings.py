"""No interleaving of two or three sessions breaks order, loses, duplicates or deadlocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.proof import operations as op
from tests.proof.batches import batch
from tests.proof.conftest import Interleave
from tests.proof.interleaving import Operation, Script, transaction
from tests.proof.states import STATES, both_leased, drained, empty, failed, leased, leased_in_part, orphaned, waiting
from tests.proof.world import ALICE, BOB, State

# As alice does it; and as it happens meanwhile elsewhere: bob does it, or a second session of alice's.
HERS: dict[str, Callable[[], Operation]] = {
    "store": lambda: op.store(1),
    "claim": lambda: op.claim(ALICE),
    "complete": lambda: op.complete(ALICE),
    "fail": lambda: op.fail(ALICE),
    "release": lambda: op.release(ALICE),
    "renew": lambda: op.renew(ALICE),
    "own partitions": lambda: op.own_partitions(ALICE),
}
MEANWHILE: dict[str, Callable[[], Operation]] = HERS | {
    "claim": lambda: op.claim(BOB),
    "complete": lambda: op.complete(ALICE, first=True),
    "release": lambda: op.release(ALICE, last=True),
    "remove dead": lambda: op.remove_dead_instances(BOB),
    "own partitions": lambda: op.own_partitions(BOB),
}

TWO_IN_ONE: dict[str, tuple[State, Script, Script]] = {
    "complete and store, while another stores and completes": (
        leased_in_part,
        transaction(op.store(1), op.complete(ALICE, first=True)),
        transaction(op.store(1), op.complete(ALICE)),
    ),
    "store and claim, while another completes and claims": (
        leased,
        transaction(op.store(1), op.claim(BOB)),
        transaction(op.complete(ALICE), op.claim(ALICE)),
    ),
    "claim and complete, while another does": (
        orphaned,
        transaction(op.claim(ALICE), op.complete(ALICE)),
        transaction(op.claim(BOB), op.complete(BOB)),
    ),
    "remove the dead and claim, while they complete": (
        leased,
        transaction(op.remove_dead_instances(BOB), op.claim(BOB)),
        transaction(op.complete(ALICE, first=True), op.complete(ALICE)),
    ),
    "hand partitions over, while the other takes them and claims": (
        waiting,
        transaction(op.own_partitions(ALICE), op.claim(ALICE)),
        transaction(op.own_partitions(BOB), op.claim(BOB)),
    ),
    "store here and there, while a batch completes here and stores there": (
        leased,
        transaction(op.store(2), op.store(1)),
        transaction(batch(ALICE, completes=[1], stores=[2])),
    ),
    "store twice and roll back, while another stores": (
        empty,
        transaction(op.store(1), op.store(1), end="ROLLBACK"),
        transaction(op.store(1), op.claim(ALICE)),
    ),
}

THREE: dict[str, tuple[State, tuple[Operation, Operation, Operation]]] = {
    "two streams drained under a storer": (both_leased, (op.store(1, 2), op.complete(ALICE, 1), op.complete(ALICE, 2))),
    "storers in both orders": (drained, (op.store(1), op.store(1, 2), op.store(2, 1))),
    "renewals in both orders": (both_leased, (op.renew(ALICE, 1), op.renew(ALICE, 1, 2), op.renew(ALICE, 2, 1))),
    "batches in both orders": (
        both_leased,
        (
            op.renew(ALICE, 1),
            batch(ALICE, completes=[1], renews=[2]),
            batch(ALICE, completes=[2], renews=[1]),
        ),
    ),
    "store, complete and claim": (leased, (op.store(1), op.complete(ALICE), op.claim(BOB))),
    "store, complete and claim an empty stream": (empty, (op.store(1), op.complete(ALICE), op.claim(ALICE))),
    "an orphan is claimed while its late holder completes": (
        orphaned,
        (op.claim(ALICE), op.claim(BOB), op.complete(ALICE)),
    ),
    "a holder leaves, reports and is succeeded": (leased, (op.leave(ALICE), op.claim(BOB), op.complete(ALICE))),
    "whole batches and a storer": (
        leased,
        (batch(ALICE, stores=[1]), batch(BOB, stores=[1]), op.store(1)),
    ),
}

BESIDE: dict[str, tuple[Operation, tuple[State, ...]]] = {
    "insert": (op.insert(), (leased, drained, empty)),
    "store elsewhere": (op.store(2), (leased, drained)),
    "leave": (op.leave(ALICE), (leased, orphaned)),
    "redrive": (op.redrive(), (leased, failed)),
    "skip": (op.skip(), (leased, orphaned, failed)),
    "park": (op.park(ALICE), (leased,)),
    # Alice sees bob as dead once his heartbeat is as old as the orphan's lease.
    "remove dead": (op.remove_dead_instances(ALICE), (orphaned,)),
    "batch": (batch(ALICE, stores=[1]), (leased, orphaned)),
}


@pytest.mark.parametrize("first", HERS)
@pytest.mark.parametrize("state", STATES)
async def test_any_two_operations_interleave(interleave: Interleave, state: State, first: str) -> None:
    count = 0
    for second in MEANWHILE.values():
        count += await interleave(state, transaction(HERS[first]()), transaction(second()))
    assert count == 6 * len(MEANWHILE)


@pytest.mark.parametrize("first", HERS)
@pytest.mark.parametrize("state", [leased, empty])
async def test_what_is_rolled_back_leaves_no_trace(interleave: Interleave, state: State, first: str) -> None:
    for second in ("store", "claim", "complete", "fail"):
        await interleave(state, transaction(HERS[first](), end="ROLLBACK"), transaction(MEANWHILE[second]()))


@pytest.mark.parametrize("work", [op.claim(ALICE), op.complete(ALICE, first=True), op.fail(ALICE), op.renew(ALICE)])
async def test_those_who_write_and_those_who_work_do_not_wait_for_each_other(
    interleave: Interleave, work: Operation
) -> None:
    working = replace(work, never_waits=True)
    for state in (waiting, leased, leased_in_part, orphaned):
        await interleave(state, transaction(op.store(1, never_waits=True)), transaction(working))


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_a_message_received_twice_is_stored_once(interleave: Interleave, end: str) -> None:
    assert await interleave(drained, transaction(op.receive(), end=end), transaction(op.receive())) == 6


@pytest.mark.parametrize("beside", BESIDE)
async def test_plain_inserts_operators_and_whole_batches_interleave(interleave: Interleave, beside: str) -> None:
    operation, states = BESIDE[beside]
    for state in states:
        for second in MEANWHILE.values():
            await interleave(state, transaction(operation), transaction(second()))


@pytest.mark.parametrize("case", TWO_IN_ONE)
async def test_transactions_of_two_operations_interleave(interleave: Interleave, case: str) -> None:
    state, first, second = TWO_IN_ONE[case]
    assert await interleave(state, first, second) >= 10


@pytest.mark.parametrize("case", THREE)
async def test_three_sessions_interleave(interleave: Interleave, case: str) -> None:
    state, three = THREE[case]
    assert await interleave(state, *map(transaction, three)) == 90
