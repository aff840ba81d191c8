"""`whippletree roles`: least privilege for those who store, work and look."""

from __future__ import annotations

import click

from whippletree.cli.config import takes
from whippletree.settings import Settings


@click.group()
def roles() -> None:
    """Say what a database role may do. Connect as the role that owns the schema."""


@roles.command()
@takes("dsn", "direct_dsn", "schema", "data_directory")
@click.argument("kind", type=click.Choice(["producer", "worker", "viewer"]))
@click.argument("role")
def grant(kind: str, role: str, **arguments: str | None) -> None:
    """Let ROLE store (producer), run instances (worker) or read (viewer), and nothing else."""
    import asyncio

    settings = Settings.load(**arguments)
    asyncio.run(_grant(settings, kind, role))
    click.echo(f"{role} is a {kind} in schema {settings.schema}")


@roles.command()
@takes("dsn", "direct_dsn", "schema", "data_directory")
@click.argument("role")
def revoke(role: str, **arguments: str | None) -> None:
    """Take back from ROLE whatever it was granted in the schema."""
    import asyncio

    settings = Settings.load(**arguments)
    asyncio.run(_revoke(settings, role))
    click.echo(f"{role} has no rights in schema {settings.schema}")


async def _grant(settings: Settings, kind: str, role: str) -> None:
    from whippletree.store import database
    from whippletree.store.roles import RoleKind, grant

    async with database.connect(settings) as connection:
        await grant(connection, settings.schema, RoleKind(kind), role)


async def _revoke(settings: Settings, role: str) -> None:
    from whippletree.store import database
    from whippletree.store.roles import revoke

    async with database.connect(settings) as connection:
        await revoke(connection, settings.schema, role)
