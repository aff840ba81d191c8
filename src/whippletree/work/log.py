"""Every sentence that workers write to the log. Fields are in `extra`, for handlers that write JSON."""

from __future__ import annotations

import logging
from typing import Any

from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.handling import Work

_log = logging.getLogger("whippletree.receptors")


def receptor_failed(receptor: str, work: Work, error: BaseException, following: str) -> None:
    """With the traceback, which is for the log only: what is stored has no contents."""
    _log.warning(
        "receptor %s failed on %s at attempt %s (%s): %s",
        receptor,
        work.message_id,
        work.attempts,
        following,
        error_text(error),
        exc_info=error,
        extra=_fields(work, receptor=receptor, next=following),
    )


def unhandled(work: Work, reason: str) -> None:
    _log.error("message %s is parked: %s", work.message_id, reason, extra=_fields(work))


def lease_lost(queue: str, stream_id: object) -> None:
    _log.warning("the lease of stream %s in %s is lost; its work here is dropped", stream_id, queue)


def cannot_commit(error: BaseException) -> None:
    _log.warning("the database cannot be reached, and handled messages wait for their commit: %s", error_text(error))


def grace_over(streams: int) -> None:
    _log.warning("the grace period is over; %s streams are given back unfinished", streams)


def _fields(work: Work, **more: Any) -> dict[str, Any]:
    return {
        "message_id": str(work.message_id),
        "stream_id": str(work.stream_id),
        "version": work.version,
        "queue": work.queue,
        "attempts": work.attempts,
        **more,
    }
