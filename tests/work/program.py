"""A program of the test's own, in processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.house.tree import ROOT
from whippletree.settings import Dsn


@asynccontextmanager
async def process(
    directory: Path, dsn: Dsn, program: str, *options: str, heard: bool = False, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`whippletree run program:app`, until it is killed. What it says goes to a file, unless it is heard: a pipe that
    nobody reads would stop the process once it is full."""
    (directory / "program.py").write_text(program, encoding="utf-8")
    around = {"WHIPPLETREE_DSN": dsn.reveal(), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with (directory / "log").open("ab") as log:
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "whippletree", "run", "program:app", "--lease", "5", *options),
            cwd=directory,
            env={**os.environ, **around, **environment},
            stdout=asyncio.subprocess.PIPE if heard else log,
            stderr=log,
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await asyncio.wait_for(started.communicate(), 60)
