"""The `whippletree` command. Exit codes: 0 done, 1 failed, 2 called wrongly, 130 interrupted."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

# Name → where the command is, and its line in --help, which must not import it: --help has to answer at once.
COMMANDS = {
    "completion": ("whippletree.cli.main:completion", "Print the completion script of a shell."),
    "config": ("whippletree.cli.config:config", "Show the effective settings and where they come from."),
    "dead-letters": ("whippletree.cli.parked:dead_letters", "List the messages that were given up."),
    "db": ("whippletree.cli.db:db", "Start, stop and inspect the embedded PostgreSQL."),
    "doctor": ("whippletree.cli.doctor:doctor", "Say what is wrong with the database beneath, and what to do."),
    "events": ("whippletree.cli.events:events", "Look at the events of all streams, in one order."),
    "instances": ("whippletree.cli.instances:instances", "See the running instances, and let one finish."),
    "migrate": ("whippletree.cli.migrate:migrate", "Install the schema, or bring it up to date."),
    "status": ("whippletree.cli.status:status", "Show instances, queues, perspectives and what is wrong."),
    "try": ("whippletree.cli.attempt:attempt", "Run today's code on a message that has stopped, and roll back."),
    "why": ("whippletree.cli.why:why", "Say what keeps a message, a stream, an event or a perspective."),
    "parked": ("whippletree.cli.parked:parked", "List the streams that stopped at a message."),
    "perspectives": ("whippletree.cli.perspectives:perspectives", "List perspectives, and build their rows again."),
    "redrive": ("whippletree.cli.parked:redrive", "Resume stopped streams at their heads, in order."),
    "skip": ("whippletree.cli.parked:skip", "Pass over the head of a stream, and record why."),
    "streams": ("whippletree.cli.streams:streams", "Look at a stream: its events, what waits, and why."),
    "subscribers": ("whippletree.cli.subscribers:subscribers", "See the subscribers, and mend what has stopped."),
    "verify": ("whippletree.cli.verify:verify", "Prove on the live database that order was kept and nothing is lost."),
    "roles": ("whippletree.cli.roles:roles", "Say what a database role may do."),
    "run": ("whippletree.cli.run:run", "Run an instance of a service."),
    "sql": ("whippletree.cli.migrate:sql", "Print the schema as SQL."),
}


class LazyGroup(click.Group):
    """A group that imports a command only when it is called."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._lazy[name][1]) for name in self.list_commands(ctx)])


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Messages and events on PostgreSQL alone.",
)
@click.version_option(package_name="whippletree", message="%(prog)s %(version)s")
def cli() -> None:
    """The root of all commands."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell; for bash: eval "$(whippletree completion bash)"."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "whippletree", "_WHIPPLETREE_COMPLETE").source())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Nothing but SystemExit leaves it."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = cli.main(list(arguments), prog_name="whippletree", standalone_mode=False)
        # Here, because a pipe that was closed would otherwise be noticed only after the last handler.
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        return 130 if isinstance(error.__context__, KeyboardInterrupt) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The interpreter flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _failed(error, arguments)
    return code if isinstance(code, int) else 0


def _failed(error: Exception, arguments: Sequence[str]) -> int:
    from whippletree.cli import console
    from whippletree.errors import Error, UsageError

    if not isinstance(error, Error):
        console.show_traceback(arguments)
        return 1
    console.show_error(error, arguments)
    return 2 if isinstance(error, UsageError) else 1
