"""`whippletree status`: the installation at a glance."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType

    from whippletree.store.overview import Overview, QueueOverview


@click.command()
@takes(*ask.PLACE)
@click.option("--watch", is_flag=True, help="Look again every second, until interrupted.")
@click.option("--check", is_flag=True, help="Exit with 1 when something is wrong.")
@as_json
def status(watch: bool, check: bool, as_json: bool, **arguments: str | None) -> int:
    """Show instances, queues, perspectives and what is wrong."""
    settings = Settings.load(**arguments)
    if watch:
        asyncio.run(_watch(settings))
        return 0
    seen = asyncio.run(_look(settings))
    if as_json:
        alerts = [dataclasses.asdict(alert) for alert in seen.alerts]
        console.show_json(dataclasses.asdict(seen) | {"alerts": alerts})
    else:
        console.show(_drawn(seen))
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

    async with database.connect(settings) as connection:
        with Live(_drawn(await overview(connection, settings.schema)), auto_refresh=False) as live:
            while True:
                await asyncio.sleep(1)
                live.update(_drawn(await overview(connection, settings.schema)), refresh=True)


def _drawn(seen: Overview) -> RenderableType:
    from rich.console import Group

    queues = console.table(
        ("queue", "waiting", "oldest", "ready", "leased", "orphaned", "later", "parked"),
        [_queue(queue) for queue in seen.queues],
        empty="no queues",
    )
    followers = [console.subscribers([dataclasses.asdict(s) for s in seen.subscribers])] if seen.subscribers else []
    letters = [console.line(f"{seen.dead_letters} dead letters")] if seen.dead_letters else []
    alerts = [console.line(f"{a.severity}: {a.problem}; {a.remedy}", a.severity) for a in seen.alerts]
    return Group(
        console.instances(seen.instances),
        queues,
        *followers,
        *letters,
        *(alerts or [console.line("all is well", "well")]),
    )


def _queue(queue: QueueOverview) -> tuple[str, ...]:
    oldest = "-" if queue.oldest is None else console.spoken(queue.oldest)
    counts = (queue.ready, queue.leased, queue.orphaned, queue.later, queue.parked)
    return (queue.queue, str(queue.waiting), oldest, *(str(count) if count else "-" for count in counts))
