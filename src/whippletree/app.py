"""`App`: what a program tells Whippletree of its messages and of the functions that handle them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from whippletree.dispatch.invoke import Providers, read_signature
from whippletree.dispatch.perspectives import Perspectives
from whippletree.dispatch.policy import Retry
from whippletree.dispatch.receptor import Receptors
from whippletree.dispatch.routing import Router
from whippletree.dispatch.subscriber import CheckpointEvery, InstanceMode, Start, Subscriber
from whippletree.dispatch.transport import TransportFactory
from whippletree.errors import DuplicateName, InvalidSetting
from whippletree.message.type_names import MessageKind, MessageTypes, StreamKey
from whippletree.message.upcast import Upcaster
from whippletree.settings import Settings
from whippletree.store.blocking import BlockingPool
from whippletree.store.database import prepared_pool

if TYPE_CHECKING:
    from whippletree.service import ServiceSettings

C = TypeVar("C", bound=type[Any])
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
U = TypeVar("U", bound=Upcaster)


@dataclass(frozen=True, slots=True)
class Outside:
    """How a service is connected to others."""

    factory: TransportFactory
    receives: frozenset[str]


class App(Perspectives):
    """One service: its messages, its receptors, and how to publish. Making it does no input or output.

    The database is that of `settings`; of `dsn` and `schema`; or of the WHIPPLETREE_* variables and pyproject.toml.
    Without any, the embedded PostgreSQL is used.
    """

    def __init__(
        self, name: str, *, dsn: str | None = None, schema: str | None = None, settings: Settings | None = None
    ) -> None:
        if not name or not name.replace("-", "_").isidentifier() or not name.isascii():
            raise InvalidSetting(f"{name!r} cannot be the name of a service: use letters, digits, - and _")
        if settings is not None and (dsn is not None or schema is not None):
            raise InvalidSetting("give settings, or dsn and schema, not both")
        self.name = name
        types, providers = MessageTypes(), Providers()
        self.receptors = Receptors(types, providers)
        self.subscribers: dict[str, Subscriber] = {}
        self.outside: Outside | None = None
        found = settings

        def load() -> Settings:
            nonlocal found
            if found is None:
                found = Settings.load(dsn=dsn, schema=schema)
            return found

        blocking = BlockingPool(lambda: prepared_pool(self.settings, size=2))
        super().__init__(Router(types, self.receptors), types, providers, load, blocking)

    def event(
        self, *, stream: StreamKey, name: str | None = None, shape: int = 1, topic: str | None = None
    ) -> Callable[[C], C]:
        """Register a class as an event: something that has happened, kept for ever in the stream that it names.

        `stream` is the field that names it, or a function of the event. With a `topic` it is also published outside.
        `shape` counts the changes of its form that an upcaster bridges.
        """
        return self._registering(MessageKind.EVENT, stream, name, shape, topic)

    def command(
        self, *, stream: StreamKey = None, name: str | None = None, shape: int = 1, topic: str | None = None
    ) -> Callable[[C], C]:
        """Register a class as a command: something that is to be done, once, by one receptor.

        Commands of one `stream` are handled in order. `topic` leads to the service that handles it, if not this one.
        """
        return self._registering(MessageKind.COMMAND, stream, name, shape, topic)

    @overload
    def receptor(self, function: F, /) -> F: ...

    @overload
    def receptor(
        self,
        /,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        on_poison: Literal["park", "skip"] = "park",
        effects: Literal["transaction", "external"] = "transaction",
    ) -> Callable[[F], F]: ...

    def receptor(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        on_poison: Literal["park", "skip"] = "park",
        effects: Literal["transaction", "external"] = "transaction",
    ) -> Callable[..., Any]:
        """Let a function handle the messages that its first parameter is annotated with; it stays a plain function.

        What it writes on its `Transaction`, the messages that it returns and the end of its message commit together.
        With `effects="external"` it runs outside of any transaction, one message of a stream at a time: ask for an
        `IdempotencyKey`, which stays the same when a crash makes it run again.
        """
        # Classes that were defined inside a function, as tests do, are known to nobody but that function's frame.
        names = dict(sys._getframe(1).f_locals)  # noqa: SLF001 - inspect.currentframe() is the same, typed worse

        def register(decorated: F) -> F:
            self.receptors.add(decorated, name=name, retry=retry, on_poison=on_poison, effects=effects, names=names)
            return decorated

        return register if function is None else register(function)

    def subscriber(
        self,
        name: str,
        /,
        *,
        mode: InstanceMode = InstanceMode.SINGLE_INSTANCE,
        start: Start | int = Start.BEGINNING,
        patterns: Sequence[str] | None = None,
        retry: Retry | None = None,
        checkpoint: CheckpointEvery | None = None,
    ) -> Callable[[F], F]:
        """Let a function follow all events in one order, under a name that keeps its place; it stays a plain function.

        Its annotation chooses the events, or patterns do, for one that takes any `StoredEvent`. With a `Transaction`
        its effects commit together with its place; else ask for an `IdempotencyKey`, and it is called at least once.
        """
        names = dict(sys._getframe(1).f_locals)  # noqa: SLF001 - as above

        def register(decorated: F) -> F:
            if name in self.subscribers:
                raise DuplicateName(f"there is a subscriber {name} already; give each a name of its own")
            found = Subscriber(
                invocation=read_signature(decorated, name=name, providers=self.providers, names=names),
                types=self.types,
                providers=self.providers,
                patterns=patterns,
                start=start,
                mode=mode,
                retry=retry or Retry(),
                checkpoint=checkpoint or CheckpointEvery(),
            )
            found.require_choice()
            self.subscribers[name] = found
            return decorated

        return register

    def provide(self, python_type: type[T], factory: Callable[[], T] | Callable[[], Any]) -> None:
        """Give functions that ask for this type what the factory makes, for each call. It may be asynchronous."""
        self.providers.add(python_type, factory)

    def transport(self, factory: TransportFactory, *, receives: Collection[str] = ()) -> None:
        """Publish the outbox over a transport, and take in these topics from it.

        `PostgresTransport.into` and `NatsTransport.at` make a factory of their settings. One of your own gets the
        connections and the coordinator of the running instance, and returns an asynchronous context.
        """
        if self.outside is not None:
            raise DuplicateName(f"{self.name} has a transport already; one transport can route to several")
        if isinstance(receives, str):
            raise InvalidSetting(f"receives is a text; give a list of topics, such as [{receives!r}]")
        self.outside = Outside(factory, frozenset(receives))

    def upcaster(self, name: str, *, shape: int, becomes: str | None = None) -> Callable[[U], U]:
        """Let a function lift the JSON of a stored message from `shape` to the next one, or to another type."""

        def register(lift: U) -> U:
            self.types.upcasters.add(name, shape, lift, becomes=becomes)
            return lift

        return register

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[App]:
        """Connections of the app's own, for publishing without `on`. Handles no messages: `running` does."""
        async with prepared_pool(self.settings) as pool:
            with self.using(pool):
                yield self

    @asynccontextmanager
    async def running(self, settings: ServiceSettings | None = None) -> AsyncIterator[App]:
        """Handle messages in this process while the context is open; leaving it finishes what is begun."""
        from whippletree.service import Service

        async with Service(self, settings).running():
            yield self

    def lifespan(self, settings: ServiceSettings | None = None) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """The same for FastAPI and Starlette: `FastAPI(lifespan=app.lifespan())`."""

        @asynccontextmanager
        async def lifespan(_: Any) -> AsyncIterator[None]:
            async with self.running(settings):
                yield

        return lifespan

    def _registering(
        self, kind: MessageKind, stream: StreamKey, name: str | None, shape: int, topic: str | None
    ) -> Callable[[C], C]:
        def register(python_type: C) -> C:
            self.types.register(python_type, kind=kind, stream=stream, name=name, shape=shape, topic=topic)
            return python_type

        return register
