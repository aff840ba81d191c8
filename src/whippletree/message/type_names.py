"""The user's own types, under stable names. A type comes from this registry, never from an import path in data."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from whippletree.errors import DuplicateName, InvalidMessage, InvalidSetting, UnknownName
from whippletree.message.codec import Payload, encode, text_fault
from whippletree.message.envelope import check_type
from whippletree.message.upcast import Upcasters

T = TypeVar("T")

StreamKey = str | Callable[[Any], UUID | str] | None
"""How a message names its stream: by one of its fields, or by a function of it."""


class MessageKind(StrEnum):
    """What a message says: that something happened, or that something is to be done."""

    EVENT = "event"
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageType(Generic[T]):
    """One registered type: its name in the database, and the ways there and back."""

    name: str
    python_type: type[T]
    kind: MessageKind
    shape: int
    topic: str | None
    """Where others outside read it; None when it stays here."""
    stream: Callable[[T], UUID | str] | None
    decoder: Callable[[str], T]

    def stream_of(self, message: T) -> UUID | str | None:
        """The stream that a message belongs to; None when the type has no streams."""
        if self.stream is None:
            return None
        stream = self.stream(message)
        if not isinstance(stream, UUID | str):
            raise InvalidMessage(
                f"the stream of a {self.name} is of type {type(stream).__name__}; give a UUID, or a text such as "
                "'order-17', because a bare number would share its stream with the same number of another thing"
            )
        return stream

    def encode(self, message: T) -> Payload:
        """The message as JSON."""
        return encode(message)

    def decode(self, payload: str) -> T:
        """The message that the JSON describes, or `InvalidMessage`."""
        try:
            # Payloads that were not read from the database are of a class of their own, which msgspec refuses.
            return self.decoder(str(payload))
        except (msgspec.MsgspecError, ValueError) as error:
            raise InvalidMessage(f"this is no {self.name}: {without_contents(error)}") from None


class MessageTypes:
    """The types that a program knows. Every name and every class is registered once."""

    def __init__(self) -> None:
        self.upcasters = Upcasters()
        self._named: dict[str, MessageType[Any]] = {}
        self._of_class: dict[type, MessageType[Any]] = {}

    def register(
        self,
        python_type: type[T],
        *,
        kind: MessageKind,
        stream: StreamKey,
        name: str | None = None,
        shape: int = 1,
        topic: str | None = None,
    ) -> MessageType[T]:
        """Make a type known. Raises at once when it could not travel."""
        if not isinstance(python_type, type):
            raise InvalidSetting(f"{python_type!r} is not a class; register the class of your {kind}")
        name = name or python_type.__name__
        _check_names(name, shape, topic)
        if python_type in self._of_class:
            raise DuplicateName(
                f"{python_type.__qualname__} is registered already, as {self._of_class[python_type].name}"
            )
        if name in self._named:
            other = self._named[name].python_type
            raise DuplicateName(
                f"{name} is already the name of {other.__module__}.{other.__qualname__}; give another name="
            )
        if kind is MessageKind.EVENT and stream is None:
            raise InvalidSetting(f"{name} is an event and needs a stream; say for example stream='order_id'")
        registered = MessageType(
            name=name,
            python_type=python_type,
            kind=kind,
            shape=shape,
            topic=topic,
            stream=_stream_getter(python_type, name, stream),
            decoder=decoder_of(python_type),
        )
        self._named[name] = self._of_class[python_type] = registered
        return registered

    def event_names(self) -> list[str]:
        """The names of all events."""
        return sorted(name for name, known in self._named.items() if known.kind is MessageKind.EVENT)

    def of(self, message: T) -> MessageType[T]:
        """The type of a message."""
        return self.of_class(type(message))

    def of_class(self, python_type: type[T]) -> MessageType[T]:
        """The registered type of a class."""
        found = self._of_class.get(python_type)
        if found is None:
            raise UnknownName(
                f"{python_type.__qualname__} is not registered; decorate it with @app.event(stream=…) or @app.command()"
            )
        return found

    def named(self, name: str) -> MessageType[Any]:
        """The type of that name."""
        found = self._named.get(name)
        if found is None:
            raise UnknownName(
                f"no type of the name {name} is registered; register it, or add an upcaster that gives it another name"
            )
        return found

    def present_name(self, name: str, shape: int) -> str:
        """The registered name that messages of a stored type have at present. Raises `UnknownName`."""
        return self.named(self.upcasters.present_name(name, shape)).name

    def decoder(self, name: str, shape: int) -> Callable[[str], Any]:
        """What `decode` does for one stored type, as quickly as it can be done."""
        known = self._named.get(name)
        if known is not None and shape <= known.shape and not self.upcasters.needed(name, shape):
            return known.decode
        return lambda payload: self.decode(name, shape, payload)

    def decode(self, name: str, shape: int, payload: str) -> Any:
        """The message of a stored type, lifted to its present shape. Raises `UnknownName` or `InvalidMessage`."""
        if self.upcasters.needed(name, shape):
            name, shape, payload = self.upcasters.lift_payload(name, shape, payload)
        known = self.named(name)
        if shape > known.shape:
            raise UnknownName(
                f"{name} is stored in shape {shape}, but this program knows shape {known.shape} only; deploy "
                "the newer program"
            )
        return known.decode(payload)


def _check_names(name: str, shape: int, topic: str | None) -> None:
    try:
        check_type("the name", name)
    except InvalidMessage as fault:
        raise InvalidSetting(str(fault)) from None
    if shape < 1:
        raise InvalidSetting(f"shape of {name} is {shape}; shapes are counted from 1")
    if topic is not None and (not topic or text_fault(topic)):
        raise InvalidSetting(f"topic of {name} is {topic!r}; give it a name such as 'orders', or leave it out")


def _stream_getter(python_type: type, name: str, stream: StreamKey) -> Callable[[Any], UUID | str] | None:
    if stream is None or callable(stream):
        return stream
    fields = fields_of(python_type)
    if stream not in fields:
        raise InvalidSetting(
            f"{name} has no field {stream!r} to name its stream by; it has {', '.join(fields) or 'none'}"
        )
    if fields[stream] in (int, "int"):
        raise InvalidSetting(
            f"{name}.{stream} is a number, which would share its stream with the same number of another thing; "
            f"say for example stream=lambda message: f'{stream.removesuffix('_id')}-{{message.{stream}}}'"
        )
    field = stream
    return lambda message: typing.cast(UUID | str, getattr(message, field))


def fields_of(python_type: type) -> dict[str, Any]:
    """The names of a type's fields and their annotations, as written."""
    if dataclasses.is_dataclass(python_type):
        return {field.name: field.type for field in dataclasses.fields(python_type)}
    if issubclass(python_type, msgspec.Struct):
        return {field: python_type.__annotations__.get(field) for field in python_type.__struct_fields__}
    if _is_pydantic(python_type):
        return {field: info.annotation for field, info in typing.cast(Any, python_type).model_fields.items()}
    raise InvalidSetting(
        f"{python_type.__qualname__} is neither a dataclass nor a pydantic model nor a msgspec struct; "
        "put @dataclass(frozen=True) under the decorator"
    )


def decoder_of(python_type: type[T]) -> Callable[[str], T]:
    """How JSON text becomes a value of the type. Raises `InvalidSetting` for a type that cannot be read."""
    fields_of(python_type)
    if _is_pydantic(python_type):
        return typing.cast("Callable[[str], T]", typing.cast(Any, python_type).model_validate_json)
    try:
        return msgspec.json.Decoder(python_type, dec_hook=_inner).decode
    except NameError:
        # A type may name itself, or one that is defined after it: then the first message finds out.
        return _LateDecoder(python_type)
    except TypeError as error:
        raise InvalidSetting(f"{python_type.__qualname__} cannot be read from JSON: {error}") from None


class _LateDecoder(Generic[T]):
    def __init__(self, python_type: type[T]) -> None:
        self._python_type = python_type
        self._decoder: msgspec.json.Decoder[T] | None = None

    def __call__(self, payload: str) -> T:
        if self._decoder is None:
            self._decoder = msgspec.json.Decoder(self._python_type, dec_hook=_inner)
        return self._decoder.decode(payload)


def _inner(python_type: type, value: Any) -> Any:
    """What msgspec does not know by itself: a pydantic model inside a dataclass or a struct."""
    if _is_pydantic(python_type):
        return typing.cast(Any, python_type).model_validate(value)
    raise TypeError(f"{python_type.__qualname__} cannot be read from JSON")


def _is_pydantic(python_type: type) -> bool:
    return callable(getattr(python_type, "model_validate_json", None))


def without_contents(error: BaseException) -> str:
    """Pydantic's errors quote the input, which may be secret; those of msgspec name only types and places."""
    if isinstance(error, msgspec.MsgspecError):
        return str(error)
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return type(error).__name__
    return "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in errors(include_url=False))
