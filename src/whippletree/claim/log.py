"""The sentences that the session, the keeper and the locks of an instance write to the log."""

from __future__ import annotations

import logging

_session = logging.getLogger("whippletree.session")
_keeper = logging.getLogger("whippletree.keeper")
_locks = logging.getLogger("whippletree.exclusive")


def session_lost(instance_id: object, reason: str) -> None:
    _session.warning("the session of instance %s is lost: %s; reconnecting", instance_id, reason)


def cannot_reconnect(instance_id: object, error: BaseException) -> None:
    _session.info("instance %s cannot reconnect its session yet: %s", instance_id, error)


def without_a_session(instance_id: object, reason: str) -> None:
    _session.warning(
        "instance %s works without a session: %s. It polls instead of being woken, and if it dies its work is "
        "taken over only after the stale threshold. Connect directly to PostgreSQL, not through a pooler.",
        instance_id,
        reason,
    )


def loop_is_blocked(leases: int) -> None:
    _keeper.warning("the event loop is blocked, or waits for an answer: %s leases are renewed in its place", leases)


def not_renewed(error: BaseException) -> None:
    _keeper.warning("leases could not be renewed: %s", type(error).__name__)


def locks_not_given_up(error: BaseException) -> None:
    _locks.info("locks were not given up in good order: %s; their connection is gone, and they with it", error)


def locks_cannot_be_tried_for(error: BaseException) -> None:
    _locks.info("locks cannot be tried for at present: %s", error)
