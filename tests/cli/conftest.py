"""The `whippletree` command, run as an operator runs it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from whippletree.settings import Dsn

Done: TypeAlias = "subprocess.CompletedProcess[str]"
Command = Callable[..., Awaitable[Done]]
PROGRAM = "import sys; from whippletree.cli.main import main; sys.exit(main())"


@pytest.fixture
def whippletree(dsn: Dsn) -> Command:
    async def run(*words: str, answer: str = "") -> Done:
        return await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", PROGRAM, *words],
            env=os.environ | {"WHIPPLETREE_DSN": dsn.reveal()},
            input=answer,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run
