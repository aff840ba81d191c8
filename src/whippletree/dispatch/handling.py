"""From a piece of claimed work to the functions that handle it: decode, find who handles it, call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any

import msgspec

from whippletree.dispatch.context import Context, idempotency_key
from whippletree.dispatch.invoke import Providers, Surroundings, failed_by
from whippletree.dispatch.policy import Effects
from whippletree.dispatch.receptor import Receptor, Receptors
from whippletree.dispatch.routing import shape_of
from whippletree.errors import Error, ReceptorFailed, UnknownName
from whippletree.message.envelope import ClaimedMessage, ReceptorWork
from whippletree.message.type_names import MessageTypes
from whippletree.store.transaction import Transaction
from whippletree.telemetry import following, traced

Work = ClaimedMessage | ReceptorWork
_Key = tuple[str, str, int]
_Way = tuple[Callable[[str], Any], tuple[Receptor, ...], bool, bool]


class Unhandled(Exception):
    """Nobody can handle this message: it cannot be read, or no receptor takes it. It is parked, never skipped."""


class CallFailed(Exception):
    """A receptor raised; the error is the cause."""

    def __init__(self, receptor: Receptor, error: Exception) -> None:
        super().__init__(receptor.name)
        self.receptor = receptor
        self.error = error


class Found(msgspec.Struct, frozen=True, gc=False):
    """A message, and who handles it."""

    message: Any
    receptors: tuple[Receptor, ...]
    transactional: bool
    """Whether one of them works in our transaction."""
    external: bool
    """Whether its end is to be stored before the next message of its stream begins."""


class Handling:
    """Knows the receptors of a program and how to call them."""

    def __init__(self, types: MessageTypes, receptors: Receptors, providers: Providers) -> None:
        self._types = types
        self._receptors = receptors
        self._providers = providers
        # Remembered, because looking it up for each message would cost more than calling a small function.
        self._ways: dict[_Key, _Way] = {}

    def find(self, work: Work) -> Found:
        """Who handles a piece of work. Raises `Unhandled`. No receptor at all means that it is of no concern to us."""
        key = _key(work)
        decode, receptors, transactional, external = self._ways.get(key) or self._remember(key)
        try:
            message = decode(work.payload)
        except Error as error:
            raise Unhandled(str(error)) from None
        except Exception as error:
            # An upcaster is the user's code, and may raise anything.
            raise Unhandled(f"{key[1]} in shape {key[2]} cannot be read: {type(error).__name__}") from error
        return Found(message, receptors, transactional, external)

    async def call(
        self, found: Found, work: Work, transaction: Transaction | None = None, threads: Executor | None = None
    ) -> list[object]:
        """Call everybody who handles a message, one after the other; the messages that they return.

        Raises `CallFailed` for the first that raised.
        """
        if not traced(headers := headers_of(work)):
            return await self._call(found, work, transaction, threads)
        with following(headers):
            return await self._call(found, work, transaction, threads)

    async def _call(
        self, found: Found, work: Work, transaction: Transaction | None, threads: Executor | None
    ) -> list[object]:
        returned: list[object] = []
        for receptor in found.receptors:
            if work.attempts > receptor.retry.attempts:
                # Counted when it was claimed: every earlier attempt ended its process, or hung.
                raise CallFailed(
                    receptor, ReceptorFailed(f"each of {work.attempts - 1} attempts ended its process, or hung")
                )
            try:
                if (simple := receptor.invocation.simply(found.message, transaction)) is not None:
                    result = await simple
                else:
                    around = _around(work, receptor, transaction)
                    result = await receptor.invocation(found.message, around, self._providers, threads)
            except asyncio.CancelledError as cancelled:
                raise CallFailed(receptor, failed_by(cancelled)) from cancelled
            except Exception as error:
                raise CallFailed(receptor, error) from error
            if result is not None:
                returned.extend(messages_in(result))
        return returned

    def transactional(self, work: Work) -> bool:
        """Whether a piece of work needs a transaction of ours; False where nobody can handle it."""
        try:
            key = _key(work)
            return bool((self._ways.get(key) or self._remember(key))[2])
        except Unhandled:
            return False

    def _remember(self, key: _Key) -> _Way:
        way = self._ways[key] = self._way(*key)
        return way

    def _way(self, queue: str, message_type: str, shape: int) -> _Way:
        receptors: tuple[Receptor, ...]
        if queue.startswith("receptor/"):
            receptor = self._receptors.named(queue.removeprefix("receptor/"))
            # A pattern also means longer names that end alike; those are other types.
            receptors = (receptor,) if receptor and message_type in self._receptors.stored_types(receptor) else ()
            if not receptors:
                return (lambda _: None), (), False, False
        else:
            try:
                receptors = self._receptors.of_type(self._types.present_name(message_type, shape))
            except UnknownName as error:
                raise Unhandled(str(error)) from None
            if not receptors:
                raise Unhandled(f"no receptor handles {message_type}; register one and redrive, or skip the message")

        return (
            self._types.decoder(message_type, shape),
            receptors,
            any(receptor.invocation.takes_transaction for receptor in receptors),
            any(receptor.effects is Effects.EXTERNAL for receptor in receptors),
        )


def context_of(work: Work) -> Context:
    """What a function is told of the message before it."""
    if isinstance(work, ClaimedMessage):
        message_type, headers = work.message_type, work.headers
    else:
        message_type, headers = work.event_type, work.metadata
    return Context(
        message_id=work.message_id,
        message_type=message_type,
        stream_id=work.stream_id,
        version=work.version,
        attempts=work.attempts,
        created_at=work.created_at,
        correlation_id=work.correlation_id,
        causation_id=work.causation_id,
        headers=headers,
    )


def headers_of(work: Work) -> str | None:
    """The headers of a message, the metadata of an event."""
    return work.headers if isinstance(work, ClaimedMessage) else work.metadata


def _around(work: Work, receptor: Receptor, transaction: Transaction | None) -> Surroundings:
    context = context_of(work)
    return Surroundings(
        context=context, key=idempotency_key(receptor.name, context.message_id), transaction=transaction
    )


def messages_in(result: object) -> Iterable[object]:
    """What a receptor returned, as messages: one of them, or several in a list, a tuple or a set."""
    return result if isinstance(result, list | tuple | set | frozenset) else (result,)


def _key(work: Work) -> _Key:
    if isinstance(work, ReceptorWork):
        return work.queue, work.event_type, work.shape
    try:
        return work.queue, work.message_type, 1 if work.headers is None else shape_of(work.headers)
    except Error as error:
        raise Unhandled(str(error)) from None
