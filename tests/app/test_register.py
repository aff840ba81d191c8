"""Wrong registrations fail at once, and say how to mend them; right ones leave functions and classes as they were."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

import whippletree as wt
from whippletree.errors import DuplicateName, InvalidSetting, UnknownName


@dataclass(frozen=True)
class Placed:
    order_id: str


@dataclass(frozen=True)
class Shipped:
    order_id: str


@dataclass(frozen=True)
class Cancel:
    order_id: str


@pytest.fixture
def app() -> wt.App:
    app = wt.App("orders")
    app.event(stream="order_id")(Placed)
    app.event(stream="order_id")(Shipped)
    app.command(stream="order_id")(Cancel)
    return app


async def test_a_decorated_function_stays_plain(app: wt.App) -> None:
    def plain(event: Placed | Shipped) -> str:
        return event.order_id

    assert app.receptor(plain) is plain
    assert app.receptor(name="again", retry=wt.Retry(attempts=3))(plain) is plain
    assert plain(Placed("17")) == "17"
    assert [receptor.name for receptor in app.receptors.of_type("Shipped")] == ["plain", "again"]


def test_a_class_that_is_known_only_inside_a_function_can_be_handled(app: wt.App) -> None:
    @app.command()
    @dataclass
    class Local:
        number: int

    @app.receptor
    def handle(command: Local) -> None: ...

    assert app.receptors.of_type("Local")


def test_a_command_has_one_receptor_and_an_event_several(app: wt.App) -> None:
    def one(message: Cancel | Placed) -> None: ...
    def two(message: Placed) -> None: ...
    def three(message: Cancel) -> None: ...

    app.receptor(one)
    app.receptor(two)
    with pytest.raises(DuplicateName, match="make it an event"):
        app.receptor(three)


def _unregistered(message: int) -> None: ...
def _any(message: Any) -> None: ...
async def _inside(message: Placed, tx: wt.Transaction) -> None: ...
def _plain_inside(message: Placed, tx: wt.Transaction) -> None: ...
def _fine(message: Placed) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "error", "advice"),
    [
        (_unregistered, {}, UnknownName, "decorate it with @app.event"),
        (_any, {}, InvalidSetting, "annotate it with the class of an event or a command"),
        (_plain_inside, {}, InvalidSetting, "write async def _plain_inside"),
        (_inside, {"effects": "external"}, InvalidSetting, "leave out one of the two"),
        (_fine, {"effects": "elsewhere"}, InvalidSetting, "effects='transaction' or effects='external'"),
        (_fine, {"on_poison": "drop"}, InvalidSetting, "on_poison='park' or on_poison='skip'"),
        (_fine, {"name": "two words"}, InvalidSetting, "cannot be the name of a receptor"),
        (17, {}, InvalidSetting, "not a function"),
    ],
)
def test_a_wrong_receptor_says_how_to_mend_it(
    app: wt.App, function: Any, options: dict[str, Any], error: type[Exception], advice: str
) -> None:
    with pytest.raises(error, match=advice):
        app.receptors.add(function, **options)
    assert not list(app.receptors)


def test_a_name_is_given_once(app: wt.App) -> None:
    app.receptor(_fine)
    with pytest.raises(DuplicateName, match="another name="):
        app.receptor(_fine)


def test_a_service_has_a_plain_name() -> None:
    with pytest.raises(InvalidSetting, match="letters, digits"):
        wt.App("my service")


def test_importing_the_package_imports_nothing_until_a_name_is_used() -> None:
    program = "import sys, whippletree; print('asyncpg' in sys.modules, whippletree.App.__name__, dir(whippletree)[0])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False App App\n"


def test_an_unknown_name_of_the_package_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        wt.Nothing  # noqa: B018
