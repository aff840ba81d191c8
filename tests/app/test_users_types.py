"""mypy and pyright know every type in a user's program, and find what is wrong with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

PROGRAM = Path(__file__).with_name("users_program.py")
WRONG = """
app.receptor(effects="elsewhere")
app.event()
app.publish(OrderPlaced(UUID(int=1), "many"))
mail("no event")


async def read() -> str:
    return await app.rows(totals).get("all")
"""


def _checked_by(checker: str, file: Path) -> subprocess.CompletedProcess[str]:
    commands = {
        "mypy": ["-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(file.parent / "cache")],
        "pyright": ["-m", "basedpyright", "--level", "error", "--pythonpath", sys.executable],
    }
    # Outside of the project, as a user's program is: settings of ours do not apply.
    return subprocess.run(
        [sys.executable, *commands[checker], str(file)], capture_output=True, text=True, check=False, cwd=file.parent
    )


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_every_type_of_a_users_program_is_known(checker: str, tmp_path: Path) -> None:
    program = PROGRAM.read_text(encoding="utf-8")
    (tmp_path / "right.py").write_text(program, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(program + WRONG, encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text(
        f'{{"typeCheckingMode": "strict", "extraPaths": ["{ROOT / "src"}"]}}', encoding="utf-8"
    )

    right = _checked_by(checker, tmp_path / "right.py")
    assert right.returncode == 0, right.stdout + right.stderr
    wrong = _checked_by(checker, tmp_path / "wrong.py")
    first = program.count("\n") + 2
    for line in (first, first + 1, first + 2, first + 3, first + 7):
        assert f"wrong.py:{line}" in wrong.stdout, wrong.stdout + wrong.stderr
