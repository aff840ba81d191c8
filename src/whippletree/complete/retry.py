"""How a failed piece of work goes on: tried again, parked, or given up. Decided here, carried out by the database."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from whippletree.dispatch.policy import OnPoison, Retry
from whippletree.message.outcome import Verdict


class Next(Enum):
    """What is next for a message that failed."""

    RETRY = auto()
    POSTPONE = auto()
    PARK = auto()
    SKIP = auto()


class Decision(NamedTuple):
    """What is next, and after how many seconds it is tried again."""

    next: Next
    retry_seconds: float | None = None

    @property
    def verdict(self) -> Verdict:
        """In the words of the database, which has none for a skip: that is a completion."""
        return {Next.RETRY: Verdict.RETRY, Next.POSTPONE: Verdict.POSTPONE}.get(self.next, Verdict.PARK)


def decide(
    retry: Retry,
    on_poison: OnPoison,
    error: BaseException,
    attempts: int,
    *,
    scatter: Callable[[float, float], float] = random.uniform,
) -> Decision:
    """The decision on a message that failed with `error` at its attempt number `attempts`."""
    if (pause := retry.postponed_by(error, scatter)) is not None:
        return Decision(Next.POSTPONE, pause)
    pause = retry.again_after(error, attempts, scatter)
    if pause is not None:
        return Decision(Next.RETRY, pause)
    return Decision(Next.SKIP if on_poison is OnPoison.SKIP else Next.PARK)
