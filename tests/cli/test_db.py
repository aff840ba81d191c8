"""`whippletree db`, run as a user runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from whippletree.store.embedded import EmbeddedPostgres

PROGRAM = "import sys; from whippletree.cli.main import main; sys.exit(main())"


class Command(Protocol):
    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def directory() -> Iterator[Path]:
    """A place of its own for each test, which the server's user can enter when the tests run as root."""
    parent = Path(tempfile.mkdtemp(prefix="wt-", dir="/tmp"))
    parent.chmod(0o755)
    yield parent / "server"
    EmbeddedPostgres(parent / "server").stop(force=True)
    shutil.rmtree(parent)


@pytest.fixture
def db(directory: Path) -> Command:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"WHIPPLETREE_DATA_DIR": str(directory)}
        command = [sys.executable, "-c", PROGRAM, "db", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    return run


def status(db: Command) -> dict[str, Any]:
    done = db("status", "--json")
    assert done.returncode == 0
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_looking_starts_and_creates_nothing(db: Command, directory: Path) -> None:
    looked = db("status")
    assert (looked.returncode, looked.stdout.splitlines()[0]) == (0, "stopped")
    assert db("url").stdout.strip() == EmbeddedPostgres(directory).dsn
    assert status(db)["running"] is False
    assert not directory.exists()


def test_a_started_server_runs_until_it_is_stopped(db: Command, directory: Path) -> None:
    started = db("start")
    assert (started.returncode, started.stdout.strip()) == (0, EmbeddedPostgres(directory).dsn)

    found = status(db)
    assert found["running"] is True
    assert found["dsn"] == started.stdout.strip()
    assert found["directory"] == str(directory)
    assert Path(found["log"]).exists()
    assert (Path(found["binaries"]) / "postgres").exists()
    assert found["version"].split(".")[0] == (directory / "data" / "PG_VERSION").read_text().strip()
    with EmbeddedPostgres(directory):
        pass
    assert db("start").returncode == 0
    assert status(db)["pid"] == found["pid"]

    assert "running" in db("status").stdout
    assert db("stop").stdout == "stopped\n"
    assert status(db)["running"] is False
    assert (db("stop").returncode, db("stop").stdout) == (0, "was not running\n")


def test_psql_starts_the_server_and_passes_its_arguments_on(db: Command) -> None:
    asked = db("psql", "-At", "-c", "SELECT current_user || '@' || current_database()")
    assert (asked.returncode, asked.stdout) == (0, "whippletree@whippletree\n")
    assert db("psql", "-v", "ON_ERROR_STOP=1", "-c", "SELECT broken").returncode == 1


def test_psql_is_a_user_of_the_server_while_it_runs(db: Command, directory: Path) -> None:
    asked = db("psql", "-At", "-c", "SELECT pg_sleep(1)", "-c", "SELECT 'still here'")
    assert asked.stdout.splitlines()[-1] == "still here"


def test_a_server_in_use_is_stopped_only_by_force(db: Command, directory: Path) -> None:
    with EmbeddedPostgres(directory, server_settings={"fsync": "off"}) as server:
        refused = db("stop")
        assert refused.returncode == 1
        assert f"in use by 1 other process: {os.getpid()}" in refused.stderr
        assert "--force" in refused.stderr
        assert status(db)["running"] is True

        assert db("stop", "--force").returncode == 0
        assert status(db)["running"] is False
        server.ensure()
        assert status(db)["users"] == [os.getpid()]


def test_a_server_that_lost_its_supervisor_can_still_be_stopped(db: Command, directory: Path) -> None:
    assert db("start").returncode == 0
    os.kill(int((directory / "supervisor.lock").read_text()), 9)
    assert db("stop").returncode == 0
    assert status(db)["running"] is False


def test_a_failed_start_shows_the_servers_own_words_and_what_to_do(db: Command, directory: Path) -> None:
    assert db("start").returncode == 0
    assert db("stop").returncode == 0
    with (directory / "data" / "postgresql.conf").open("a") as conf:
        conf.write("max_connections = many\n")
    failed = db("start")
    assert failed.returncode == 1
    assert "max_connections" in failed.stderr
    assert "What to do: correct" in failed.stderr
    assert status(db)["kept"] is False


def test_a_wrong_call_is_a_usage_error(db: Command) -> None:
    assert db("strat").returncode == 2
