"""Settings on the command line: the options that give them, and the command that shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from whippletree.cli import console
from whippletree.settings import Settings, all_settings, variable_of

F = TypeVar("F", bound=Callable[..., Any])


def takes(*names: str) -> Callable[[F], F]:
    """Gives a command an option for each of these settings; not given, the setting is looked up as usual."""

    def decorate(command: F) -> F:
        for setting in reversed(all_settings()):
            if setting.name in names:
                meaning = f"{setting.metadata['meaning']}. [{variable_of(setting)}]"
                command = click.option(f"--{setting.name.replace('_', '-')}", setting.name, help=meaning)(command)
        return command

    return decorate


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.command()
@takes(*(setting.name for setting in all_settings()))
@as_json
def config(as_json: bool, **arguments: str | None) -> None:
    """Show the effective settings and where they come from. Passwords are hidden."""
    settings = Settings.load(**arguments)
    shown = {name: _shown(getattr(settings, name)) for name in settings.sources}
    if as_json:
        console.show_json({name: {"value": shown[name], "source": settings.sources[name]} for name in shown})
    else:
        rows = [(name, value or "-", settings.sources[name]) for name, value in shown.items()]
        console.show_table(("setting", "value", "source"), rows)


def _shown(value: object) -> str | None:
    # str, because that is the form in which a Dsn hides its password.
    return None if value is None else str(value)
