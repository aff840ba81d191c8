"""Given, when, then for a receptor, on a real database: what it returned, and which rows it changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from whippletree.app import App
from whippletree.dispatch.handling import CallFailed, Handling, Work
from whippletree.dispatch.receptor import Receptor
from whippletree.errors import UnknownName, UsageError
from whippletree.message.envelope import ClaimedMessage, Queue, ReceptorWork
from whippletree.message.ids import EventId, StreamId, new_message_id
from whippletree.message.type_names import MessageKind
from whippletree.store.database import prepared_pool
from whippletree.store.new_messages import stream_id_of
from whippletree.testing.draining import drained
from whippletree.work.trial import ChangedRows, Trial, try_work


def receptor(app: App, function: Callable[..., Any] | str) -> ReceptorCase:
    """A receptor to be tested: `(await receptor(app, reserve).given(placed).when(Reserve(...))).then(Reserved(...))`.

    The app is on a database of the test's own, as `Database.serves` makes it.
    """
    return ReceptorCase(app=app, receptor=registered(app, function))


def registered(app: App, function: Callable[..., Any] | str) -> Receptor:
    """The receptor of an app that a function or a name is."""
    for found in app.receptors:
        if found.invocation.function is function or found.name == function:
            return found
    raise UnknownName(f"{function} is no receptor of {app.name}; decorate it with @app.receptor")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceptorCase:
    """A receptor, and the messages that came before the one that it is to handle."""

    app: App
    receptor: Receptor
    messages: tuple[Any, ...] = ()

    def given(self, *messages: Any) -> Self:
        """What was published and worked off before."""
        return replace(self, messages=(*self.messages, *messages))

    async def when(self, message: Any) -> Handled:
        """Let the receptor handle a message, and commit what it did. Nobody else is given the message."""
        if self.messages:
            await self.app.publish_all(self.messages)
            await drained(self.app)
        app, work = self.app, self._work(message)
        handling = Handling(app.types, app.receptors, app.providers)
        async with prepared_pool(app.settings, size=2) as pool, pool.acquire() as connection:
            with app.using(pool):
                try:
                    async with connection.transaction():
                        schema = app.settings.schema
                        trial = await try_work(handling, app.router, work, on=connection, schema=schema)
                except CallFailed as failed:
                    return Handled(name=self.receptor.name, error=failed.error)
        return Handled(name=self.receptor.name, trial=trial)

    def _work(self, message: Any) -> Work:
        known = self.app.types.of(message)
        if known not in self.receptor.types:
            raise UsageError(f"{self.receptor.name} does not handle {known.name}")
        message_id = new_message_id()
        stream = known.stream_of(message) or message_id
        stream_id = StreamId(stream_id_of(stream) if isinstance(stream, str) else stream)
        payload, now = str(known.encode(message)), time.time()
        headers = None if known.shape == 1 else f'{{"wh_shape": {known.shape}}}'
        if known.kind is MessageKind.EVENT:
            of_event = (self.receptor.queue, stream_id, 1, EventId(message_id))
            return ReceptorWork(*of_event, known.name, payload, None, None, None, now, 1, 0, known.shape)
        place = (Queue.INBOX, stream_id, 1, message_id)
        return ClaimedMessage(*place, known.name, "", payload, headers, None, None, now, 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What became of a message. It is committed, unless the receptor raised."""

    name: str
    trial: Trial | None = None
    error: Exception | None = None

    def then(self, *messages: Any, changed: list[ChangedRows] | None = None) -> None:
        """The receptor returned these messages; and these rows it changed, where they are named."""
        if self.error is not None:
            raise AssertionError(f"{self.name} raised {self.error!r}") from self.error
        assert self.trial is not None
        assert list(self.trial.returned) == list(messages), f"{self.name} returned {self.trial.returned!r}"
        if changed is not None:
            assert list(self.trial.changed) == changed, f"{self.name} changed {self.trial.changed!r}"

    def then_raises(self, kind: type[Exception]) -> Exception:
        """The receptor raised this; nothing of what it did is left. The error is returned."""
        assert self.error is not None, f"{self.name} did not raise"
        assert isinstance(self.error, kind), f"{self.name} raised {self.error!r}"
        return self.error
