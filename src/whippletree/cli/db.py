"""`whippletree db`: the embedded PostgreSQL, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from whippletree.store.embedded import EmbeddedPostgres


@click.group()
@click.option(
    "--directory",
    envvar="WHIPPLETREE_DATA_DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the server lives. Default: the user's data directory; for root, /var/lib/whippletree.",
)
@click.pass_context
def db(context: click.Context, directory: Path | None) -> None:
    """Start, stop and look at the embedded PostgreSQL."""
    context.obj = directory


@db.command()
@click.pass_obj
def start(directory: Path | None) -> None:
    """Start the server, and let it run until `db stop`."""
    with _server(directory) as server:
        # While this process is a user: between leaving and keeping, the server would begin to stop.
        server.keep()
        click.echo(server.dsn)


@db.command()
@click.option("--force", is_flag=True, help="Stop it although other processes use it; they lose their connections.")
@click.pass_obj
def stop(directory: Path | None, force: bool) -> None:
    """Stop the server. Refuses while other processes use it."""
    was_running = _server(directory).stop(force=force)
    click.echo("stopped" if was_running else "was not running")


@db.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def status(directory: Path | None, as_json: bool) -> None:
    """Say whether the server runs, and where everything is. Starts nothing."""
    import dataclasses
    import json

    found = dataclasses.asdict(_server(directory).status())
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo("running" if found.pop("running") else "stopped")
    found["users"] = ", ".join(map(str, found["users"]))
    found["kept"] = "until `whippletree db stop`" if found["kept"] else "while it has users"
    for name, value in found.items():
        if value:
            click.echo(f"  {name:<10} {value}")


@db.command()
@click.pass_obj
def url(directory: Path | None) -> None:
    """Print the server's address. Starts nothing."""
    click.echo(_server(directory).dsn)


@db.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def psql(directory: Path | None, arguments: tuple[str, ...]) -> None:
    """Open psql on the server's database, and start the server if needed. ARGUMENTS go to psql."""
    import os
    import shutil

    from whippletree.errors import StoreUnavailable

    server = _server(directory)
    dsn = server.start()
    program = server.binaries().bin / "psql"
    found = str(program) if program.exists() else shutil.which("psql")
    if found is None:
        raise StoreUnavailable(f"There is no psql in {program.parent}, nor on PATH: install it.")
    # psql itself becomes the user of the server, and leaves however it ends.
    server.inherit()
    os.execv(found, ["psql", "--dbname", dsn, *arguments])  # noqa: S606 - the arguments are the caller's own


def _server(directory: Path | None) -> EmbeddedPostgres:
    from whippletree.store.embedded import EmbeddedPostgres

    return EmbeddedPostgres(directory)
