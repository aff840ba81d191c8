"""`whippletree try`: today's code on what has stopped, in a transaction that is rolled back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from whippletree.cli import console
from whippletree.cli.run import load
from whippletree.errors import PerspectiveFailed, UnknownName, UsageError

if TYPE_CHECKING:
    import asyncpg

    from whippletree.app import App
    from whippletree.dispatch.handling import Work
    from whippletree.store.transaction import Connection
    from whippletree.work.trial import Trial

    Pool = asyncpg.Pool[asyncpg.Record]


@click.command("try")
@click.argument("thing")
@click.argument("application", metavar="MODULE:APP")
def attempt(thing: str, application: str) -> int:
    """Run the code of MODULE:APP on what has stopped at THING, and roll back.

    THING is the id of a message, an event or a stream, the key of a stream, or the name of a subscriber. Shows which
    rows would change and which messages would be sent, or where your function raised. One whose effects are external is
    not called. Exit code 1 when one raised.
    """
    import asyncio

    return asyncio.run(_attempt(load(application), thing))


async def _attempt(app: App, thing: str) -> int:
    from whippletree.store.database import prepared_pool, translated
    from whippletree.store.statements import call

    failed = 0
    async with prepared_pool(app.settings) as pool:
        with translated():
            stopped = await pool.fetch(call(app.settings.schema, "stopped_work", 1), thing)
        if not stopped:
            raise UnknownName(f"nothing has stopped at {thing}; `whippletree why {thing}` says more")
        for row in stopped:
            try:
                with app.using(pool):
                    failed |= await _undone(app, row, pool)
            except UsageError as error:
                if len(stopped) == 1:
                    raise
                click.echo(f"{row['queue']}: {error}")
    return failed


async def _undone(app: App, row: asyncpg.Record, pool: Pool) -> bool:
    """Whether the function raised."""
    kind, _, name = row["queue"].partition("/")
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        try:
            if kind == "perspective":
                error = await _fold(app, name.partition("@")[0], row)
            elif kind == "subscriber":
                error = await _apply(app, name, row, connection, pool)
            else:
                error = await _call(app, row, connection)
        finally:
            await transaction.rollback()
    if error is not None:
        _show_error(row["queue"], error)
    return error is not None


async def _call(app: App, row: asyncpg.Record, connection: Connection) -> Exception | None:
    from whippletree.dispatch.handling import CallFailed, Handling
    from whippletree.work.trial import try_work

    handling, schema = Handling(app.types, app.receptors, app.providers), app.settings.schema
    try:
        trial = await try_work(handling, app.router, _work(row), on=connection, schema=schema, undone=True)
    except CallFailed as failed:
        return failed.error
    _show(row["queue"], trial)
    for message in trial.returned:
        known = app.types.of(message)
        click.echo(f"would send {known.kind.value} {known.name}: {known.encode(message)}")
    return None


async def _apply(app: App, name: str, row: asyncpg.Record, connection: Connection, pool: Pool) -> Exception | None:
    from whippletree.service import Service
    from whippletree.store.feed import Chosen, Feed
    from whippletree.work.subscriber_row import EffectsFailed
    from whippletree.work.trial import try_event

    followers = {follower.name: follower for follower in Service(app).followers()}
    if name not in followers:
        raise UnknownName(f"this program has no subscriber of the name {name}")
    page = await Feed(pool, schema=app.settings.schema).page(row["version"] - 1, row["version"], Chosen(), 1)
    try:
        trial = await try_event(followers[name], page.events[0], on=connection, schema=app.settings.schema)
    except EffectsFailed as failed:
        return failed.cause
    _show(row["queue"], trial)
    return None


async def _fold(app: App, name: str, row: asyncpg.Record) -> Exception | None:
    import msgspec

    try:
        folded = await app.perspective_rebuilds.state_at(name, row["stream_id"], version=int(row["detail"]))
    except PerspectiveFailed as failed:
        return failed.__cause__ if isinstance(failed.__cause__, Exception) else failed
    click.echo(f"{row['queue']}: it would succeed; nothing was written")
    click.echo(f"would make the row {msgspec.json.encode(folded).decode()}")
    return None


def _work(row: Any) -> Work:
    from whippletree.claim.answer import receptor_work
    from whippletree.message.envelope import ClaimedMessage

    # Counted again when it is redriven, so that this attempt is the first.
    values = [*row[:13], 1, *row[14:]]
    return receptor_work(*values) if row["queue"].startswith("receptor/") else ClaimedMessage(row[1], *values[3:15])


def _show(queue: str, trial: Trial) -> None:
    click.echo(f"{queue}: it would succeed; everything was rolled back")
    lines = [(rows.table, str(rows.inserted), str(rows.updated), str(rows.deleted)) for rows in trial.changed]
    console.show(console.table(("table", "inserted", "updated", "deleted"), lines, empty="no rows would change"))


def _show_error(queue: str, error: Exception) -> None:
    import traceback

    click.echo(f"{queue}: your function raised; everything was rolled back")
    click.echo("".join(traceback.format_exception(error)).rstrip())
