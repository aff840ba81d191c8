"""The coordinator does what its model says, call by call."""

from __future__ import annotations

import asyncio
import os

import asyncpg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.proof.model_machine import PARTITIONS, CoordinatorMachine
from whippletree.settings import Dsn

_EXAMPLES = int(os.environ.get("WHIPPLETREE_EXAMPLES", "0"))
"""More examples than the tests take, and other ones each time."""

SETTINGS = settings(
    max_examples=_EXAMPLES or 25,
    stateful_step_count=40,
    derandomize=not _EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


@pytest.mark.parametrize("part", range(4))
def test_the_coordinator_and_its_model_agree(dsn: Dsn, part: int) -> None:
    with asyncio.Runner() as runner:
        db = runner.run(asyncpg.connect(dsn.reveal(), server_settings={"search_path": "whippletree"}))
        runner.run(db.execute(f"SELECT change_partition_count({PARTITIONS})"))
        # The name decides which examples are tried, so that the parts try different ones.
        terms = {"runner": runner, "db": db, "max_attempts": 2 + part % 2, "lease_seconds": 30.0 / (1 + part % 3)}
        machine = type(f"CoordinatorMachine{part}", (CoordinatorMachine,), terms)
        try:
            run_state_machine_as_test(machine, settings=SETTINGS)
        finally:
            runner.run(db.close())
