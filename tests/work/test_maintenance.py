"""What an instance tidies up by itself."""

from __future__ import annotations

from datetime import timedelta

import asyncpg

from tests.waiting import until
from tests.work.shop import Reserve, drained, new_app, running
from whippletree.settings import Dsn

_KNOWN = "SELECT count(*) FROM wh_message_deduplication"


async def test_a_running_instance_forgets_ids_that_are_older_than_the_retention(
    dsn: Dsn, db: asyncpg.Connection
) -> None:
    app = new_app(dsn)

    @app.receptor
    async def reserve(command: Reserve) -> None: ...

    async with running(app, maintenance_interval=0.05):
        await app.publish_all([Reserve(f"order-{n}") for n in range(3)])
        await drained(db)
        assert await db.fetchval(_KNOWN) == 3
        await db.execute("SELECT change_deduplication_retention($1)", timedelta(hours=1))
        await db.execute("UPDATE wh_message_deduplication SET first_seen_at = first_seen_at - interval '2 hours'")
        await until(lambda: db.fetchval("SELECT NOT EXISTS (SELECT FROM wh_message_deduplication)"))
