"""Payloads as JSON, encoded strictly in the producer, before its transaction.

Whatever PostgreSQL or another reader would refuse or change is refused here: NaN and infinity, the character NUL,
lone surrogates, integers that a reader would round, keys that become equal, and nesting that a parser would give up on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from whippletree.errors import InvalidMessage

MAX_PAYLOAD_BYTES = 256 * 1024
MAX_DEPTH = 64
_LARGEST_INTEGER = 2**63 - 1

_encoder = msgspec.json.Encoder()


class Payload(str):
    """JSON text that `encode` made, and that need not be checked again. Only `encode` makes it."""

    __slots__ = ()


def encode(value: object, *, max_bytes: int = MAX_PAYLOAD_BYTES) -> Payload:
    """The value as JSON text. Raises `InvalidMessage`, which says what to mend and where."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=_plain)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidMessage(f"payload of type {type(value).__name__} cannot be JSON: {error}") from None
    except RecursionError:
        raise InvalidMessage(_too_deep("payload")) from None
    _require_faultless(plain)
    encoded = _encoder.encode(plain)
    if len(encoded) > max_bytes:
        raise InvalidMessage(_too_large(len(encoded), max_bytes))
    return Payload(encoded.decode())


def check_json(text: str, *, max_bytes: int = MAX_PAYLOAD_BYTES, name: str = "payload") -> None:
    """Raise `InvalidMessage` unless the text is JSON that `encode` could have made."""
    if isinstance(text, Payload):
        return
    if not isinstance(text, str):
        raise InvalidMessage(f"{name} is a {type(text).__name__}, not JSON text; use encode() to make it")
    # A character is a byte at least: what is far too large is not even read.
    if len(text) > max_bytes:
        raise InvalidMessage(_too_large(len(text), max_bytes, name))
    try:
        plain = msgspec.json.decode(text)
    except UnicodeEncodeError:
        raise InvalidMessage(f"{name} {_SURROGATE}") from None
    except RecursionError:
        raise InvalidMessage(_too_deep(name)) from None
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"{name} is not JSON: {str(error).removeprefix('JSON is malformed: ')}") from None
    _require_faultless(plain, name)
    if not text.isascii() and len(text.encode()) > max_bytes:
        raise InvalidMessage(_too_large(len(text.encode()), max_bytes, name))


def text_fault(text: str) -> str | None:
    """What is wrong with a text that PostgreSQL is to hold, in words; None when nothing is."""
    if "\x00" in text:
        return "contains the character NUL, which PostgreSQL text cannot hold"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return _SURROGATE
    return None


_SURROGATE = "contains a lone surrogate, which is not a character"


class _Fault(Exception):
    """What is wrong, and the way to it: written down only while unwinding, so that sound payloads do not pay for it."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.way: list[str] = []


class _TooDeep(Exception):
    """Too deep; the way to it would be too long to read."""


def _require_faultless(plain: Any, name: str = "payload") -> None:
    try:
        _check(plain, 0)
    except _Fault as fault:
        raise InvalidMessage(f"{name}{''.join(reversed(fault.way))} {fault.words}") from None
    except _TooDeep:
        raise InvalidMessage(_too_deep(name)) from None


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str):
        if words := text_fault(value):
            raise _Fault(words)
    elif value is None or isinstance(value, bool):
        return
    elif isinstance(value, int):
        if abs(value) > _LARGEST_INTEGER:
            raise _Fault("is an integer that readers would round; send it as a string")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _Fault(f"is {value}, which JSON does not have; use null or a string")
    else:
        _check_inside(value, depth + 1)


def _check_inside(container: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _TooDeep
    if isinstance(container, dict):
        _check_keys(container)
    places = container.items() if isinstance(container, dict) else enumerate(container)
    for place, item in places:
        try:
            _check(item, depth)
        except _Fault as fault:
            fault.way.append(f"[{place}]" if isinstance(container, list) else f".{place}")
            raise


def _check_keys(mapping: dict[Any, Any]) -> None:
    numbers = False
    for key in mapping:
        if isinstance(key, str):
            if words := text_fault(key):
                raise _Fault(f"has a key that {words}")
        elif isinstance(key, int) and not isinstance(key, bool):
            numbers = True
        else:
            raise _Fault(f"has the key {key!r}; JSON keys are strings")
    if numbers and len({str(key) for key in mapping}) < len(mapping):
        raise _Fault("has two keys that are the same text, a number and a string")


def _plain(value: Any) -> Any:
    """What msgspec does not know by itself: pydantic models, other mappings, and classes derived from str."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"JSON has no form for {type(value).__name__}")


def _too_large(size: int, max_bytes: int, name: str = "payload") -> str:
    return (
        f"{name} has {size} bytes, more than the {max_bytes} allowed; "
        "store large bodies elsewhere and send their address"
    )


def _too_deep(name: str) -> str:
    return f"{name} is nested more than {MAX_DEPTH} deep"
