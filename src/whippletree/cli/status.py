"""`whippletree status`: the installation at a glance."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.errors import StoreUnavailable, UsageError
from whippletree.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from whippletree.store.overview import Overview, QueueOverview


@click.command()
@takes(*ask.PLACE)
@click.option("--watch", is_flag=True, help="Look again every second, until interrupted.")
@click.option("--check", is_flag=True, help="Exit with 1 when something is wrong.")
@as_json
def status(watch: bool, check: bool, as_json: bool, **arguments: str | None) -> int:
    """Show instances, queues, perspectives, subscribers and what is wrong.

    The queue perspective/NAME shows how many events a perspective is behind, and for how long.
    """
    settings = Settings.load(**arguments)
    if watch and check:
        raise UsageError("--check looks once and --watch does not end; use one of them")
    if watch:
        asyncio.run(_print_along(settings) if as_json else _watch(settings))
        return 0
    seen = asyncio.run(_look(settings))
    if as_json:
        console.show_json(_as_data(seen))
    else:
        console.show(drawn(seen))
    return 1 if check and seen.alerts else 0


async def _look(settings: Settings) -> Overview:
    from whippletree.store import database
    from whippletree.store.overview import overview

    async with database.connect(settings) as connection:
        return await overview(connection, settings.schema)


async def _watch(settings: Settings) -> None:
    from rich.live import Live

    from whippletree.store import database
    from whippletree.store.overview import overview

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            try:
                async with database.connect(settings) as connection:
                    while True:
                        live.update(drawn(await overview(connection, settings.schema), watched=True), refresh=True)
                        await asyncio.sleep(1)
            except StoreUnavailable as error:
                live.update(console.marked(f"{error}; trying again", "critical"), refresh=True)
                await asyncio.sleep(1)


async def _print_along(settings: Settings) -> None:
    from whippletree.store import database
    from whippletree.store.overview import overview

    async with database.connect(settings) as connection:
        while True:
            console.show_line(_as_data(await overview(connection, settings.schema)))
            await asyncio.sleep(1)


def _as_data(seen: Overview) -> dict[str, Any]:
    return dataclasses.asdict(seen) | {"alerts": [dataclasses.asdict(alert) for alert in seen.alerts]}


def drawn(seen: Overview, *, watched: bool = False) -> RenderableType:
    """What is wrong stands where it is read first: above the prompt, or at the top of a screen that is too small."""
    from rich.console import Group

    orphaned = any(queue.orphaned for queue in seen.queues)
    columns = ("queue", "waiting", "oldest", "ready", "leased", "later", "parked", *(("orphaned",) if orphaned else ()))
    parts = [
        console.instances(seen.instances),
        "",
        console.table(columns, [_queue(queue, orphaned) for queue in seen.queues], empty="no queues"),
        "",
    ]
    if seen.subscribers:
        parts += [console.subscribers([dataclasses.asdict(s) for s in seen.subscribers]), ""]
    if seen.dead_letters:
        parts += [f"dead letters: {seen.dead_letters:,}"]
    told = [console.marked(f"{a.severity}: {a.problem}", a.severity).append(f"; {a.remedy}") for a in seen.alerts]
    told = told or [console.marked("all is well", "well")]
    return Group(*told, "", *parts) if watched else Group(*parts, *told)


def _queue(queue: QueueOverview, orphaned: bool) -> tuple[str | Text, ...]:
    return (
        queue.queue,
        console.count(queue.waiting),
        "-" if queue.oldest is None else console.spoken(queue.oldest),
        console.count(queue.ready),
        console.count(queue.leased),
        console.count(queue.later, "warning" if queue.failing else ""),
        console.count(queue.parked, "critical"),
        *((console.count(queue.orphaned, "critical"),) if orphaned else ()),
    )
