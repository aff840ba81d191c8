"""The demonstration shows what it says, on an embedded PostgreSQL, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from whippletree.store.embedded import EmbeddedPostgres


@pytest.fixture
def directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="whippletree-demo-"))
    # The server may run under another user, who has to get in.
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        EmbeddedPostgres(directory).stop(force=True)
        shutil.rmtree(directory, ignore_errors=True)


def test_the_demonstration_kills_a_worker_and_nothing_is_missing_or_twice(directory: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "WHIPPLETREE_DSN"}
    environment |= {"WHIPPLETREE_DATA_DIR": str(directory), "PYTHONPATH": f"{ROOT / 'src'}"}
    environment["PYTHONIOENCODING"] = "utf-8"
    command = [sys.executable, "-m", "examples.demo"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=600, check=False
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "kill -9" in done.stdout
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines() if "✓" in line] == [
        *("✓ order", "✓ effects", "✓ totals", "✓ whippletree verify"),
    ]
    assert "✗" not in done.stdout
    assert not EmbeddedPostgres(directory).status().users
