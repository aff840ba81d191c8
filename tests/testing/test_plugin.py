"""The pytest plugin, in a run of its own, as a user has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PROGRAM = """
from dataclasses import dataclass

import whippletree as wt
from whippletree.testing import drained

app = wt.App("orders")

@app.command(stream="order")
@dataclass(frozen=True)
class Reserve:
    order: str

@app.receptor
async def reserve(command: Reserve, tx: wt.Transaction) -> None:
    await tx.execute("INSERT INTO reserved VALUES ($1)", command.order)

async def check(database):
    async with database.connect() as connection, database.serves(app):
        await connection.execute("CREATE TABLE reserved (name text)")
        await app.publish(Reserve("order-1"))
        await drained(app)
        assert await connection.fetchval("SELECT count(*) FROM reserved") == 1

async def test_one(whippletree_database):
    await check(whippletree_database)

async def test_two_has_a_database_of_its_own(whippletree_database):
    await check(whippletree_database)

def test_a_plain_test_has_one_too(whippletree_database):
    assert "wh_test_" in whippletree_database.dsn
"""


@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "xdist"])
@pytest.mark.parametrize("named", [True, False], ids=["named server", "embedded server"])
def test_every_test_has_a_real_database(tmp_path: Path, server: str, processes: tuple[str, ...], named: bool) -> None:
    place = Path(tempfile.mkdtemp(prefix="wh-"))
    # Where the server's user gets in, unlike in tmp_path.
    place.chmod(0o755)
    (tmp_path / "test_orders.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "WHIPPLETREE"))}
    # By name, whether or not the installed package has its entry point.
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(place)}
    if named:
        environment["WHIPPLETREE_TEST_DSN"] = server
    words = ["-p", "asyncio", "-p", "whippletree.testing.plugin", *processes, "-q", "-W", "error"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *words,
            "-o",
            "asyncio_mode=auto",
            "-o",
            "asyncio_default_fixture_loop_scope=function",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert not list(place.glob("whippletree-test-*")), "the server's directory is gone"
    shutil.rmtree(place)
