"""Given, when, then for perspectives, without a database."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

import whippletree as wt
from whippletree.errors import UsageError
from whippletree.testing import perspective


@dataclass(frozen=True)
class Placed:
    order: str
    total: int


@dataclass(frozen=True)
class Changed:
    order: str
    total: int


@dataclass(frozen=True)
class Removed:
    order: str


@dataclass(frozen=True)
class Summary:
    total: int
    version: int = 0


def summary(row: Summary | None, event: Placed | Changed | Removed, context: wt.Context) -> Summary | None:
    if isinstance(event, Removed):
        return None
    if isinstance(event, Changed) and row is None:
        raise ValueError("a change of nothing")
    return Summary(event.total, context.version)


def test_a_fold_is_held_against_the_row_that_it_should_make() -> None:
    perspective(summary).given(Placed("1", 5)).when(Changed("1", 7)).then(Summary(7, 2))
    perspective(summary).given(Placed("1", 5)).when(Removed("1")).then(None)
    with pytest.raises(AssertionError, match=r"summary made Summary\(total=7, version=2\), not Summary\(total=8"):
        perspective(summary).given(Placed("1", 5)).when(Changed("1", 7)).then(Summary(8, 2))


def test_a_fold_that_raises_fails_with_its_words() -> None:
    perspective(summary).when(Changed("1", 7)).then_fails("ValueError: a change of nothing")
    with pytest.raises(AssertionError, match="summary failed at event 1"):
        perspective(summary).when(Changed("1", 7)).then(Summary(7))
    with pytest.raises(AssertionError, match="did not fail"):
        perspective(summary).when(Placed("1", 7)).then_fails("anything")


def test_a_row_that_cannot_be_stored_fails_here_too() -> None:
    def wrong(row: Summary | None, event: Placed) -> Summary | None:
        return event  # type: ignore[return-value]  # which is what is to be found out

    perspective(wrong).when(Placed("1", 1)).then_fails("wrong returned a Placed")


def test_a_fold_that_is_no_pure_function_is_found_out() -> None:
    numbers = itertools.count()

    def counting(row: Summary | None, event: Placed) -> Summary | None:
        return Summary(next(numbers))

    with pytest.raises(AssertionError, match="of the same events"):
        perspective(counting).when(Placed("1", 1)).then(Summary(0))


def test_a_hand_written_perspective_is_for_a_database() -> None:
    async def written(event: Placed, tx: wt.Transaction) -> None: ...

    with pytest.raises(UsageError, match="drained"):
        perspective(written)
