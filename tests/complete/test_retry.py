from __future__ import annotations

import pytest

from whippletree.complete.retry import Decision, Next, decide
from whippletree.dispatch.policy import OnPoison, Retry
from whippletree.errors import InvalidSetting


def _latest(_: float, longest: float) -> float:
    return longest


def test_pauses_grow_up_to_the_longest_and_are_scattered() -> None:
    retry = Retry(attempts=100, first_pause=1, factor=2, longest_pause=10)
    pauses = [decide(retry, OnPoison.PARK, OSError(), tried, scatter=_latest).retry_seconds for tried in range(1, 7)]
    assert pauses == [1, 2, 4, 8, 10, 10]
    assert decide(retry, OnPoison.PARK, OSError(), 99).next is Next.RETRY

    scattered = {decide(retry, OnPoison.PARK, OSError(), 4).retry_seconds for _ in range(20)}
    assert len(scattered) > 1
    assert all(pause is not None and 4 <= pause <= 8 for pause in scattered)


def test_the_last_attempt_parks_or_skips() -> None:
    retry = Retry(attempts=3)
    assert decide(retry, OnPoison.PARK, OSError(), 2).next is Next.RETRY
    assert decide(retry, OnPoison.PARK, OSError(), 3) == Decision(Next.PARK)
    assert decide(retry, OnPoison.SKIP, OSError(), 3) == Decision(Next.SKIP)


def test_only_errors_worth_it_are_tried_again() -> None:
    retry = Retry(on=(OSError,), never=(ConnectionRefusedError,))
    assert decide(retry, OnPoison.PARK, TimeoutError(), 1).next is Next.RETRY
    assert decide(retry, OnPoison.PARK, ConnectionRefusedError(), 1).next is Next.PARK
    assert decide(retry, OnPoison.PARK, ValueError(), 1).next is Next.PARK


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_pause": -1}, {"first_pause": 400}, {"factor": 0.5}])
def test_a_policy_that_cannot_work_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSetting):
        Retry(**wrong)  # type: ignore[arg-type]
