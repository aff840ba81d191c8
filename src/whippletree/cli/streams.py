"""`whippletree streams`: one stream, as it stands."""

from __future__ import annotations

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.cli.why import tell
from whippletree.settings import Settings

_STATES = {"done": "well", "parked": "critical", "in hand": "", "waiting": ""}


@click.group()
def streams() -> None:
    """Look at a stream."""


@streams.command()
@click.argument("stream")
@click.option("--limit", default=20, show_default=True, help="How many events and messages, the newest first.")
@takes(*ask.PLACE)
@as_json
def show(stream: str, limit: int, as_json: bool, **arguments: str | None) -> None:
    """Show how STREAM, an id or a key, stands: its events, what waits, and why."""
    settings = Settings.load(**arguments)
    sentences = [row[0] for row in ask.rows(settings, "why", stream)]
    contents = ask.rows(settings, "stream_contents", ask.value(settings, "stream_id_of", stream), limit)
    if as_json:
        console.show_json({"why": sentences, "contents": [dict(row) for row in contents]})
        return
    for sentence in sentences:
        tell(sentence)
    rows = [
        (
            row["kind"],
            str(row["version"]),
            row["message_type"],
            console.spoken(row["age"]),
            console.marked(row["state"], _STATES.get(row["state"], "warning")),
            str(row["message_id"]),
        )
        for row in contents
    ]
    columns = ("kind", "version", "type", "age", "state", "id")
    console.show(console.table(columns, rows, empty="it holds neither events nor messages"))
