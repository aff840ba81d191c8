"""The sentences that publishing and perspectives write to the log, whoever runs them."""

from __future__ import annotations

import logging

from whippletree.dispatch.error_text import being_handled

_publisher = logging.getLogger("whippletree.publisher")
_perspectives = logging.getLogger("whippletree.perspectives")


def transport_raised() -> None:
    """With the traceback of what is being handled."""
    _publisher.error("the transport raised instead of answering", exc_info=being_handled())


def to_be_rebuilt(perspective: str, columns: str) -> None:
    _perspectives.warning(
        "%s declares %s otherwise than its rows have it; `whippletree perspectives rebuild %s` and swap",
        *(perspective, columns, perspective),
    )
