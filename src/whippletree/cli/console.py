"""How the command line speaks: a table on a terminal, plain lines in a pipe, JSON on request, no password."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from whippletree.errors import Error
from whippletree.settings import Dsn, Settings, redact

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, ProgressColumn
    from rich.text import Text

    from whippletree.store.overview import InstanceOverview


_COLOURS = {"critical": "bold red", "error": "bold red", "danger": "bold red", "warning": "yellow", "well": "green"}
_STATES = {"parked": "critical", "lost": "critical", "paused": "warning", "retrying": "warning", "live": "well"}


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


def show(drawn: RenderableType) -> None:
    """Print what rich drew: with colour on a terminal, as plain text in a pipe, where no sentence is broken."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    Console(width=None if terminal else 500, highlight=False).print(drawn, soft_wrap=not terminal)


def progress(*columns: ProgressColumn) -> Progress:
    """A bar on the terminal while something takes long; nothing at all in a pipe."""
    from rich.console import Console
    from rich.progress import Progress

    errors = Console(stderr=True)
    return Progress(*columns, transient=True, console=errors, disable=not errors.is_terminal)


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], *, empty: str) -> RenderableType:
    """Rows under their columns; the words for none."""
    from rich.text import Text

    from whippletree.cli.listing import Listing

    return Listing(columns, rows) if rows else Text(empty, style="dim")


def marked(words: str, meaning: str = "") -> Text:
    """Words of a table or a line, coloured by what they mean."""
    from rich.text import Text

    # Appended, so that words that follow have no part in the colour.
    return Text().append(words, style=_COLOURS.get(meaning, ""))


def count(number: int, meaning: str = "") -> Text:
    """A number as people read it; none is a dash, and only some is coloured."""
    return marked(f"{number:,}" if number else "-", meaning if number else "")


def instances(found: Sequence[InstanceOverview]) -> RenderableType:
    """The table of running instances."""
    rows = [
        (
            i.place,
            i.service_name,
            spoken(i.age),
            spoken(i.silence) + " ago",
            count(i.partitions),
            count(i.leases),
            _instance_state(i),
        )
        for i in found
    ]
    columns = ("instance", "service", "runs for", "last beat", "partitions", "leases", "state")
    return table(columns, rows, empty="no instance runs; start one with `whippletree run`")


def _instance_state(instance: InstanceOverview) -> Text:
    if instance.gone or instance.silent:
        return marked("gone" if instance.gone else "silent", "critical")
    return marked("draining", "warning") if instance.draining else marked("working", "well")


def subscribers(found: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The table of subscribers."""
    rows = [
        (
            row["subscriber_name"],
            marked(state := _subscriber_state(row), _STATES.get(state, "")),
            f"{row['checkpoint']:,}",
            count(row["behind"]),
            "-" if row["lag"] is None else spoken(row["lag"]),
            row["holder"] or "-",
            first_line(row["error"]),
        )
        for row in found
    ]
    columns = ("subscriber", "state", "checkpoint", "behind", "lag", "holder", "error")
    return table(columns, rows, empty="no subscribers")


def _subscriber_state(row: Mapping[str, Any]) -> str:
    if row["paused"]:
        return "paused"
    retrying = row["failed_number"] is not None and row["state"] not in ("parked", "lost")
    return "retrying" if retrying else str(row["state"])


def spoken(seconds: float) -> str:
    """A length of time as people say it; the database says it in the same way."""
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{round(seconds / size)} {unit}" if seconds >= 1 else f"{round(1000 * max(seconds, 0))} ms"
    return f"{round(seconds / 86_400)} d"


def counted(number: int, thing: str) -> str:
    """So many of a thing as people say it: 1 stream, 2 streams."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def first_line(text: str | None) -> str:
    """Enough of an error to know it by."""
    return text.strip().splitlines()[0][:100] if text and text.strip() else "-"


def show_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, default=str))


def show_line(value: object) -> None:
    """One JSON value on a line of its own, at once, for programs that read along."""
    click.echo(json.dumps(value, default=str))


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
