"""A short run of `python -m tests.proof.restart`."""

from __future__ import annotations

from tests.proof.restart import IN_VAIN, prove


def test_a_restart_of_the_database_costs_nobody_anything_but_time() -> None:
    report = prove(0)
    assert report.orders >= 60
    assert min(report.failed_calls) >= IN_VAIN
