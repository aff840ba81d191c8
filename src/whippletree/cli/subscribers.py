"""`whippletree subscribers`: who follows the feed, how far, and how to mend what has stopped."""

from __future__ import annotations

from typing import Any

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.errors import UnknownName
from whippletree.settings import Settings

_REASON = click.option("--reason", help="Why; it is recorded.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def subscribers() -> None:
    """See the subscribers, and mend what has stopped."""


@subscribers.command("list")
@takes(*ask.PLACE)
@as_json
def list_(as_json: bool, **arguments: str | None) -> None:
    """List the subscribers with their states."""
    found = ask.rows(Settings.load(**arguments), "subscriber_overview")
    if as_json:
        console.show_json([dict(row) for row in found])
        return
    console.show(console.subscribers([dict(row) for row in found]))


@subscribers.command()
@click.argument("name")
@takes(*ask.PLACE)
@_REASON
def pause(name: str, reason: str | None, **arguments: str | None) -> None:
    """Stop a subscriber where it is."""
    _require(ask.value(Settings.load(**arguments), "pause_subscriber", name, True, reason), name, "could be paused")
    click.echo(f"{name} is paused")


@subscribers.command()
@click.argument("name")
@takes(*ask.PLACE)
@_REASON
def resume(name: str, reason: str | None, **arguments: str | None) -> None:
    """Let a paused subscriber go on."""
    _require(ask.value(Settings.load(**arguments), "pause_subscriber", name, False, reason), name, "is paused")
    click.echo(f"{name} goes on")


@subscribers.command()
@click.argument("name")
@takes(*ask.PLACE)
@_REASON
def redrive(name: str, reason: str | None, **arguments: str | None) -> None:
    """Let a parked subscriber try its event again."""
    _require(ask.value(Settings.load(**arguments), "redrive_subscriber", name, reason), name, "has stopped at an event")
    click.echo(f"{name} tries its event again")


@subscribers.command()
@click.argument("name")
@click.argument("number", type=int)
@takes(*ask.PLACE)
@click.option("--reason", required=True, help="Why; it is recorded.")
@_YES
def skip(name: str, number: int, reason: str, yes: bool, **arguments: str | None) -> None:
    """Let a subscriber go on after event NUMBER, at which it has stopped."""
    if not yes:
        click.confirm(f"Skip event {number} for {name}? It will not be applied", abort=True)
    done = ask.value(Settings.load(**arguments), "skip_subscriber", name, number, reason)
    _require(done, name, f"has stopped at event {number}")
    click.echo(f"{name} goes on after {number}")


@subscribers.command()
@click.argument("name")
@click.option("--after", type=click.IntRange(min=0), required=True, help="The number of the feed to begin after.")
@takes(*ask.PLACE)
@click.option("--reason", required=True, help="Why; it is recorded.")
@_YES
def reset(name: str, after: int, reason: str, yes: bool, **arguments: str | None) -> None:
    """Put a subscriber after another number of the feed. What follows is given to it again."""
    if not yes:
        click.confirm(f"Give {name} everything after {after} again?", abort=True)
    _require(ask.value(Settings.load(**arguments), "reset_subscriber", name, after, reason), name, "is known")
    click.echo(f"{name} begins after {after}")


def _require(done: Any, name: str, state: str) -> None:
    if not done:
        raise UnknownName(f"no subscriber of the name {name} {state}; see `whippletree subscribers list`")
