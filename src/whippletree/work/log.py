"""Every sentence that workers write to the log. Fields are in `extra`, for handlers that write JSON."""

from __future__ import annotations

import logging
from typing import Any

from whippletree.dispatch.error_text import error_text
from whippletree.dispatch.handling import Work

_log = logging.getLogger("whippletree.receptors")
_subscribers = logging.getLogger("whippletree.subscription")


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


def subscriber_is(name: str, state: str, checkpoint: int, epoch: int) -> None:
    _subscribers.info("subscriber %s: %s at %d, epoch %d", name, state, checkpoint, epoch)


def subscriber_waits(name: str, error: BaseException) -> None:
    _subscribers.info("subscriber %s waits for the database: %s", name, error_text(error))


def subscriber_failed(name: str, number: int, attempts: int, words: str) -> None:
    _subscribers.warning("subscriber %s failed at event %d, attempt %d: %s", name, number, attempts, words)


def subscriber_lost(name: str, error: BaseException) -> None:
    _subscribers.warning("subscriber %s is lost: %s", name, error_text(error))


def subscriber_stopped(name: str) -> None:
    """With the traceback of what is being handled."""
    _subscribers.exception("subscriber %s stopped", name)


def subscriber_not_left(name: str, error: BaseException) -> None:
    _subscribers.info("subscriber %s was not left in good order: %s", name, error_text(error))


def feed_unreadable(error: BaseException) -> None:
    _subscribers.warning("the feed cannot be read at present: %s", error_text(error))


def _fields(work: Work, **more: Any) -> dict[str, Any]:
    return {
        "message_id": str(work.message_id),
        "stream_id": str(work.stream_id),
        "version": work.version,
        "queue": work.queue,
        "attempts": work.attempts,
        **more,
    }
