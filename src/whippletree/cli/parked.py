"""What has stopped, and how it goes on: parked, redrive, skip, dead-letters. Nothing here can break order."""

from __future__ import annotations

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.errors import UnknownName, UsageError
from whippletree.settings import Settings

_QUEUE = click.option("--queue", help="outbox, inbox, perspective/NAME or receptor/NAME.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command()
@takes(*ask.PLACE)
@_QUEUE
@click.option("--retrying", is_flag=True, help="Also what waits for its next attempt.")
@click.option("--limit", default=100, show_default=True)
@as_json
def parked(queue: str | None, retrying: bool, limit: int, as_json: bool, **arguments: str | None) -> None:
    """List the streams that stopped at a message, with its error."""
    settings = Settings.load(**arguments)
    found = ask.rows(settings, "stopped_streams", queue, retrying, limit)
    if as_json:
        console.show_json([dict(row) for row in found])
        return
    lines = [
        (
            row["queue"],
            row["stream_name"],
            str(row["version"]),
            row["message_type"] or "-",
            str(row["attempts"]),
            console.spoken(row["stopped"]),
            console.marked(console.first_line(row["error"]), "critical" if row["parked"] else "warning"),
        )
        for row in found
    ]
    columns = ("queue", "stream", "version", "type", "attempts", "since", "error")
    console.show(console.table(columns, lines, empty="no stream is parked"))
    for row in ask.rows(settings, "subscriber_overview"):
        if row["state"] == "parked" and row["subscriber_name"].startswith(queue or ""):
            told = f"subscriber {row['subscriber_name']} is parked too; see `whippletree subscribers list`"
            console.show(console.marked(told, "critical"))


@click.command()
@click.argument("stream", required=False)
@takes(*ask.PLACE)
@_QUEUE
@click.option("--error", help="Only what has this text in its error.")
@click.option("--all", "everything", is_flag=True, help="Whatever has stopped.")
@_YES
def redrive(
    stream: str | None, queue: str | None, error: str | None, everything: bool, yes: bool, **arguments: str | None
) -> None:
    """Resume stopped streams at their heads, in order: one STREAM, or those that the options choose."""
    if not (stream or queue or error or everything):
        raise UsageError("say what to redrive: a stream, --queue, --error, or --all")
    settings = Settings.load(**arguments)
    if not (stream or yes):
        click.confirm("Redrive every stopped stream that matches, each from its head on?", abort=True)
    stream_id = ask.value(settings, "stream_id_of", stream) if stream else None
    count = ask.value(settings, "redrive_streams", queue, stream_id, error)
    if stream and not count:
        raise UnknownName(f"stream {stream} has not stopped; `whippletree why {stream}` says how it stands")
    click.echo(f"redriven: {console.counted(count, 'stream')}")


@click.command()
@click.argument("stream")
@takes(*ask.PLACE)
@click.option("--queue", required=True, help="outbox, inbox, perspective/NAME or receptor/NAME.")
@click.option("--reason", required=True, help="Why; it is kept with the message.")
@click.option("--version", type=int, help="The version of the head. Needed when it has not been tried yet.")
@_YES
def skip(stream: str, queue: str, reason: str, version: int | None, yes: bool, **arguments: str | None) -> None:
    """Pass over the head of a stream; the message is kept among the dead letters, with the reason."""
    settings = Settings.load(**arguments)
    if not yes:
        click.confirm(f"Skip the head of stream {stream} in {queue}? It will not be handled", abort=True)
    stream_id = ask.value(settings, "stream_id_of", stream)
    skipped = ask.value(settings, "skip_head", queue, stream_id, reason, version)
    if skipped is None:
        raise UnknownName(
            f"stream {stream} has no {'such head' if version else 'head that failed'} in {queue}, or it is in hand; "
            f"`whippletree why {stream}` says how it stands, and --version names a head that has not been tried"
        )
    click.echo(f"skipped: version {skipped} of {stream} in {queue}")


@click.command("dead-letters")
@takes(*ask.PLACE)
@click.option("--limit", default=100, show_default=True)
@as_json
def dead_letters(limit: int, as_json: bool, **arguments: str | None) -> None:
    """List the messages that were given up, the newest first."""
    found = ask.rows(Settings.load(**arguments), "dead_letters", limit)
    if as_json:
        console.show_json([dict(row) for row in found])
        return
    lines = [
        (
            row["queue"],
            row["stream_name"],
            str(row["version"]),
            row["message_type"],
            console.spoken(row["since"]) + " ago",
            row["reason"],
            console.first_line(row["error"]),
        )
        for row in found
    ]
    columns = ("queue", "stream", "version", "type", "given up", "reason", "error")
    console.show(console.table(columns, lines, empty="no message was given up"))
