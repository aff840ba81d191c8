"""Calls what others have left to be called. None of them can stop the work, or the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from whippletree.work import log


def call_all(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call each of them; what one raises goes to the log."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            log.callback_raised()
