"""The `whippletree` command, run as an operator runs it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.house.tree import ROOT
from whippletree.settings import Dsn

Done: TypeAlias = "subprocess.CompletedProcess[str]"
Command = Callable[..., Awaitable[Done]]
PROGRAM = "import sys; from whippletree.cli.main import main; sys.exit(main())"


async def run(dsn: Dsn, *words: str, answer: str = "", place: Path | None = None) -> Done:
    """The command, in a place whose modules, and those of the tests, it can import."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, *words],
        env=os.environ | {"WHIPPLETREE_DSN": dsn.reveal(), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        cwd=place,
        input=answer,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def whippletree(dsn: Dsn) -> Command:
    return partial(run, dsn)
