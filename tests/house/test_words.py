"""One word per concept, and no words for things without an idea."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.tree import everything, files, name_of, parsed

EMPTY_WORDS = {"util", "utils", "helper", "helpers", "common", "base", "manager", "impl"}
CODE = ("src", "tests", "examples", "benchmarks")
# One letter of each word is in brackets, or this file would accuse itself.
LATER = re.compile(r"TOD[O]|FIXM[E]|\bXX[X]\b")


def test_names_in_code_have_an_idea() -> None:
    for file in files(*CODE, suffix=".py"):
        empty = [name for name in _defined_names(parsed(file)) if EMPTY_WORDS & _words(name)]
        assert not empty, name_of(file)


def test_names_of_files_have_an_idea() -> None:
    assert not [name_of(file) for file in everything() if EMPTY_WORDS & _words(name_of(file))]


def test_nothing_is_left_for_later() -> None:
    assert not [name_of(file) for file in everything() if LATER.search(file.read_text(encoding="utf-8"))]


def _words(name: str) -> set[str]:
    return {word.casefold() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _defined_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
