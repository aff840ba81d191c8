"""A perspective is read from its function, and a wrong one is refused at once, with what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.shop import OrderPlaced, Pool, Shop, Summary, order_summary
from whippletree.dispatch.context import Context, IdempotencyKey
from whippletree.errors import InvalidSetting, UnknownName
from whippletree.store.transaction import Transaction


@pytest.fixture
def shop(pool: Pool) -> Shop:
    return Shop(pool)


class Place(msgspec.Struct, rename="camel"):
    post_code: str


@dataclass
class Wide:
    name: str
    count: int
    share: float
    price: Decimal
    done: bool
    owner: UUID
    since: datetime | None
    place: Place
    words: list[str]


def test_a_fold_stays_a_plain_function_and_tells_all_by_its_annotations(shop: Shop) -> None:
    found = shop.define(order_summary, columns=["customer"], indexes=["customer", ("customer",)])
    assert found.invocation.function is order_summary
    assert (found.name, found.row_type, found.inline) == ("order_summary", Summary, False)
    assert found.patterns == ("OrderChanged", "OrderPlaced", "OrderRemoved")
    assert order_summary(None, OrderPlaced(UUID(int=1), "Ada", 3)) == Summary("Ada", 3)


def test_an_older_name_of_an_event_is_folded_too(shop: Shop) -> None:
    shop.types.upcasters.add("OrderTaken", 1, lambda value: value, becomes="OrderMade")
    shop.types.upcasters.add("OrderMade", 1, lambda value: value, becomes="OrderPlaced")
    assert {"OrderTaken", "OrderMade", "OrderPlaced"} <= set(shop.define(order_summary).patterns)


def test_the_types_of_columns_come_from_the_annotations(shop: Shop) -> None:
    def wide(row: Wide | None, event: OrderPlaced) -> Wide | None: ...

    fields = ["name", "count", "share", "price", "done", "owner", "since"]
    found = _defined(shop, wide, columns={name: name for name in fields} | {"code": "place.post_code"})
    assert [column.sql_type for column in found.columns] == [
        *("text", "bigint", "double precision", "numeric", "boolean", "uuid", "timestamptz", "text"),
    ]
    assert found.columns[-1].path == ("place", "postCode")


async def written(event: OrderPlaced, tx: Transaction) -> None: ...


def test_a_hand_written_one_asks_for_the_transaction(shop: Shop) -> None:
    found = _defined(shop, written)
    assert found.row_type is None
    assert found.invocation.takes_transaction


def nothing(row: Summary | None) -> Summary | None: ...
def no_row(row: None, event: OrderPlaced) -> Summary | None: ...
def no_event(row: Summary | None, event: Any) -> Summary | None: ...
def no_return(row: Summary | None, event: OrderPlaced) -> None: ...
def impure(row: Summary | None, event: OrderPlaced, tx: Transaction) -> Summary | None: ...
def keyed(row: Summary | None, event: OrderPlaced, key: IdempotencyKey) -> Summary | None: ...
async def unwritten(event: OrderPlaced) -> None: ...
async def async_fold(row: Summary | None, event: OrderPlaced) -> Summary | None: ...
def timed(row: Summary | None, event: OrderPlaced, context: Context) -> Summary | None: ...
def wide(row: Wide | None, event: OrderPlaced) -> Wide | None: ...


@pytest.mark.parametrize(
    ("function", "settings", "says"),
    [
        (nothing, {}, "write def nothing(row: Summary | None, event:"),
        (no_row, {}, "the row of no_row is not one class"),
        (no_event, {}, "does not say which events it takes"),
        (no_return, {}, "is not said to return a Summary"),
        (impure, {}, "make it async def impure(event: …, tx: Transaction)"),
        (keyed, {}, "may ask for nothing but the Context"),
        (unwritten, {}, "does not ask for the transaction"),
        (async_fold, {}, "nothing is known to give async_fold for event"),
        (written, {"columns": ["a"]}, "writes its own tables"),
        (timed, {"name": "a-b"}, "cannot name a perspective"),
        (timed, {"columns": "customer"}, r"write columns=['customer']"),
        (timed, {"columns": ["colour"]}, "but Summary has customer, total, changes, address"),
        (timed, {"columns": ["address"]}, "a column can be one of str, bool, int"),
        (timed, {"columns": {"version": "total"}}, "key, row, updated_at, version are there already"),
        (timed, {"indexes": ["customer"]}, "declare the column too"),
        (timed, {"key": str, "inline": True}, "drop inline=True"),
        (wide, {"columns": ["words"]}, "a column can be one of"),
    ],
)
def test_a_wrong_definition_is_refused_and_says_how_to_mend_it(
    shop: Shop, function: Any, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        _defined(shop, function, **settings)
    assert says in str(refusal.value)


def test_an_event_that_is_not_registered_is_refused(shop: Shop) -> None:
    def stray(row: Summary | None, event: Summary) -> Summary | None: ...

    with pytest.raises(UnknownName, match="Summary is not registered"):
        _defined(shop, stray)


def _defined(shop: Shop, function: Any, **settings: Any) -> Any:
    return shop.define(function, **settings)
