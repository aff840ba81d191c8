"""The sentences that transports write to the log."""

from __future__ import annotations

import logging

_log = logging.getLogger("whippletree.transport")


def one_receiver_only(address: str) -> None:
    _log.warning("NATS is older than 2.11: run the receiver of %s on one instance only", address)


def nats_noted(error: BaseException) -> None:
    """What the client tells of its connection, which it mends itself."""
    _log.debug("NATS: %s", error or type(error).__name__)
