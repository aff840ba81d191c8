from __future__ import annotations

from pathlib import Path

import asyncpg

from tests.proof.outage import prove
from tests.transports.bus import RECEIVER
from whippletree.store.schema import migrate
from whippletree.work.outage import BackOff


async def test_an_outage_much_longer_than_any_pause_costs_nothing(
    pool: asyncpg.Pool[asyncpg.Record], db: asyncpg.Connection, tmp_path: Path
) -> None:
    await migrate(db, RECEIVER)
    # A minute of the usual pauses, twenty times as fast.
    back_off = BackOff(first_pause=0.01, longest_pause=0.25)
    report = await prove(pool, db, tmp_path, seconds=3, back_off=back_off)
    assert report.probes >= 5
