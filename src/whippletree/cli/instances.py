"""`whippletree instances`: who runs, and how to let one finish."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING
from uuid import UUID

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.errors import UnknownName
from whippletree.settings import Settings

if TYPE_CHECKING:
    import asyncpg

    from whippletree.store.overview import InstanceOverview


@click.group()
def instances() -> None:
    """See the running instances, and let one finish."""


@instances.command("list")
@takes(*ask.PLACE)
@as_json
def list_(as_json: bool, **arguments: str | None) -> None:
    """List the running instances."""
    found = asyncio.run(_list(Settings.load(**arguments)))
    if as_json:
        console.show_json([dataclasses.asdict(instance) for instance in found])
        return
    console.show(console.instances(found))


@instances.command()
@click.argument("instance", metavar="INSTANCE")
@click.option("--undo", is_flag=True, help="Let it work again.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it has finished.")
@takes(*ask.PLACE)
def drain(instance: str, undo: bool, no_wait: bool, **arguments: str | None) -> None:
    """Let INSTANCE, an id or HOST:PID, finish what it has and take no more. The others take over its share."""
    settings = Settings.load(**arguments)
    asyncio.run(_drain(settings, instance, draining=not undo, wait=not (undo or no_wait)))
    click.echo(f"{instance} works again" if undo else f"{instance} takes no more work")


async def _list(settings: Settings) -> list[InstanceOverview]:
    from whippletree.store import database

    async with database.connect(settings) as connection:
        return await _members(connection, settings)


async def _members(connection: asyncpg.Connection, settings: Settings) -> list[InstanceOverview]:
    from whippletree.store.overview import overview

    return list((await overview(connection, settings.schema)).instances)


async def _drain(settings: Settings, name: str, *, draining: bool, wait: bool) -> None:
    from whippletree.store import database
    from whippletree.store.statements import call

    async with database.connect(settings) as connection:
        instance_id = _find(await _members(connection, settings), name).instance_id
        with database.translated():
            await connection.fetchval(call(settings.schema, "drain_instance", 2), instance_id, draining)
        if wait:
            await _finished(connection, settings, instance_id)


def _find(members: list[InstanceOverview], name: str) -> InstanceOverview:
    for member in members:
        if name in (str(member.instance_id), member.place):
            return member
    raise UnknownName(f"no instance {name} runs; `whippletree instances list` shows those that do")


async def _finished(connection: asyncpg.Connection, settings: Settings, instance_id: UUID) -> None:
    """Show how the leases of an instance become fewer, until there are none."""
    held = await _leases(connection, settings, instance_id)
    with console.progress() as progress:
        bar = progress.add_task("finishing", total=held or None)
        while left := await _leases(connection, settings, instance_id):
            held = max(held, left)
            progress.update(bar, total=held, completed=held - left)
            await asyncio.sleep(0.2)


async def _leases(connection: asyncpg.Connection, settings: Settings, instance_id: UUID) -> int:
    return sum(m.leases for m in await _members(connection, settings) if m.instance_id == instance_id)
