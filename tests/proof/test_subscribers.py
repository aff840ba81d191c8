"""A short run of `python -m tests.proof.subscribers`: real processes, real faults."""

from __future__ import annotations

import os

from tests.proof.subscribers import prove


def test_every_effect_happens_once_and_in_order_under_real_faults() -> None:
    report = prove(8, int(os.environ.get("WHIPPLETREE_SEED", "0")))
    assert set(report.faults) == {"SIGKILL", "SIGSTOP", "pg_terminate_backend", "server crash"}
    assert report.events > 0
