"""What a receptor, a perspective or a subscriber may say of its failures and its effects."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from whippletree.dispatch.error_text import is_outage
from whippletree.errors import InvalidSetting

_LONGEST_OUTAGE_PAUSE = 10.0
"""Seconds between two attempts while the database lacks something, at most."""


class OnPoison(StrEnum):
    """What becomes of a message whose attempts are used up."""

    PARK = "park"
    """Its stream waits at it, until somebody redrives or skips it."""
    SKIP = "skip"
    """It goes to the dead letters, and its stream goes on."""


class Effects(StrEnum):
    """Where the effects of a receptor are."""

    TRANSACTION = "transaction"
    """In the transaction that also ends the message: they happen once."""
    EXTERNAL = "external"
    """Outside: they may be repeated after a crash, under the same idempotency key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a failed message is tried, and when. Pauses grow from `first_pause` by `factor` up to `longest_pause`,
    and are scattered, lest everything that failed together comes again together. Times are seconds."""

    attempts: int = 10
    first_pause: float = 1.0
    longest_pause: float = 300.0
    factor: float = 2.0
    on: tuple[type[Exception], ...] = (Exception,)
    """Only these are tried again; any other is poison at once."""
    never: tuple[type[Exception], ...] = ()
    """These are poison at once."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidSetting(f"attempts is {self.attempts}; a message is tried at least once")
        if not 0 <= self.first_pause <= self.longest_pause:
            raise InvalidSetting("first_pause must be between 0 and longest_pause")
        if self.factor < 1:
            raise InvalidSetting(f"factor is {self.factor}; pauses do not shrink, use 1 or more")

    def allows(self, error: BaseException) -> bool:
        """Whether this error is one to try again after."""
        return isinstance(error, self.on) and not isinstance(error, self.never)

    def pause(self, attempts: int) -> float:
        """Seconds to wait after so many attempts, before they are scattered."""
        # The exponent is bounded, because a float is.
        grown = self.first_pause * self.factor ** min(attempts - 1, 64)
        return min(grown, self.longest_pause)

    def again_after(
        self, error: BaseException, attempts: int, scatter: Callable[[float, float], float] = random.uniform
    ) -> float | None:
        """Seconds until what failed with `error` at its attempt number `attempts` is tried again; None for never."""
        if not self.allows(error) or attempts >= self.attempts:
            return None
        pause = self.pause(attempts)
        return scatter(pause / 2, pause)

    def postponed_by(
        self, error: BaseException, scatter: Callable[[float, float], float] = random.uniform
    ) -> float | None:
        """Seconds until what the database could not do is tried again, without counting; None when the error says
        nothing of the database, or is one that this policy does not try again after."""
        if not is_outage(error) or not self.allows(error):
            return None
        pause = min(self.longest_pause, _LONGEST_OUTAGE_PAUSE)
        return scatter(pause / 2, pause)
