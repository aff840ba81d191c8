"""Calls what others have left to be called. None of them can stop the work, or the next one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

_log = logging.getLogger("whippletree.callbacks")


def call_all(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call each of them; what one raises goes to the log."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            _log.exception("a callback of a worker raised")
