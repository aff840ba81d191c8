"""Names the perspectives that have work and nobody who does it."""

from __future__ import annotations

from whippletree.dispatch.perspective_runner import PerspectiveRunner
from whippletree.errors import StoreError
from whippletree.work import log


async def name_the_unworked(runner: PerspectiveRunner) -> None:
    """Say so in the log, once; that the database does not answer is said elsewhere."""
    try:
        missing = await runner.unworked()
    except StoreError as error:
        log.unworked_unknown(error)
        return
    for name in missing:
        log.unworked(name)
