"""Imports run one way: along the path of a message."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.tree import PACKAGE, files, name_of, parsed

LAYERS = (
    {"errors", "settings", "clock", "telemetry"},
    {"message"},
    {"store"},
    {"claim"},
    {"dispatch"},
    {"complete"},
    {"work"},
    {"transports"},
    {"app", "service", "log", "testing", "cli", "__init__", "__main__"},
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def test_a_module_imports_only_what_stands_before_it() -> None:
    for file in files("src/whippletree", suffix=".py"):
        own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert own in RANK, f"{own} has no place among the layers"
        later = {name for name in _imported(parsed(file)) if RANK[name] > RANK[own]}
        assert not later, f"{name_of(file)} must not import {later}"


def _imported(tree: ast.Module) -> Iterator[str]:
    """The folders and modules of ours that a module imports; `__init__` stands for the package itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for package, *path in (name.split(".") for name in names):
            if package == "whippletree":
                yield path[0] if path and path[0] in RANK else "__init__"
