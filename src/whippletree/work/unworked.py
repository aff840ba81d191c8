"""Names the perspectives that have work and nobody who does it."""

from __future__ import annotations

import logging

from whippletree.dispatch.perspective_runner import PerspectiveRunner
from whippletree.errors import StoreError

_log = logging.getLogger("whippletree.perspectives")


async def name_the_unworked(runner: PerspectiveRunner) -> None:
    """Say so in the log, once; that the database does not answer is said elsewhere."""
    try:
        missing = await runner.unworked()
    except StoreError as error:
        _log.debug("not known which perspectives nobody runs: %s", error)
        return
    for name in missing:
        _log.warning(
            "No perspective runner found for perspective %s: its streams wait. Start a program that has it, or "
            "remove it from wh_perspective_mappings",
            name,
        )
