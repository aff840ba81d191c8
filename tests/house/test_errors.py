from __future__ import annotations

import re
from collections.abc import Iterator

from whippletree import errors


def test_the_drawn_tree_of_errors_is_the_tree() -> None:
    assert list(_drawn(errors.__doc__ or "")) == list(_defined(errors.Error, None))


def test_the_drawn_words_are_the_docstrings() -> None:
    for name, words in re.findall(r"[├└]── (\w+) {2,}(\S.*)$", errors.__doc__ or "", re.MULTILINE):
        docstring = getattr(errors, name).__doc__
        assert docstring.casefold() == f"{words}.".casefold(), name


def _drawn(text: str) -> Iterator[tuple[str, str | None]]:
    above: list[str] = []
    for branch, name in re.findall(r"^((?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+)(?=\s{2}|$)", text, re.MULTILINE):
        depth = len(branch) // 4
        above[depth:] = [name]
        yield name, above[depth - 1] if depth else None


def _defined(error: type[BaseException], parent: str | None) -> Iterator[tuple[str, str | None]]:
    yield error.__name__, parent
    for child in error.__subclasses__():
        # Tests may define errors of their own.
        if child.__module__.startswith("whippletree."):
            yield from _defined(child, error.__name__)
