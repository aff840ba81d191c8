"""The benchmarks run, and say in JSON what they found. How fast they were is not a test's business."""

from __future__ import annotations

import asyncio
import json
import sys

from tests.house.tree import ROOT


async def test_every_benchmark_runs_and_tells_its_figures(server: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks", "--quick", "--json", "--repeat", "1", "--dsn", server),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await process.communicate()
    assert process.returncode == 0, complained.decode()

    figures = json.loads(said)
    assert len(figures) > 15
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "target", "met"]
        assert isinstance(figure["value"], int | float)
        assert isinstance(figure["met"], bool) == (figure["target"] is not None)
