"""`whippletree verify`: the promises, proved on the live database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.settings import Settings

if TYPE_CHECKING:
    import asyncpg

CHECKS = ("verify_streams", "verify_events")


@click.command()
@takes(*ask.PLACE)
@as_json
def verify(as_json: bool, **arguments: str | None) -> int:
    """Prove, read-only, that versions are dense, order was kept and no work is lost. Exit code 1 when not."""
    found = asyncio.run(_verify(Settings.load(**arguments)))
    if as_json:
        console.show_json([dict(row) for row in found])
    else:
        lines = [(row["promise"], row["subject"], row["problem"]) for row in found]
        console.show(console.table(("promise", "subject", "problem"), lines, empty="every promise is kept"))
    return 1 if found else 0


async def _verify(settings: Settings) -> list[asyncpg.Record]:
    from whippletree.store import database
    from whippletree.store.statements import call

    async with database.connect(settings) as connection:
        with database.translated():
            # One snapshot for all, so that traffic between two looks is not taken for a fault.
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return [row for check in CHECKS for row in await connection.fetch(call(settings.schema, check, 0))]
