"""The perspectives of a program: how they are registered, read and built again."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload
from uuid import UUID

from whippletree.dispatch.inline import InlinePerspectives
from whippletree.dispatch.invoke import Providers
from whippletree.dispatch.perspective import Perspective, PerspectiveSettings, define_perspective
from whippletree.dispatch.perspective_folder import PerspectiveFolder
from whippletree.dispatch.perspective_rebuilds import PerspectiveRebuilds
from whippletree.dispatch.policy import Retry
from whippletree.dispatch.publishing import Publishing
from whippletree.dispatch.routing import Router
from whippletree.dispatch.rows import Rows
from whippletree.errors import DuplicateName, UnknownName
from whippletree.message.type_names import MessageTypes
from whippletree.settings import Settings
from whippletree.store.blocking import BlockingPool
from whippletree.store.transaction import Transaction

F = TypeVar("F", bound=Callable[..., Any])
Row = TypeVar("Row")


class Perspectives(Publishing):
    """Registers perspectives, and gives what reads and rebuilds their rows."""

    def __init__(
        self,
        router: Router,
        types: MessageTypes,
        providers: Providers,
        settings: Callable[[], Settings],
        blocking: BlockingPool,
    ) -> None:
        super().__init__(router, settings, blocking)
        self.types = types
        self.providers = providers
        self.perspectives: dict[str, Perspective[Any]] = {}
        self.router.inline = self._inline

    @overload
    def perspective(self, function: F, /) -> F: ...

    @overload
    def perspective(
        self,
        /,
        *,
        name: str | None = None,
        columns: Iterable[str] | Mapping[str, str] = (),
        indexes: Iterable[str | Sequence[str]] = (),
        key: Callable[[Any], UUID | str] | None = None,
        inline: bool = False,
        tables: Iterable[str] = (),
        clear: Callable[[UUID | str, Transaction], Awaitable[None]] | None = None,
        retry: Retry | None = None,
    ) -> Callable[[F], F]: ...

    def perspective(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        columns: Iterable[str] | Mapping[str, str] = (),
        indexes: Iterable[str | Sequence[str]] = (),
        key: Callable[[Any], UUID | str] | None = None,
        inline: bool = False,
        tables: Iterable[str] = (),
        clear: Callable[[UUID | str, Transaction], Awaitable[None]] | None = None,
        retry: Retry | None = None,
    ) -> Callable[..., Any]:
        """Let a fold, `(row | None, event) -> row | None`, keep a row for every stream; it stays a plain function.

        With a `key` it keeps a row for whatever the key of an event is, from the events of all streams in the order of
        their commits. `inline` folds where the event is published, in that transaction. An `async def` writes by its
        own SQL, in `tables`, which a rebuild makes anew; `clear`, an `async def` too, removes from them what belongs to
        one stream, so that one stream can be made anew. `retry` says how often an event that fails is tried.
        """
        # Classes that were defined inside a function, as tests do, are known to nobody but that function's frame.
        names = dict(sys._getframe(1).f_locals)  # noqa: SLF001 - inspect.currentframe() is the same, typed worse
        settings = PerspectiveSettings(
            name=name,
            columns=columns,
            indexes=indexes,
            key=key,
            inline=inline,
            tables=tables,
            clear=clear,
            retry=retry,
        )

        def register(decorated: F) -> F:
            perspective = define_perspective(
                decorated, settings, types=self.types, providers=self.providers, names=names
            )
            if perspective.name in self.perspectives:
                raise DuplicateName(f"there is a perspective {perspective.name} already; give this one another name=")
            self.perspectives[perspective.name] = perspective
            return decorated

        return register if function is None else register(function)

    @overload
    def rows(self, perspective: str) -> Rows[Any]: ...

    @overload
    def rows(self, perspective: Callable[..., Row | None]) -> Rows[Row]: ...

    def rows(self, perspective: str | Callable[..., Any]) -> Rows[Any]:
        """Reads of a perspective's rows, on the app's connections or on yours. Given the function, they are typed."""
        return Rows(self._perspective_named(perspective), self._own_connections(), schema=self.settings.schema)

    @property
    def perspective_rebuilds(self) -> PerspectiveRebuilds:
        """Builds rows again, compares, swaps and undoes, and tells what a row was; on the app's connections."""
        return PerspectiveRebuilds(self.folder(), self.types, self._own_connections(), self._perspective_named)

    def folder(self) -> PerspectiveFolder:
        """What folds the perspectives that go stream by stream."""
        each = [perspective for perspective in self.perspectives.values() if perspective.key is None]
        return PerspectiveFolder(each, self.types, providers=self.providers, schema=self.settings.schema)

    def _perspective_named(self, given: str | Callable[..., Any]) -> Perspective[Any]:
        for name, perspective in self.perspectives.items():
            if given in (name, perspective.invocation.function):
                return perspective
        name = given if isinstance(given, str) else given.__name__
        raise UnknownName(f"no perspective of the name {name} is registered; decorate it with @app.perspective")

    def _inline(self) -> InlinePerspectives | None:
        if not any(perspective.inline for perspective in self.perspectives.values()):
            return None
        return InlinePerspectives(self.folder())
