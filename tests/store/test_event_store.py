"""Appending events and reading them again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import Connect
from tests.scenario import S
from whippletree.errors import DuplicateName, InvalidMessage, UsageError, WrongVersion
from whippletree.message.event import NewEvent
from whippletree.message.ids import new_event_id
from whippletree.message.upcast import Upcasters
from whippletree.store.event_store import EventStore, Span

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture
def store(pool: Pool) -> EventStore:
    return EventStore(pool)


def events(count: int, event_type: str = "Happened") -> list[NewEvent]:
    return [NewEvent(event_type=event_type, payload=f'{{"number": {number}}}') for number in range(1, count + 1)]


async def test_events_are_numbered_without_a_gap(store: EventStore) -> None:
    assert (await store.append(S, events(2))).versions == (1, 2)
    assert (await store.append(S, events(1))).versions == (3,)
    assert [event.version for event in await store.read(S)] == [1, 2, 3]


async def test_a_stream_is_named_by_a_text_or_by_a_uuid_written_as_text(store: EventStore) -> None:
    await store.append("order-17", events(1))
    await store.append(str(S), events(1))
    assert len(await store.read("order-17")) == 1
    assert [event.stream_id for event in await store.read(S)] == [S]


async def test_a_conflict_names_both_versions(store: EventStore) -> None:
    await store.append(S, events(2), expected_version=0)
    with pytest.raises(WrongVersion, match=f"stream {S} is at version 2, not at 1 as expected"):
        await store.append(S, events(1), expected_version=1)
    assert (await store.append(S, events(1), expected_version=2)).versions == (3,)


async def test_only_one_of_two_decisions_at_the_same_version_is_stored(store: EventStore) -> None:
    await store.append(S, events(1))
    decisions = [store.append(S, events(1), expected_version=1) for _ in range(5)]
    outcomes = await asyncio.gather(*decisions, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Receipt"] + ["WrongVersion"] * 4


@pytest.mark.parametrize("count", [1, 2])
async def test_appending_again_changes_nothing(store: EventStore, count: int) -> None:
    first, versions = events(count), tuple(range(1, count + 1))
    assert (await store.append(S, first, expected_version=0)).versions == versions
    assert (await store.append(S, first, expected_version=0)).versions == versions
    assert (await store.append(S, events(1))).versions == (count + 1,)
    assert len(await store.read(S)) == count + 1


async def test_two_copies_of_one_append_store_it_once(store: EventStore) -> None:
    same = events(3)
    receipts = await asyncio.gather(*(store.append(S, same) for _ in range(5)))
    assert [receipt.versions for receipt in receipts] == [(1, 2, 3)] * 5


async def test_an_append_that_is_half_there_is_refused(store: EventStore) -> None:
    first, second = events(2)
    await store.append(S, [first])
    with pytest.raises(InvalidMessage, match="some of these events were appended before"):
        await store.append(S, [first, second])
    with pytest.raises(InvalidMessage, match="to another stream"):
        await store.append("elsewhere", [first])


async def test_an_append_rolls_back_with_its_transaction(store: EventStore, connect: Connect) -> None:
    connection = await connect()
    transaction = connection.transaction()
    await transaction.start()
    assert (await store.append(S, events(2), on=connection)).versions == (1, 2)
    await transaction.rollback()
    assert await store.read(S) == []
    assert (await store.append(S, events(1))).versions == (1,)


@pytest.mark.parametrize(
    ("span", "versions"),
    [
        (Span(), [1, 2, 3, 4, 5]),
        (Span(after=3), [4, 5]),
        (Span(up_to=2), [1, 2]),
        (Span(after=1, up_to=3), [2, 3]),
        (Span(backwards=True), [5, 4, 3, 2, 1]),
        (Span(backwards=True, limit=2), [5, 4]),
        (Span(after=1, limit=2), [2, 3]),
        (Span(types=["Odd"]), [1, 3, 5]),
        (Span(types=[]), []),
    ],
    ids=str,
)
async def test_a_stream_is_read_in_parts(store: EventStore, span: Span, versions: list[int]) -> None:
    for number in range(1, 6):
        await store.append(S, events(1, "Odd" if number % 2 else "Even"))
    assert [event.version for event in await store.read(S, span)] == versions


async def test_a_stream_is_read_as_it_was_at_a_time(store: EventStore) -> None:
    await store.append(S, events(1))
    (first,) = await store.read(S)
    await store.append(S, events(1))
    assert await store.read(S, Span(until=first.created_at)) == [first]
    assert await store.read(S, Span(until=first.created_at - timedelta(seconds=1))) == []


async def test_the_envelope_comes_back_as_it_went(store: EventStore) -> None:
    cause, thread = UUID(int=1), UUID(int=2)
    event = NewEvent(
        event_type="Placed",
        payload='{"b": 1.10, "a": 2}',
        shape=3,
        metadata='{"by": "ann"}',
        correlation_id=thread,
        causation_id=cause,
    )
    await store.append(S, [event])
    (stored,) = await store.read(S)
    assert (stored.event_id, stored.payload, stored.metadata) == (event.event_id, event.payload, event.metadata)
    assert (stored.shape, stored.correlation_id, stored.causation_id) == (3, thread, cause)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"payload": "{"}, "event 1 .*payload is not JSON"),
        ({"payload": '"\\u0000"'}, "NUL"),
        ({"event_type": "no spaces"}, "event_type 'no spaces' must be"),
        ({"shape": 0}, "counted from 1"),
        ({"event_id": UUID(int=0)}, "all zeros"),
    ],
)
async def test_a_bad_event_is_refused_before_anything_is_written(
    store: EventStore, changes: dict[str, Any], words: str
) -> None:
    event = NewEvent(**{"event_type": "Placed", "payload": "{}", **changes})
    with pytest.raises(InvalidMessage, match=words):
        await store.append(S, [event])
    assert await store.read(S) == []


async def test_nothing_to_append_is_a_mistake(store: EventStore) -> None:
    with pytest.raises(UsageError, match="nothing to append"):
        await store.append(S, [])


async def test_old_shapes_are_lifted_on_reading(pool: Pool) -> None:
    upcasters = Upcasters()
    upcasters.add("OrderMade", 1, lambda value: {"total": value["sum"]}, becomes="OrderPlaced")
    upcasters.add("OrderPlaced", 1, lambda value: {**value, "currency": "EUR"})
    store = EventStore(pool, upcasters=upcasters)
    await store.append(S, [NewEvent(event_type="OrderMade", payload='{"sum": 5}')])
    await store.append(S, [NewEvent(event_type="OrderPlaced", payload='{"total": 6}')])
    await store.append(S, [NewEvent(event_type="OrderPlaced", payload='{"total": 7, "currency": "USD"}', shape=2)])
    lifted = await store.read(S)
    assert [(event.event_type, event.shape) for event in lifted] == [("OrderPlaced", 2)] * 3
    assert [event.payload for event in lifted] == [
        '{"total":5,"currency":"EUR"}',
        '{"total":6,"currency":"EUR"}',
        '{"total": 7, "currency": "USD"}',
    ]
    with pytest.raises(DuplicateName, match="from shape 1 already"):
        upcasters.add("OrderPlaced", 1, dict)


async def test_a_second_append_waits_for_the_first_and_comes_after_it(store: EventStore, connect: Connect) -> None:
    """Version order is commit order, also when the transactions overlap."""
    connection = await connect()
    transaction = connection.transaction()
    await transaction.start()
    await store.append(S, [NewEvent(event_type="First", payload="{}")], on=connection)
    second = asyncio.create_task(store.append(S, [NewEvent(event_type="Second", payload="{}")]))
    await transaction.commit()
    assert (await second).versions == (2,)
    assert [event.event_type for event in await store.read(S)] == ["First", "Second"]


def test_an_event_id_is_new_every_time() -> None:
    assert len({new_event_id() for _ in range(1000)}) == 1000
