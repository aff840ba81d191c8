"""The files of the project, as the house tests see them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "whippletree"
PLACES = ("src", "tests", "docs", "examples", "benchmarks", "requirements", ".ci")


def files(*places: str, suffix: str = "") -> list[Path]:
    found = [file for place in places for file in sorted((ROOT / place).rglob(f"*{suffix}"))]
    return [file for file in found if file.is_file() and "__pycache__" not in file.parts]


def everything() -> list[Path]:
    """What a clone holds: our folders, and the files beside them."""
    beside = [file for file in sorted(ROOT.iterdir()) if file.is_file() and file.name not in (".git", ".venv.lock")]
    return files(*PLACES) + beside


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))
