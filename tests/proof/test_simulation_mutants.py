"""Negative controls of the simulation: on a mutated protocol it fails within a few schedules, and says how."""

from __future__ import annotations

import asyncpg
import pytest

from tests.proof.mutants import MUTANTS
from tests.proof.simulation import ScheduleFailed, simulate
from whippletree.settings import Dsn

_SCHEDULES = 100

DIES_OF = {
    "complete without the token": "finished by nobody who held it",
    "release without the token": "was taken for",
    "renew without the token": "was taken for",
    "skip what is leased": "while it is leased",
    "order by created_at": "leased range",
    "lease at store": "leased to an instance that did not claim",
    "leases do not hold": "by a step that had no right to it",
    "eviction frees everybody's leases": "by a step that had no right to it",
    "storing does not keep the workers' row": "stranded",
}


@pytest.mark.parametrize("name", DIES_OF)
async def test_the_simulation_catches_a_mutation_of_the_protocol(dsn: Dsn, db: asyncpg.Connection, name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    await mutant.install(db)
    with pytest.raises(ScheduleFailed) as caught:
        await simulate(dsn, range(_SCHEDULES))
    first, *_, last = str(caught.value).splitlines()
    assert first.startswith("seed ")
    assert DIES_OF[name] in last
