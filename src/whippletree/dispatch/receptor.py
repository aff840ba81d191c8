"""Receptors: the user's functions that handle messages, and which of them handles which type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from whippletree.dispatch.invoke import Invocation, Providers, read_signature
from whippletree.dispatch.policy import Effects, OnPoison, Retry
from whippletree.errors import DuplicateName, InvalidSetting, UnknownName
from whippletree.message.type_names import MessageKind, MessageType, MessageTypes

_NAME = "letters, digits, _ and ., at most 100 of them, not beginning with a digit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receptor:
    """One function, the types that it handles, and what becomes of its failures."""

    name: str
    invocation: Invocation
    types: tuple[MessageType[Any], ...]
    retry: Retry
    on_poison: OnPoison
    effects: Effects

    @property
    def queue(self) -> str:
        """Where the stored events wait that it handles."""
        return f"receptor/{self.name}"

    @property
    def event_types(self) -> tuple[str, ...]:
        """The events that it handles, by name."""
        return tuple(known.name for known in self.types if known.kind is MessageKind.EVENT)


class Receptors:
    """All receptors of a program. A command has one of them, an event any number."""

    def __init__(self, types: MessageTypes, providers: Providers) -> None:
        self._types = types
        self._providers = providers
        self._named: dict[str, Receptor] = {}
        self._of_type: dict[str, tuple[Receptor, ...]] = {}

    def add(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retry: Retry | None = None,
        on_poison: str = OnPoison.PARK,
        effects: str = Effects.TRANSACTION,
        names: Mapping[str, Any] | None = None,
    ) -> Receptor:
        """Register a function. Raises at once, with what to write instead, when it could not be called."""
        if not callable(function):
            raise InvalidSetting(f"{function!r} is not a function; write @app.receptor above one")
        name = name or str(getattr(function, "__name__", ""))
        if not name.replace(".", "_").isidentifier() or not name.isascii() or len(name) > 100:
            raise InvalidSetting(f"{name!r} cannot be the name of a receptor: use {_NAME}")
        if name in self._named:
            raise DuplicateName(f"there is a receptor {name} already; give this one another name=")
        invocation = read_signature(function, name=name, providers=self._providers, names=names)
        receptor = Receptor(
            name=name,
            invocation=invocation,
            types=self._known_types(invocation),
            retry=retry or Retry(),
            on_poison=_member(OnPoison, on_poison, "on_poison", name),
            effects=_member(Effects, effects, "effects", name),
        )
        self._check(receptor)
        self._named[name] = receptor
        for known in receptor.types:
            self._of_type[known.name] = (*self._of_type.get(known.name, ()), receptor)
        return receptor

    def only(self, receptor: Receptor) -> Receptors:
        """The same program with one receptor and no other."""
        alone = Receptors(self._types, self._providers)
        alone._named[receptor.name] = receptor
        alone._of_type.update({known.name: (receptor,) for known in receptor.types})
        return alone

    def of_type(self, message_type: str) -> tuple[Receptor, ...]:
        """Who handles a type."""
        return self._of_type.get(message_type, ())

    def named(self, name: str) -> Receptor | None:
        return self._named.get(name)

    def stored_types(self, receptor: Receptor) -> frozenset[str]:
        """The names under which events that a receptor handles may be stored: their own, and those of former times."""
        return frozenset[str]().union(*(self._types.upcasters.names_of(name) for name in receptor.event_types))

    def __iter__(self) -> Iterator[Receptor]:
        return iter(self._named.values())

    def check(self) -> None:
        """Raise `UnknownName` when a receptor returns a type that is not registered, which only now can be known."""
        for receptor in self:
            for python_type in receptor.invocation.returns:
                try:
                    self._types.of_class(python_type)
                except UnknownName as fault:
                    raise UnknownName(f"{receptor.name} returns {fault}") from None

    def _known_types(self, invocation: Invocation) -> tuple[MessageType[Any], ...]:
        if not invocation.message_types:
            raise InvalidSetting(
                f"the first parameter of {invocation.name} is no message; annotate it with the class of an event or a "
                "command, or with a union of several"
            )
        return tuple(self._types.of_class(python_type) for python_type in invocation.message_types)

    def _check(self, receptor: Receptor) -> None:
        if receptor.invocation.takes_transaction and not receptor.invocation.asynchronous:
            raise InvalidSetting(
                f"{receptor.name} takes a Transaction, whose calls are awaited; write async def {receptor.name}"
            )
        if receptor.effects is Effects.EXTERNAL and receptor.invocation.takes_transaction:
            raise InvalidSetting(
                f"{receptor.name} has effects='external' and takes a Transaction; it runs outside of any, so leave out "
                "one of the two"
            )
        for known in receptor.types:
            if known.kind is MessageKind.COMMAND and (others := self.of_type(known.name)):
                raise DuplicateName(
                    f"the command {known.name} is handled by {others[0].name} already; a command has one receptor, "
                    "make it an event if several are to know of it"
                )


def _member(kind: Any, value: str, option: str, name: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        choices = " or ".join(f"{option}={member.value!r}" for member in kind)
        raise InvalidSetting(f"{option}={value!r} of {name} means nothing; say {choices}") from None
