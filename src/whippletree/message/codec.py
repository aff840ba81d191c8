"""Payloads as JSON, encoded strictly in the producer, before its transaction.

Whatever PostgreSQL or another reader would refuse or change is refused here: NaN and infinity, the character NUL,
lone surrogates, integers that a reader would round, and nesting that a parser would give up on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from whippletree.errors import InvalidMessage

MAX_PAYLOAD_BYTES = 256 * 1024
MAX_DEPTH = 64
_LARGEST_INTEGER = 2**63 - 1

_encoder = msgspec.json.Encoder()


def encode(value: object, *, max_bytes: int = MAX_PAYLOAD_BYTES) -> str:
    """The value as JSON text. Raises `InvalidMessage`, which says what to mend and where."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True)
    except (TypeError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidMessage(f"payload of type {type(value).__name__} cannot be JSON: {error}") from None
    _check(plain, "payload", 0)
    encoded = _encoder.encode(plain)
    if len(encoded) > max_bytes:
        raise InvalidMessage(
            f"payload has {len(encoded)} bytes, more than the {max_bytes} allowed; "
            "store large bodies elsewhere and send their address"
        )
    return encoded.decode()


def check_json(text: str, *, max_bytes: int = MAX_PAYLOAD_BYTES) -> str:
    """The text itself, if it is JSON that `encode` could have made."""
    try:
        plain = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidMessage(f"payload is not JSON: {error}") from None
    _check(plain, "payload", 0)
    if len(text.encode()) > max_bytes:
        raise InvalidMessage(f"payload has {len(text.encode())} bytes, more than the {max_bytes} allowed")
    return text


def _check(value: Any, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidMessage(f"{where} is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        if abs(value) > _LARGEST_INTEGER:
            raise InvalidMessage(f"{where} is an integer that readers would round; send it as a string")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidMessage(f"{where} is {value}, which JSON does not have; use null or a string")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_text(key, f"a key of {where}")
            _check(item, f"{where}.{key}", depth + 1)
    elif isinstance(value, Sequence):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth + 1)


def _check_text(text: str, where: str) -> None:
    if "\x00" in text:
        raise InvalidMessage(f"{where} contains the character NUL, which PostgreSQL text cannot hold")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidMessage(f"{where} contains a lone surrogate, which is not a character") from None
