"""`whippletree try`: today's code on a message that has stopped, in a transaction that is rolled back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from whippletree.cli import console
from whippletree.cli.run import load
from whippletree.errors import UnknownName

if TYPE_CHECKING:
    from whippletree.app import App
    from whippletree.dispatch.handling import Work
    from whippletree.work.trial import Trial


@click.command("try")
@click.argument("message_id", type=click.UUID)
@click.argument("application", metavar="MODULE:APP")
def attempt(message_id: UUID, application: str) -> int:
    """Run the receptors of MODULE:APP on a message that has stopped, and roll back.

    Shows which rows would change and which messages would be sent, or where the receptor raised. A receptor whose
    effects are external is not called. Exit code 1 when one raised.
    """
    import asyncio

    return asyncio.run(_attempt(load(application), message_id))


async def _attempt(app: App, message_id: UUID) -> int:
    from whippletree.dispatch.handling import CallFailed, Handling
    from whippletree.store.database import prepared_pool, translated
    from whippletree.store.statements import call
    from whippletree.work.trial import try_work

    schema, failed = app.settings.schema, 0
    handling = Handling(app.types, app.receptors, app.providers)
    async with prepared_pool(app.settings) as pool:
        with app.using(pool), translated():
            stopped = [_work(row) for row in await pool.fetch(call(schema, "stopped_work", 1), message_id)]
        if not stopped:
            raise UnknownName(f"no receptor has stopped at {message_id}; `whippletree why {message_id}` says more")
        for work in stopped:
            async with pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    with app.using(pool):
                        trial = await try_work(handling, app.router, work, on=connection, schema=schema, undone=True)
                    _show(work, trial, app)
                except CallFailed as error:
                    failed = 1
                    _show_error(work, error.receptor.name, error.error)
                finally:
                    await transaction.rollback()
    return failed


def _work(row: Any) -> Work:
    from whippletree.claim.answer import receptor_work
    from whippletree.message.envelope import ClaimedMessage

    # Counted again when it is redriven, so that this attempt is the first.
    values = [*row[:13], 1, *row[14:]]
    return receptor_work(*values) if row["queue"].startswith("receptor/") else ClaimedMessage(row[1], *values[3:15])


def _show(work: Work, trial: Trial, app: App) -> None:
    click.echo(f"{work.queue}: it would succeed; everything was rolled back")
    lines = [(rows.table, str(rows.inserted), str(rows.updated), str(rows.deleted)) for rows in trial.changed]
    console.show(console.table(("table", "inserted", "updated", "deleted"), lines, empty="no rows would change"))
    for message in trial.returned:
        known = app.types.of(message)
        click.echo(f"would send {known.kind.value} {known.name}: {known.encode(message)}")


def _show_error(work: Work, receptor: str, error: Exception) -> None:
    import traceback

    click.echo(f"{work.queue}: {receptor} raised; everything was rolled back")
    click.echo("".join(traceback.format_exception(error)).rstrip())
