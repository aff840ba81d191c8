"""How a user's function is called: the message first, then whatever its annotations ask for.

A signature is read once, when the function is registered, and a wrong one is refused there, with what to write instead.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from whippletree.dispatch.context import Context, IdempotencyKey
from whippletree.errors import DuplicateName, InvalidSetting
from whippletree.store.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What can be injected into one call. `transaction` is None where there is none."""

    context: Context
    key: IdempotencyKey
    transaction: Transaction | None = None


class Providers:
    """The user's own dependencies, by type: a function without parameters that gives one for each call."""

    def __init__(self) -> None:
        self._factories: dict[Any, Callable[[], Any]] = {}

    def add(self, python_type: Any, factory: Callable[[], Any]) -> None:
        """Make a type known. Raises when it is known already, or when the factory cannot be called."""
        if python_type in (Transaction, Context, IdempotencyKey):
            raise InvalidSetting(f"{_shown(python_type)} is given by Whippletree itself; provide a type of your own")
        if python_type in self._factories:
            raise DuplicateName(f"{_shown(python_type)} is provided already")
        if not callable(factory):
            raise InvalidSetting(
                f"what provides {_shown(python_type)} is a value; give a function, such as lambda: value"
            )
        self._factories[python_type] = factory

    def get(self, python_type: Any) -> Any:
        """What the factory gives; to be awaited when the factory is asynchronous."""
        return self._factories[python_type]()

    def __contains__(self, python_type: Any) -> bool:
        return python_type in self._factories


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One function, ready to be called. `message_types` are the classes that its first parameter takes."""

    name: str
    function: Callable[..., Any]
    message_types: tuple[type, ...]
    returns: tuple[type, ...]
    asynchronous: bool
    takes_transaction: bool
    injected: tuple[tuple[str, Any], ...]

    def simply(self, message: Any, transaction: Transaction | None) -> Awaitable[Any] | None:
        """The call of a coroutine function that asks for nothing, or for the transaction alone, as most do: what else
        there is need not be put together for it. None for any other function."""
        if not self.asynchronous:
            return None
        if not self.injected:
            return self.function(message)  # type: ignore[no-any-return]  # a coroutine
        ((name, asked), *more) = self.injected
        return self.function(message, **{name: transaction}) if asked is Transaction and not more else None

    async def __call__(
        self, message: Any, around: Surroundings, providers: Providers, threads: Executor | None = None
    ) -> Any:
        """Call the function; a plain `def` runs in a thread, so that it does not stop the others."""
        try:
            arguments = {name: await _value(asked, around, providers) for name, asked in self.injected}
            if self.asynchronous:
                return await self.function(message, **arguments)
            # With its context, so that a trace goes on in the thread.
            call = functools.partial(contextvars.copy_context().run, self.function, message, **arguments)
            return await asyncio.get_running_loop().run_in_executor(threads, call)
        except asyncio.CancelledError as cancelled:
            raise failed_by(cancelled) from cancelled


def failed_by(cancelled: asyncio.CancelledError) -> Exception:
    """How a function has failed that let the cancellation of something it awaited through. A cancellation that is meant
    for the task which called it goes on."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise cancelled
    return RuntimeError("something that it awaited was cancelled")


def read_signature(
    function: Callable[..., Any],
    *,
    name: str,
    providers: Providers,
    leading: int = 1,
    names: Mapping[str, Any] | None = None,
) -> Invocation:
    """What a function takes and returns. The message is its parameter number `leading`; later ones are injected.

    `names` are further names that its annotations may use. Raises `InvalidSetting`, which says what to write.
    """
    hints = hints_of(function, name, names)
    parameters = list(inspect.signature(function).parameters.values())
    _check_parameters(parameters, hints, name, leading)
    injected = tuple(
        (parameter.name, hints[parameter.name])
        for parameter in parameters[leading:]
        if parameter.name in hints
        and (parameter.default is parameter.empty or _known(hints[parameter.name], providers))
    )
    for parameter_name, asked in injected:
        if not _known(asked, providers):
            raise InvalidSetting(
                f"nothing is known to give {name} for {parameter_name}: {_shown(asked)}; it can ask for Transaction, "
                "Context, IdempotencyKey, or for what app.provide() was told of before"
            )
    asynchronous = inspect.iscoroutinefunction(function)
    takes_transaction = any(asked is Transaction for _, asked in injected)
    return Invocation(
        name=name,
        function=function,
        message_types=classes_in(hints[parameters[leading - 1].name]),
        returns=classes_in(hints.get("return")),
        asynchronous=asynchronous,
        takes_transaction=takes_transaction,
        injected=injected,
    )


def _check_parameters(parameters: list[inspect.Parameter], hints: Mapping[str, Any], name: str, leading: int) -> None:
    if len(parameters) < leading:
        raise InvalidSetting(f"{name} takes no message; write def {name}(event: OrderPlaced)")
    for place, parameter in enumerate(parameters, 1):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidSetting(f"{name} takes *{parameter.name}; name each parameter and annotate it")
        if parameter.kind is parameter.KEYWORD_ONLY and place <= leading:
            raise InvalidSetting(f"{name} takes its message by name only; let its first parameter be the message")
        if parameter.kind is parameter.POSITIONAL_ONLY and place > leading:
            raise InvalidSetting(f"{parameter.name} of {name} is injected by name; move the / before it")
        if parameter.name not in hints and (parameter.default is parameter.empty or place <= leading):
            raise InvalidSetting(f"parameter {parameter.name} of {name} has no type; annotate it with what it is to be")


def classes_in(annotation: Any) -> tuple[type, ...]:
    """The classes of an annotation: of a union all but None, of a list its elements'."""
    if annotation is None or annotation is type(None) or annotation is Any:
        return ()
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return classes_in(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType) or (isinstance(origin, type) and origin in _SEQUENCES):
        found = [python_type for part in typing.get_args(annotation) for python_type in classes_in(part)]
        return tuple(dict.fromkeys(found))
    return (annotation,) if isinstance(annotation, type) else ()


_SEQUENCES = (list, tuple, set, frozenset, Sequence, Iterable)


def hints_of(function: Callable[..., Any], name: str, names: Mapping[str, Any] | None) -> dict[str, Any]:
    """The annotations of a function, resolved."""
    try:
        return typing.get_type_hints(function, localns=dict(names or {}), include_extras=False)
    except TypeError:
        raise InvalidSetting(f"{name} is not a plain function; write def or async def") from None
    except NameError as error:
        raise InvalidSetting(
            f"an annotation of {name} names {error.name!r}, which is not known here; import it outside of "
            "TYPE_CHECKING, before the function"
        ) from None


def _known(asked: Any, providers: Providers) -> bool:
    return asked in (Transaction, Context, IdempotencyKey) or asked in providers


async def _value(asked: Any, around: Surroundings, providers: Providers) -> Any:
    if asked is Transaction:
        return around.transaction
    if asked is Context:
        return around.context
    if asked is IdempotencyKey:
        return around.key
    given = providers.get(asked)
    return await given if inspect.isawaitable(given) else given


def _shown(asked: Any) -> str:
    return getattr(asked, "__qualname__", None) or str(asked)
