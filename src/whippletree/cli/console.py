"""How the command line speaks: a table on a terminal, plain lines in a pipe, JSON on request, no password."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

import click

from whippletree.errors import Error
from whippletree.settings import Dsn, Settings, redact


def colour_on(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(row))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=SIMPLE_HEAD)
    for row in rows:
        # Text, because a value in [brackets] is no markup.
        table.add_row(*map(Text, row))
    Console().print(table)


def show_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def show_error(error: Error, arguments: Sequence[str]) -> None:
    """One line that says what is wrong; the error's notes follow as hints."""
    lines = [("error", "red", str(error) or type(error).__doc__ or type(error).__name__)]
    lines += [("hint", "cyan", note) for note in getattr(error, "__notes__", ())]
    for label, colour, text in lines:
        shown = redact(text, *_known_dsns(arguments))
        click.echo(f"{click.style(label + ':', fg=colour)} {shown}", err=True, color=colour_on(sys.stderr))


def show_traceback(arguments: Sequence[str]) -> None:
    click.echo(redact(traceback.format_exc(), *_known_dsns(arguments)), err=True, nl=False)


def _known_dsns(arguments: Sequence[str]) -> Iterator[Dsn]:
    with contextlib.suppress(Error):
        settings = Settings.load()
        yield from filter(None, (settings.dsn, settings.direct_dsn))
    for argument in arguments:
        with contextlib.suppress(Error):
            yield Dsn(argument.partition("dsn=")[2] if argument.startswith("--") else argument)
