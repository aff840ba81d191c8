"""`whippletree events`: the feed, as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.settings import Settings

if TYPE_CHECKING:
    from whippletree.message.event import NumberedEvent


class _Since(NamedTuple):
    """Where to begin, and whether to go on."""

    last: int
    after: int | None
    follow: bool


@click.group()
def events() -> None:
    """Look at the events of all streams, in one order."""


@events.command()
@takes(*ask.PLACE)
@click.option("--type", "types", multiple=True, help="Only events of this type; may be given again.")
@click.option("--last", default=10, show_default=True, help="How many of the newest to begin with.")
@click.option("--after", type=int, help="Begin after this number instead.")
@click.option("--follow", "-f", is_flag=True, help="Go on as events come, until interrupted.")
@click.option("--payload", is_flag=True, help="Show what is in them.")
@as_json
def tail(
    types: tuple[str, ...],
    last: int,
    after: int | None,
    follow: bool,
    payload: bool,
    as_json: bool,
    **arguments: str | None,
) -> None:
    """Print events with their numbers; one JSON object a line with --json."""
    show = partial(_show, payload=payload, as_json=as_json)
    asyncio.run(_tail(Settings.load(**arguments), types or None, _Since(last, after, follow), show))


async def _tail(
    settings: Settings, types: Sequence[str] | None, since: _Since, show: Callable[[NumberedEvent, str], None]
) -> None:
    from whippletree.store import database
    from whippletree.store.feed import Feed
    from whippletree.store.statements import call

    async def tell(events: Sequence[NumberedEvent]) -> None:
        # As their users know the streams; asked for a page at once, because a look for each event takes its time.
        with database.translated():
            names = await connections.fetchval(names_of, [numbered.event.stream_id for numbered in events])
        for numbered, name in zip(events, names or (), strict=True):
            show(numbered, name)

    names_of = call(settings.schema, "stream_names", 1)

    async with database.serving(settings) as dsn, database.open_pool(dsn, size=1) as connections:
        feed = Feed(connections, schema=settings.schema)
        newest = await feed.last_number()
        after = max(0, newest - since.last) if since.after is None else since.after
        if not since.follow:
            await tell(await feed.read_all(after=after, types=types))
            return
        async for numbered in feed.follow(after=after, types=types, wait=lambda: asyncio.sleep(0.2)):
            await tell([numbered])


def _show(numbered: NumberedEvent, stream: str, payload: bool, as_json: bool) -> None:
    event = numbered.event
    if as_json:
        shown = {
            "number": numbered.number,
            "stream_id": event.stream_id,
            "stream": stream,
            "version": event.version,
            "event_id": event.event_id,
            "event_type": event.event_type,
            "created_at": event.created_at,
        }
        console.show_line(shown | ({"payload": event.payload} if payload else {}))
        return
    body = f"  {event.payload}" if payload else ""
    place = f"{stream} {event.version}"
    click.echo(f"{numbered.number:>9,}  {event.created_at:%Y-%m-%d %H:%M:%S}  {event.event_type:<20}  {place}{body}")
