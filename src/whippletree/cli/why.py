"""`whippletree why`: what keeps a message, a stream, an event or a perspective, in sentences."""

from __future__ import annotations

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.settings import Settings


@click.command()
@click.argument("thing")
@takes(*ask.PLACE)
@as_json
def why(thing: str, as_json: bool, **arguments: str | None) -> None:
    """Say why THING does not move.

    THING is the id of a message, an event or a stream, the key of a stream, the name of a perspective or a receptor, or
    outbox or inbox.
    """
    sentences = [row[0] for row in ask.rows(Settings.load(**arguments), "why", thing)]
    if as_json:
        console.show_json(sentences)
        return
    for sentence in sentences:
        click.echo(sentence)
