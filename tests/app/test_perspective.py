"""A perspective of an app is folded by its instances, and a receipt waits for it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.work.shop import Placed, Reserve, new_app, running
from whippletree.errors import DuplicateName, UnknownName, UsageError
from whippletree.settings import Dsn


@dataclass(frozen=True)
class Summary:
    count: int = 0


async def test_a_receipt_waits_until_the_perspective_has_the_event(dsn: Dsn) -> None:
    app = new_app(dsn)

    @app.perspective
    def summary(row: Summary | None, event: Placed) -> Summary | None:
        return Summary((row or Summary()).count + 1)

    @app.receptor
    async def reserve(command: Reserve) -> None: ...

    async with running(app):
        for _ in range(3):
            receipt = await app.publish(Placed("order-1"))
        await receipt.applied(summary, timeout=60)
        assert await app.rows(summary).get("order-1") == Summary(3)
        command = await app.publish(Reserve("order-1"))
        with pytest.raises(UsageError, match="wait for the event"):
            await command.applied(summary)


def test_a_perspective_is_registered_once_under_its_name(dsn: Dsn) -> None:
    app = new_app(dsn)

    def summary(row: Summary | None, event: Placed) -> Summary | None:
        return row

    assert app.perspective(summary) is summary
    with pytest.raises(DuplicateName, match="another name="):
        app.perspective(summary)
    with pytest.raises(UnknownName, match=r"@app\.perspective"):
        app.rows("other")
