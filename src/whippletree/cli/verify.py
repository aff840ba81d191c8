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

CHECKS = {
    "verify_streams": "messages and streams",
    "verify_finished": "finished messages",
    "verify_events": "events and receptors",
    "verify_perspectives": "perspectives",
    "verify_feed": "the feed",
    "verify_subscribers": "subscribers",
}


@click.command()
@takes(*ask.PLACE)
@as_json
def verify(as_json: bool, **arguments: str | None) -> int:
    """Prove, read-only, that versions are dense, order was kept and no work is lost. Exit code 1 when not."""
    found = asyncio.run(_verify(Settings.load(**arguments)))
    if as_json:
        console.show_json([dict(row) for row in found])
    elif found:
        lines = [(console.marked(row["promise"], "critical"), row["subject"], row["problem"]) for row in found]
        console.show(console.table(("promise broken", "subject", "problem"), lines, empty=""))
    else:
        console.show(console.marked("every promise is kept", "well"))
    return 1 if found else 0


async def _verify(settings: Settings) -> list[asyncpg.Record]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    from whippletree.store import database
    from whippletree.store.statements import call

    found: list[asyncpg.Record] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    async with database.connect(settings) as connection:
        with database.translated(), console.progress(*columns) as progress:
            bar = progress.add_task("", total=len(CHECKS))
            # One snapshot for all, so that traffic between two looks is not taken for a fault.
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                for check, subject in CHECKS.items():
                    progress.update(bar, description=f"looking at {subject}")
                    found += await connection.fetch(call(settings.schema, check, 0))
                    progress.advance(bar)
    return found
