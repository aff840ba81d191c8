from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from whippletree.cli import main as command_line
from whippletree.errors import InvalidSetting, StoreUnavailable

PASSWORD = "s3cret"
HEAVY = {"asyncio", "asyncpg", "rich", "msgspec", "whippletree.store", "whippletree.settings"}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Runs a command that raises, and returns the exit code."""

    def run(error: BaseException) -> int:
        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr(command_line, "broken", command, raising=False)
        monkeypatch.setitem(command_line.COMMANDS, "broken", ("whippletree.cli.main:broken", ""))
        return command_line.main(["broken"])

    return run


def whippletree(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from whippletree.cli.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_help_lists_every_command_and_imports_none() -> None:
    program = "import sys; from whippletree.cli.main import main; main(['-h']); sys.exit(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert all(f"  {name} " in done.stdout for name in command_line.COMMANDS)
    assert not HEAVY & set(done.stderr.split())


@pytest.mark.parametrize("name", sorted(command_line.COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main([name, "--help"]) == 0
    assert f"Usage: whippletree {name}" in capsys.readouterr().out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("whippletree 0.")


@pytest.mark.parametrize("arguments", [["no-such-command"], ["config", "--no-such-option"], ["completion", "tcsh"]])
def test_a_wrong_call_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(arguments) == 2
    assert "Error" in capsys.readouterr().err


def test_an_error_is_one_line_and_its_hint(
    failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    error = StoreUnavailable(f"postgresql://u:{PASSWORD}@h/db does not answer")
    error.add_note("start one: whippletree db start")

    assert failing(error) == 1
    assert capsys.readouterr().err == (
        "error: postgresql://u:***@h/db does not answer\nhint: start one: whippletree db start\n"
    )


def test_an_error_without_words_says_what_it_means(
    failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(StoreUnavailable()) == 1
    assert capsys.readouterr().err == "error: No server answers; wait, or start one.\n"


def test_a_usage_error_ends_with_2(failing: Callable[[BaseException], int]) -> None:
    assert failing(InvalidSetting("no")) == 2


def test_an_interruption_ends_with_130_and_no_traceback(
    failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err.strip() == ""


def test_an_unexpected_error_shows_its_traceback_without_passwords(
    failing: Callable[[BaseException], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WHIPPLETREE_DSN", f"postgresql://u:{PASSWORD}@h/db")

    assert failing(ValueError(f"{PASSWORD} is no port")) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "*** is no port" in shown
    assert PASSWORD not in shown


def test_a_closed_pipe_is_no_error() -> None:
    program = (
        "import sys, os; from whippletree.cli.main import main; r, w = os.pipe(); os.dup2(w, 1); os.close(w);"
        "os.close(r); sys.exit(main(['config']))"
    )
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_pipe_gets_no_colour() -> None:
    assert "\x1b" not in whippletree("config", "--schema", "x;").stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["completion", shell]) == 0
    assert f"_WHIPPLETREE_COMPLETE={shell}_complete" in capfd.readouterr().out


def test_completion_completes_commands() -> None:
    done = whippletree(_WHIPPLETREE_COMPLETE="bash_complete", COMP_WORDS="whippletree mi", COMP_CWORD="1")
    assert done.stdout.strip() == "plain,migrate"
