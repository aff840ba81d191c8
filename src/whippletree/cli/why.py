"""`whippletree why`: what keeps a message, a stream, an event or a perspective, in sentences."""

from __future__ import annotations

import click

from whippletree.cli import console
from whippletree.cli.config import as_json, takes
from whippletree.settings import Settings


@click.command()
@click.argument("thing")
@takes("dsn", "direct_dsn", "schema", "data_directory")
@as_json
def why(thing: str, as_json: bool, **arguments: str | None) -> None:
    """Say why THING does not move.

    THING is the id of a message, an event or a stream, the key of a stream, the name of a perspective or a receptor, or
    outbox or inbox.
    """
    import asyncio

    sentences = asyncio.run(_ask(Settings.load(**arguments), thing))
    if as_json:
        console.show_json(sentences)
        return
    for sentence in sentences:
        click.echo(sentence)


async def _ask(settings: Settings, thing: str) -> list[str]:
    from whippletree.store import database
    from whippletree.store.statements import call

    async with database.connect(settings) as connection:
        with database.translated():
            rows = await connection.fetch(call(settings.schema, "why", 1), thing)
    return [row[0] for row in rows]
