"""The schema on the command line: install it, or print it for those who install it themselves."""

from __future__ import annotations

import click

from whippletree.cli import console
from whippletree.cli.config import as_json, takes
from whippletree.settings import Settings


@click.command()
@takes("dsn", "direct_dsn", "schema", "data_directory")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@as_json
def migrate(dry_run: bool, as_json: bool, **arguments: str | None) -> None:
    """Install the schema, or bring it up to date. Doing it twice does nothing."""
    import asyncio

    settings = Settings.load(**arguments)
    steps = asyncio.run(_migrate(settings, dry_run))
    if as_json:
        console.show_json({"schema": settings.schema, "dry_run": dry_run, "steps": steps})
        return
    for step in steps or (f"schema {settings.schema} is up to date",):
        click.echo(f"would have {step}" if dry_run and steps else step)


@click.command()
@takes("schema")
@click.option("--since", metavar="MIGRATION", help="Print only what is newer than this migration.")
def sql(since: str | None, **arguments: str | None) -> None:
    """Print the schema as SQL, for psql or for a migration of your own."""
    from whippletree.store.schema import script

    click.echo(script(Settings.load(**arguments).schema, since))


async def _migrate(settings: Settings, dry_run: bool) -> tuple[str, ...]:
    from whippletree.store import database, schema

    async with database.connect(settings) as connection:
        return await schema.migrate(connection, settings.schema, dry_run=dry_run)
