"""Every sentence that an instance writes to the log about itself. Errors come without passwords and row contents."""

from __future__ import annotations

import logging

from whippletree.dispatch.error_text import error_text
from whippletree.settings import Dsn

_log = logging.getLogger("whippletree.service")


def started(service: str, instance_id: object, dsn: Dsn) -> None:
    _log.info("%s runs as instance %s on %s", service, instance_id, dsn, extra={"instance_id": str(instance_id)})


def ended(service: str, instance_id: object) -> None:
    _log.info("%s, instance %s, has ended", service, instance_id, extra={"instance_id": str(instance_id)})


def ending(signal_name: str, grace: float) -> None:
    _log.info("%s: finishing within %.0f seconds; a second signal ends at once", signal_name, grace)


def ending_at_once() -> None:
    _log.warning("a second signal: ending at once; what was in hand is taken over by others")


def schedule_failed(error: BaseException) -> None:
    _log.warning("scheduled messages could not be stored, trying again: %s", error_text(error))


def found(severity: str, words: str) -> None:
    """What is not as it should be, at the start."""
    _log.log(logging.WARNING if severity == "warning" else logging.ERROR, "%s: %s", severity, words)
