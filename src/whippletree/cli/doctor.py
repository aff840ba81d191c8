"""`whippletree doctor`: what is wrong with the database beneath, and what to do about it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.settings import Settings

if TYPE_CHECKING:
    from whippletree.store.startup import Finding


@click.command()
@takes(*ask.PLACE)
@as_json
def doctor(as_json: bool, **arguments: str | None) -> int:
    """Examine settings, durability, pooler, clock, schema, roles, long transactions and bloat.

    Exit code 1 when a promise does not hold; a warning alone is 0.
    """
    found = asyncio.run(_examine(Settings.load(**arguments)))
    if as_json:
        console.show_json([dataclasses.asdict(finding) for finding in found])
    elif not found:
        console.show(console.marked("nothing is wrong", "well"))
    for finding in () if as_json else found:
        console.show(console.marked(f"{finding.severity}: {finding.subject}: {finding.problem}", finding.severity))
        console.show(console.marked(f"  {finding.remedy}"))
    return 1 if any(finding.severity != "warning" for finding in found) else 0


async def _examine(settings: Settings) -> Sequence[Finding]:
    from whippletree.store import database
    from whippletree.store.startup import Finding, Severity, examine
    from whippletree.store.statements import call

    async with database.serving(settings) as dsn:
        # The address that the services use, because a pooler in between is one of the things to be found.
        connection = await database.open_connection(dsn)
        try:
            found = list(await examine(connection, settings.schema))
            if not any(finding.severity is Severity.ERROR for finding in found):
                with database.translated():
                    rows = await connection.fetch(call(settings.schema, "ailments", 0))
                found += [Finding(severity=Severity.WARNING, subject=s, problem=p, remedy=r) for s, p, r in rows]
        finally:
            await connection.close()
    return found
