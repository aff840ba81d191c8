"""The sentences that workers write to the log. Fields are in `extra`, for handlers that write JSON."""

from __future__ import annotations

import logging
from typing import Any

from whippletree.dispatch.error_text import being_handled, error_text, without_details
from whippletree.dispatch.handling import Work

_log = logging.getLogger("whippletree.receptors")
_subscribers = logging.getLogger("whippletree.subscription")
_perspectives = logging.getLogger("whippletree.perspectives")
_loop = logging.getLogger("whippletree.loop")
_maintenance = logging.getLogger("whippletree.maintenance")
_transport = logging.getLogger("whippletree.transport")
_receiver = logging.getLogger("whippletree.receiver")


def receptor_failed(receptor: str, work: Work, error: BaseException, following: str) -> None:
    """With the traceback."""
    _log.warning(
        "receptor %s failed on %s at attempt %s (%s): %s",
        receptor,
        work.message_id,
        work.attempts,
        following,
        error_text(error),
        exc_info=without_details(error),
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


def subscriber_broke_off(name: str) -> None:
    """With the traceback of what is being handled."""
    _subscribers.error("subscriber %s broke off, and is begun again", name, exc_info=being_handled())


def subscriber_not_left(name: str, error: BaseException) -> None:
    _subscribers.info("subscriber %s was not left in good order: %s", name, error_text(error))


def feed_unreadable(error: BaseException) -> None:
    _subscribers.warning("the feed cannot be read at present: %s", error_text(error))


def forgotten(count: int) -> None:
    _maintenance.info("%s message ids are forgotten", count, extra={"forgotten": count})


def not_forgotten(error: BaseException) -> None:
    _maintenance.warning("old message ids could not be forgotten, trying again: %s", error_text(error))


def ended_silent_transactions(count: int) -> None:
    words = "%s transactions of instances that were stopped or cut off are ended"
    _maintenance.warning(words, count, extra={"ended": count})


def silent_transactions_not_ended(error: BaseException) -> None:
    words = "transactions of instances that were cut off could not be looked for, trying again: %s"
    _maintenance.warning(words, error_text(error))


def report_refused(count: int, error: BaseException) -> None:
    words = "the database does not take the end of %s messages, which are let go and tried again: %s"
    _loop.error(words, count, error_text(error))


def callback_raised() -> None:
    """With the traceback of what is being handled."""
    _loop.error("a callback of a worker raised", exc_info=being_handled())


def rejoining(error: BaseException, lost: int, instance_id: object) -> None:
    _loop.warning("%s; %s leases are lost, and it joins again as %s", error, lost, instance_id)


def no_work_batch(pause: float, error: BaseException) -> None:
    _loop.warning("no work batch, trying again in %.2f seconds at most: %s", pause, error_text(error))


def ends_without_a_word(instance: object, error: BaseException) -> None:
    _loop.warning("instance %s ends without a word to the database: %r", instance, error)


def not_ready(error: BaseException) -> None:
    _loop.debug("the database is not ready: %s", error_text(error))


def transport_down(reason: str) -> None:
    _transport.warning("the transport is down: %s. Messages wait in the outbox.", reason)


def transport_still_down(error: BaseException) -> None:
    _transport.info("the transport is still down: %s", error_text(error))


def transport_back() -> None:
    _transport.info("the transport answers again")


def receives_nothing(group: str, error: BaseException, *, again: bool) -> None:
    _receiver.log(logging.INFO if again else logging.WARNING, "%s receives nothing: %s", group, error)


def cannot_store_deliveries(group: str, error: BaseException) -> None:
    _receiver.warning("%s cannot store what it received yet: %s", group, error)


def delivery_not_storable(topic: str, error: BaseException) -> None:
    _receiver.info("a delivery on topic %r cannot be stored as it is: %s", topic, error)


def delivery_set_aside(topic: str, identity: object, reason: str) -> None:
    _receiver.error("a delivery on topic %r is kept as dead letter %s: %s", topic, identity, reason)


def deliveries_conflict(count: int) -> None:
    _receiver.error("%d deliveries have ids that were accepted before with another body", count)


def perspective_worker_starting(instance_id: object, service: str, host: str) -> None:
    _perspectives.info("Perspective worker starting: Instance %s (%s@%s)", instance_id, service, host)


def perspectives_not_ready(count: int) -> None:
    _perspectives.info("Database not ready, skipping perspective checkpoint processing (consecutive checks: %s)", count)


def perspectives_paused(count: int) -> None:
    _perspectives.warning("Database not ready for %s consecutive polling cycles. Perspective worker is paused.", count)


def perspectives_wait(error: BaseException) -> None:
    _perspectives.warning("perspectives wait for the database: %s", error)


def perspective_raised(perspective: str, streams: int) -> None:
    """With the traceback of what is being handled."""
    words = "Error processing perspective checkpoints: %s, %s streams"
    _perspectives.error(words, perspective, streams, exc_info=being_handled())


def perspective_failed(perspective: str, stream_id: object, reason: str) -> None:
    _perspectives.error("Error processing perspective checkpoint: %s for stream %s: %s", perspective, stream_id, reason)


def rebuilds_unknown(error: BaseException) -> None:
    _subscribers.warning("rebuilds cannot be looked for at present: %s", error)


def unworked(perspective: str) -> None:
    _perspectives.warning(
        "No perspective runner found for perspective %s: its streams wait. Start a program that has it, or "
        "remove it from wh_perspective_mappings",
        perspective,
    )


def unworked_unknown(error: BaseException) -> None:
    _perspectives.debug("not known which perspectives nobody runs: %s", error_text(error))


def _fields(work: Work, **more: Any) -> dict[str, Any]:
    return {
        "message_id": str(work.message_id),
        "stream_id": str(work.stream_id),
        "version": work.version,
        "queue": work.queue,
        "attempts": work.attempts,
        **more,
    }
