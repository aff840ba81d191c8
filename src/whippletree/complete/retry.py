"""How a failed piece of work goes on: tried again, parked, or given up. Decided here, carried out by the database."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from whippletree.dispatch.policy import OnPoison, Retry


class Next(Enum):
    """What is next for a message that failed."""

    RETRY = auto()
    PARK = auto()
    SKIP = auto()


class Decision(NamedTuple):
    """What is next, and after how many seconds it is tried again."""

    next: Next
    retry_seconds: float | None = None


def decide(
    retry: Retry,
    on_poison: OnPoison,
    error: BaseException,
    attempts: int,
    *,
    scatter: Callable[[float, float], float] = random.uniform,
) -> Decision:
    """The decision on a message that failed with `error` at its attempt number `attempts`."""
    pause = retry.again_after(error, attempts, scatter)
    if pause is not None:
        return Decision(Next.RETRY, pause)
    return Decision(Next.SKIP if on_poison is OnPoison.SKIP else Next.PARK)
