"""`whippletree perspectives`: list, rebuild, compare, swap, undo. The workers of a perspective do the rebuilding."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.errors import InvalidSetting, NotApplied, UsageError
from whippletree.settings import Settings

if TYPE_CHECKING:
    from whippletree.app import App
    from whippletree.dispatch.rebuild import PerspectiveOverview, Rebuilds

T = TypeVar("T")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def perspectives() -> None:
    """List perspectives, and build their rows again."""


@perspectives.command("list")
@takes(*ask.PLACE)
@as_json
def list_(as_json: bool, **arguments: str | None) -> None:
    """List the perspectives, what waits for them, and the rebuilds."""
    import dataclasses

    settings = Settings.load(**arguments)
    found = _ask(settings, lambda rebuilds: rebuilds.overview())
    lags = {row["queue"]: row["oldest"] for row in ask.rows(settings, "queue_overview")}
    # One with keys of its own follows the feed.
    lags |= {row["subscriber_name"]: row["lag"] for row in ask.rows(settings, "subscriber_overview")}
    stands = [(one, lags.get(f"perspective/{one.perspective_name}")) for one in found]
    if as_json:
        console.show_json([dataclasses.asdict(one) | {"lag": lag} for one, lag in stands])
        return
    lines = [
        (
            one.perspective_name,
            console.count(one.waiting),
            "-" if lag is None else console.spoken(lag),
            console.count(one.parked, "critical"),
            str(one.live_generation or "-"),
            *_rebuild(one),
        )
        for one, lag in stands
    ]
    columns = ("perspective", "behind", "lag", "parked", "live", "rebuild", "for undo")
    console.show(console.table(columns, lines, empty="no perspective is registered"))


@perspectives.command()
@click.argument("name")
@takes(*ask.PLACE)
@click.option("--no-wait", is_flag=True, help="Return at once; the workers go on.")
@click.option("--stream", help="Only the row of this stream, or key, in place, by the program named with --app.")
@click.option("--app", "application", metavar="MODULE:APP", help="The program that has the perspective.")
def rebuild(name: str, no_wait: bool, stream: str | None, application: str | None, **arguments: str | None) -> None:
    """Build the rows of NAME again, beside the live ones, and wait until they have caught up.

    A rebuild that is under way is waited for; to interrupt this command does not end it. With --stream, the row of that
    stream, or of that key when NAME chooses its keys, is made anew at once, in one transaction.
    """
    if stream is not None or application is not None:
        if stream is None or application is None:
            raise UsageError("a single stream is folded by the program: give both --stream and --app MODULE:APP")
        asyncio.run(_rebuild_stream(application, name, stream))
        click.echo(f"the row of {stream} in {name} is made anew")
        return

    async def run(rebuilds: Rebuilds) -> PerspectiveOverview:
        if (await rebuilds.progress(name)).building_generation is None:
            await rebuilds.start(name)
        return await (rebuilds.progress(name) if no_wait else _caught_up(rebuilds, name))

    stands = _ask(Settings.load(**arguments), run)
    generation = f"generation {stands.building_generation} of {name}"
    if no_wait:
        click.echo(f"{generation} is being built: {console.counted(stands.rebuild_waiting, 'event')} to go")
        return
    if stands.rebuild_parked:
        raise NotApplied(
            f"{generation} is built but for {console.counted(stands.rebuild_parked, 'parked stream')}; "
            f"`whippletree parked --queue perspective/{name}@{stands.building_generation}` shows them"
        )
    click.echo(f"{generation} is built: compare it, then swap it")


@perspectives.command()
@click.argument("name")
@takes(*ask.PLACE)
@click.option("--samples", default=5, show_default=True, help="How many of each kind of difference are shown.")
@as_json
def compare(name: str, samples: int, as_json: bool, **arguments: str | None) -> None:
    """Compare the rebuilt rows of NAME with the live ones."""
    found = _ask(Settings.load(**arguments), lambda rebuilds: rebuilds.compare(name, samples=samples))
    if as_json:
        import dataclasses

        console.show_json([dataclasses.asdict(one) for one in found])
        return
    console.show(console.table(("rows", "count"), [(one.kind, f"{one.count:,}") for one in found], empty=""))
    lines = [
        (one.kind, str(sample["key"]), *(_short(sample[side]) for side in ("live", "built")))
        for one in found
        for sample in one.samples
    ]
    if lines:
        console.show(console.table(("rows", "key", "live row", "rebuilt row"), lines, empty=""))


@perspectives.command()
@click.argument("name")
@takes(*ask.PLACE)
@click.option("--behind", default=0, show_default=True, help="How many streams may go back for a moment.")
@_YES
def swap(name: str, behind: int, yes: bool, **arguments: str | None) -> None:
    """Show the rebuilt rows of NAME to readers from now on, and keep the old ones for undo."""
    settings = Settings.load(**arguments)
    if not yes:
        click.confirm(f"Swap the live rows of {name} for the rebuilt ones?", abort=True)
    generation = _ask(settings, lambda rebuilds: rebuilds.swap(name, behind=behind))
    click.echo(f"swapped: generation {generation} of {name} is live")


@perspectives.command()
@click.argument("name")
@takes(*ask.PLACE)
@_YES
def undo(name: str, yes: bool, **arguments: str | None) -> None:
    """Bring back the rows of NAME from before the last swap; what came since is folded into them again."""
    settings = Settings.load(**arguments)
    if not yes:
        click.confirm(f"Bring back the rows of {name} from before the last swap?", abort=True)
    generation = _ask(settings, lambda rebuilds: rebuilds.undo(name))
    click.echo(f"undone: generation {generation} of {name} is live")


@perspectives.command()
@click.argument("name")
@takes(*ask.PLACE)
@click.option("--kept", is_flag=True, help="Instead, drop the rows that are kept for undo.")
@_YES
def abandon(name: str, kept: bool, yes: bool, **arguments: str | None) -> None:
    """Give up the rebuild of NAME; the live rows stay as they are."""
    settings = Settings.load(**arguments)
    what = "the rows kept for undo" if kept else "the rebuild"
    if not yes:
        click.confirm(f"Drop {what} of {name}?", abort=True)
    generation = _ask(settings, lambda rebuilds: rebuilds.forget(name) if kept else rebuilds.abandon(name))
    if generation is None:
        raise UsageError(f"{name} has none: `whippletree perspectives list` shows {what}")
    click.echo(f"dropped: generation {generation} of {name}")


@perspectives.command()
@click.argument("name")
@click.argument("stream")
@click.option("--app", "application", metavar="MODULE:APP", required=True, help="The program that has the perspective.")
@click.option("--at", help="A version of the stream, or a time such as 2026-01-31T12:00:00+01:00. Default: now.")
def show(name: str, stream: str, application: str, at: str | None) -> None:
    """Show the row of STREAM as NAME folds it, up to now or at a past version or time. Nothing is written."""
    from whippletree.cli.run import load

    console.show_json(asyncio.run(_state(load(application), name, stream, at)))


async def _rebuild_stream(application: str, name: str, stream: str) -> None:
    from whippletree.cli.run import load

    async with load(application).connected() as app:
        await app.perspective_rebuilds.rebuild_stream(name, stream)


async def _state(app: App, name: str, stream: str, at: str | None) -> object:
    import msgspec

    version = int(at) if at is not None and at.isdigit() else None
    try:
        when = None if at is None or version is not None else datetime.fromisoformat(at)
    except ValueError:
        raise InvalidSetting(f"--at {at!r} is neither a version nor a time such as 2026-01-31T12:00:00+01:00") from None
    async with app.connected():
        row = await app.perspective_rebuilds.state_at(name, stream, version=version, time=when)
    return msgspec.to_builtins(row)


def _ask(settings: Settings, question: Callable[[Rebuilds], Awaitable[T]]) -> T:
    async def run() -> T:
        from whippletree.dispatch.rebuild import Rebuilds
        from whippletree.store import database

        async with database.connect(settings) as connection:
            return await question(Rebuilds(connection, schema=settings.schema))

    return asyncio.run(run())


async def _caught_up(rebuilds: Rebuilds, name: str) -> PerspectiveOverview:
    """Wait with a bar, which events that come meanwhile make longer."""
    with console.progress() as progress:
        bar = progress.add_task(f"rebuilding {name}", total=None)

        def tell(stands: PerspectiveOverview) -> None:
            sorting = stands.rebuild_sorted > 0 == stands.rebuilt
            progress.update(
                bar,
                description=f"{'sorting events by key for' if sorting else 'rebuilding'} {name}",
                total=stands.rebuilt + stands.rebuild_waiting,
                completed=stands.rebuild_sorted if sorting else stands.rebuilt,
            )

        return await rebuilds.until_built(name, tell)


def _rebuild(one: PerspectiveOverview) -> tuple[str, str]:
    building = "-"
    if one.building_generation is not None:
        built = console.counted(one.rebuilt, "event")
        building = f"generation {one.building_generation}: {built}, {one.rebuild_waiting:,} to go"
        building += f", {one.rebuild_sorted:,} sorted by key" if one.rebuild_sorted else ""
        building += f", {console.counted(one.rebuild_parked, 'stream')} parked" if one.rebuild_parked else ""
    return building, str(one.previous_generation or "-")


def _short(row: object) -> str:
    return "-" if row is None else json.dumps(row)[:200]
