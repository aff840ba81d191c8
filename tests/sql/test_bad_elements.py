"""One bad element does not sink a batch: it is refused with a reason, and the others go through."""

from __future__ import annotations

import json
import math
from typing import Any

import asyncpg
import pytest

from tests.sql.caller import Caller, element, ids, reasons, status
from whippletree.message.ids import new_message_id

ZEROS = "00000000-0000-0000-0000-000000000000"
DEEP = "[" * 50_000 + "]" * 50_000

BAD_MESSAGES: list[tuple[str, Any, str]] = [
    ("a number", 7, "the element is not a JSON object"),
    ("a string", "x", "the element is not a JSON object"),
    ("null", None, "the element is not a JSON object"),
    ("a list", [], "the element is not a JSON object"),
    ("an empty object", {}, "message_id is missing"),
    ("no id", element(message_id=None), "message_id is missing"),
    ("an id that is no UUID", element(message_id="abc"), "message_id is missing or is not a UUID"),
    ("a zero id", element(message_id=ZEROS), "message_id is all zeros"),
    ("a zero stream", element(None, stream_id=ZEROS), "stream_id is all zeros"),
    ("a stream that is no UUID", element(None, stream_id="abc"), "stream_id is not a UUID"),
    ("an empty stream key", element(""), "stream_key is empty"),
    ("a long stream key", element("k" * 1001), "stream_key has more than 1000 characters"),
    ("a long topic", element(topic="t" * 1001), "topic has more than 1000 characters"),
    ("headers of 10 MB", element(headers={"h": "x" * 10_000_000}), "headers have 10000009 bytes, more than the 262144"),
    ("two streams", element("a", stream_id=str(new_message_id())), "name two streams"),
    ("a partition of its own", element("a", partition_key="b"), "a stream has one partition"),
    ("a partition's number", element("a", partition_number=3), "partition_number follows from the stream"),
    ("no type", element(message_type=None), "message_type must be"),
    ("an empty type", element(message_type=""), "message_type must be"),
    ("a type with a space", element(message_type="a b"), "message_type must be"),
    ("a long type", element(message_type="a" * 201), "message_type must be"),
    ("no payload", {k: v for k, v in element().items() if k != "payload"}, "payload is missing"),
    ("a payload that is no JSON", element(payload="{"), "payload is not JSON"),
    ("NaN", element(payload='{"n": NaN}'), "payload is not JSON"),
    ("NUL", element(payload='{"n": "a\\u0000b"}'), "NUL"),
    ("a lone surrogate", element(payload='{"n": "\\ud83d"}'), "lone surrogate"),
    ("a payload deeper than any", element(payload=DEEP), "payload is not JSON"),
    ("a payload too deep", element(payload='{"a":' * 65 + "1" + "}" * 65), "nested more than 64 deep"),
    ("a payload too large", element(payload="x" * 300_000 and {"x": "x" * 300_000}), "more than the 262144 allowed"),
    ("10 MB", element(payload=json.dumps("x" * 10_000_000)), "more than the 262144 allowed"),
    ("a time that never comes", element(scheduled_for="infinity"), "scheduled_for is not a time"),
    ("a time that is none", element(scheduled_for="tomorrow-ish"), "scheduled_for is not a time"),
    ("a correlation that is none", element(correlation_id="x"), "correlation_id is not a UUID"),
    ("a causation that is none", element(causation_id="x"), "causation_id is not a UUID"),
]


@pytest.fixture
async def caller(db: asyncpg.Connection) -> Caller:
    await db.execute("SELECT change_partition_count(64)")
    return Caller(db=db)


@pytest.mark.parametrize("queue", ["outbox", "inbox"])
async def test_a_bad_message_is_refused_and_the_others_are_stored(
    caller: Caller, db: asyncpg.Connection, queue: str
) -> None:
    for what, bad, reason in BAD_MESSAGES:
        before, after = element("good"), element("good")
        answer = await caller.calls(**{f"new_{queue}_messages": [before, bad, after]}, flags=["skip_claim"])
        ((place, said),) = reasons(answer)
        assert (place, answer["rejected"][0]["verb"]) == (2, "store"), what
        assert reason in said, what
        stored = await db.fetch(f"DELETE FROM wh_messages WHERE queue = '{queue}' RETURNING message_id::text")
        assert {row["message_id"] for row in stored} == set(ids(before, after)), what


@pytest.mark.parametrize("queue", ["outbox", "inbox"])
async def test_an_id_that_is_of_a_stream_and_of_a_message_is_refused_alone(
    caller: Caller, db: asyncpg.Connection, queue: str
) -> None:
    stream, lone, good = str(new_message_id()), element(None), element("good")
    await caller.calls(**{f"new_{queue}_messages": [element(None, stream_id=stream), lone]}, flags=["skip_claim"])
    young = element(None)
    batch = [
        element(None, message_id=stream), element(None, stream_id=lone["message_id"]), young,
        element(None, stream_id=young["message_id"]), good,
    ]  # fmt: skip
    answer = await caller.calls(**{f"new_{queue}_messages": batch}, flags=["skip_claim"])
    assert reasons(answer) == [
        (1, "message_id is the id of a stream; give every message an id of its own"),
        (2, "stream_id is the id of a message that waits; give the stream another"),
        (3, "message_id is the id of a stream; give every message an id of its own"),
    ]
    assert await db.fetchval("SELECT count(*) FROM wh_messages WHERE message_id = $1", good["message_id"]) == 1


async def test_two_elements_without_an_id_are_told_the_same(caller: Caller) -> None:
    answer = await caller.calls(new_outbox_messages=[element(message_id=None), None, element(message_id=None)])
    said = [reason for _, reason in reasons(answer)]
    assert [said[0], said[2]] == [said[0]] * 2
    assert "message_id is missing" in said[0]
    assert "not a JSON object" in said[1]


async def test_what_only_looks_bad_is_stored(caller: Caller, db: asyncpg.Connection) -> None:
    good = [
        element(payload='{"escaped backslash": "\\\\u0000"}'),
        element(payload="null"),
        element(payload=None),
        element(payload=0),
        element(payload='"text"'),
        element(payload="[" * 64 + "]" * 64),
        element(payload=[{}] * 100),
        element("a", partition_key="a"),
        element("ключ 🐴"),
        element(None),
        element(scheduled_for="2039-12-31T23:59:59Z"),
    ]
    answer = await caller.calls(new_outbox_messages=good, flags=["skip_claim"])
    assert answer["rejected"] == []
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == len(good)


BAD_REPORTS: list[tuple[str, Any, str]] = [
    ("a number", 7, "message_id is missing or is not a UUID"),
    ("null", None, "message_id is missing or is not a UUID"),
    ("a list", [], "message_id is missing or is not a UUID"),
    ("an empty object", {}, "message_id is missing or is not a UUID"),
    ("an id that is none", status("abc", 2), "message_id is missing or is not a UUID"),
    ("an unknown message", status(new_message_id(), 2, error="x"), "unknown message"),
]


@pytest.mark.parametrize(
    "report", ["outbox_completions", "outbox_failures", "outbox_releases", "renew_outbox_lease_ids"]
)
async def test_a_bad_report_is_refused_and_the_others_are_taken(
    caller: Caller, db: asyncpg.Connection, report: str
) -> None:
    for what, bad, reason in BAD_REPORTS:
        message = element("good")
        await caller.calls(new_outbox_messages=[message], lease_seconds=10)
        good = status(message["message_id"], 2, error="x")
        answer = await caller.calls(**{report: [bad, good]}, flags=["skip_claim"])
        ((place, said),) = reasons(answer)
        assert place == 1, what
        assert reason in said, what
        untouched = "SELECT count(*) FROM wh_outbox WHERE lease_expiry = '2040-01-01T00:00:10Z'"
        assert await db.fetchval(untouched) == 0, what
        await db.execute("DELETE FROM wh_messages; DELETE FROM wh_active_streams")


async def test_a_status_that_ends_nothing_is_refused(caller: Caller, db: asyncpg.Connection) -> None:
    for code in (1, 8, 9, 16, -1, None, "2x", "done"):
        bad, good = element(None), element(None)
        await caller.calls(new_outbox_messages=[bad, good])
        answer = await caller.calls(
            outbox_completions=[{"message_id": bad["message_id"], "status": code}, status(good["message_id"], 2)],
            flags=["skip_claim"],
        )
        ((place, said),) = reasons(answer)
        assert (place, answer["rejected"][0]["verb"]) == (1, "complete")
        assert "ends nothing: use 2 (published), 4 (completed) or 0 (release)" in said
        left = await db.fetch("SELECT message_id FROM wh_outbox WHERE message_id = ANY ($1)", ids(bad, good))
        assert [str(row["message_id"]) for row in left] == ids(bad)


async def test_a_failure_with_a_status_that_nobody_knows_is_refused(caller: Caller, db: asyncpg.Connection) -> None:
    for code in (16, -1, "done", 8.5):
        bad, good = element(None), element(None)
        await caller.calls(new_outbox_messages=[bad, good])
        failures = [{"message_id": bad["message_id"], "status": code}, status(good["message_id"], 9)]
        answer = await caller.calls(outbox_failures=failures)
        assert reasons(answer) == [
            (1, f"status {code} is unknown: use 8 (failed), with 1 (stored) and 2 (published) if you like")
        ]
        failed = "SELECT message_id FROM wh_outbox WHERE error IS NOT NULL AND message_id = ANY ($1)"
        assert [str(row["message_id"]) for row in await db.fetch(failed, ids(bad, good))] == ids(good)


async def test_a_retry_time_that_is_none_is_refused(caller: Caller, db: asyncpg.Connection) -> None:
    for wait in ("soon", -1, "infinity", "NaN", 1e300):
        bad, good = element(None), element(None)
        await caller.calls(new_outbox_messages=[bad, good])
        failures = [status(bad["message_id"], 8, retry_seconds=wait), status(good["message_id"], 8, retry_seconds=60)]
        answer = await caller.calls(outbox_failures=failures)
        assert reasons(answer) == [(1, "retry_seconds is not a number from 0 to 999999999")]
        failed = "SELECT message_id FROM wh_outbox WHERE error IS NOT NULL AND message_id = ANY ($1)"
        assert [str(row["message_id"]) for row in await db.fetch(failed, ids(bad, good))] == ids(good)


async def test_a_malformed_lease_token_is_not_taken_for_none(caller: Caller, db: asyncpg.Connection) -> None:
    first, second = element(), element()
    await caller.calls(new_outbox_messages=[first, second])
    for token in ("abc", -5, 1.5, 10**30, True):
        answer = await caller.calls(
            outbox_completions=[status(first["message_id"], 2, lease_token=token), status(second["message_id"], 2)]
        )
        assert reasons(answer) == [
            (1, "lease_token is not a token"),
            (2, "out of order: an earlier message of its stream is not finished"),
        ]
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 2


async def test_what_is_refused_for_its_token_is_not_finished_by_the_next(
    caller: Caller, db: asyncpg.Connection
) -> None:
    first, second = element(), element()
    await caller.calls(new_outbox_messages=[first, second])
    answer = await caller.calls(
        outbox_completions=[status(first["message_id"], 2, lease_token=10**9), status(second["message_id"], 2)]
    )
    assert [place for place, _ in reasons(answer)] == [1, 2]
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 2


NOT_UNDERSTOOD: list[dict[str, Any]] = [
    {"flags": ["skip_claims"]},
    {"flags": ["skip_claim", "DEBUG"]},
    {"new_outbox_messages": {"message_id": "x"}},
    {"new_inbox_messages": {}},
    {"outbox_completions": {}},
    {"inbox_failures": {"a": 1}},
    {"partition_count": 10_000},
    {"new_outbox_messages": None},
    {"outbox_completions": None},
    {"flags": None},
    {"lease_seconds": 0.0},
    {"lease_seconds": math.nan},
    {"lease_seconds": None},
    {"stale_threshold_seconds": -1.0},
    {"stale_threshold_seconds": math.inf},
    {"max_attempts": 0},
    {"max_attempts": None},
    {"max_partitions_per_instance": -1},
    {"inbox_limit": -1},
]


async def test_a_call_that_cannot_be_understood_writes_nothing(caller: Caller, db: asyncpg.Connection) -> None:
    await db.execute("INSERT INTO wh_outbox (message_type, payload) VALUES ('Happened', '{}')")
    for arguments in NOT_UNDERSTOOD:
        with pytest.raises(asyncpg.PostgresError) as refused:
            await caller.calls(**arguments)
        assert (refused.value.sqlstate or "").startswith("WH0"), refused.value
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 0
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams WHERE instance_id IS NOT NULL") == 0


async def test_a_caller_says_who_it_is(db: asyncpg.Connection) -> None:
    somebody = str(new_message_id())
    for identity, fault in (
        ((None, "shop", "host", 1), "p_instance_id is missing"),
        ((ZEROS, "shop", "host", 1), "p_instance_id is all zeros"),
        ((somebody, "", "host", 1), "p_service_name is missing"),
        ((somebody, "shop", None, 1), "p_host_name is missing"),
        ((somebody, "shop", "host", None), "p_process_id is missing"),
    ):
        with pytest.raises(asyncpg.PostgresError, match=fault):
            await db.fetch("SELECT * FROM process_work_batch($1, $2, $3, $4)", *identity)


async def test_a_bare_nul_is_refused_by_postgresql_itself_before_anything_is_read(
    caller: Caller, db: asyncpg.Connection
) -> None:
    """jsonb cannot hold it; a payload sent as a string can, and is then refused alone."""
    with pytest.raises(asyncpg.UntranslatableCharacterError):
        await caller.calls(new_outbox_messages=[element(payload={"n": "a\x00b"}), element()])
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 0


async def test_a_plain_insert_says_what_is_wrong(db: asyncpg.Connection) -> None:
    for values, reason in (
        ({"stream_id": ZEROS}, "stream_id is all zeros"),
        ({"stream_key": ""}, "stream_key is empty"),
        ({"stream_key": "k" * 1001}, "stream_key has more than 1000 characters"),
        ({"stream_id": str(new_message_id()), "stream_key": "k"}, "name two streams"),
        ({"topic": "t" * 1001}, "topic has more than 1000 characters"),
        ({"headers": json.dumps("x" * 300_000)}, "headers have 300002 bytes, more than the 262144 allowed"),
        ({"scheduled_for": "infinity"}, "scheduled_for is not a time"),
        ({"message_type": None}, "message_type must be"),
        ({"payload": None}, "payload is missing"),
        ({"payload": json.dumps("x" * 300_000)}, "more than the 262144 allowed"),
        ({"payload": '"\\u0000"'}, "NUL"),
        ({"payload": '"\\ude00"'}, "lone surrogate"),
        ({"payload": "[" * 65 + "]" * 65}, "nested more than 64 deep"),
        ({"partition_number": 3}, "partition_number follows from the stream"),
    ):
        row = json.dumps({"message_type": "Happened", "payload": "{}"} | values)
        for view in ("wh_outbox", "wh_inbox"):
            insert = (
                f"INSERT INTO {view} (stream_id, stream_key, message_type, topic, payload, headers, scheduled_for,"
                " partition_number)"
                " SELECT stream_id, stream_key, message_type, topic, payload::json, headers::json, scheduled_for,"
                " partition_number"
                " FROM jsonb_to_record($1) AS r(stream_id uuid, stream_key text, message_type text, topic text,"
                " payload text, headers text, scheduled_for timestamptz, partition_number integer)"
            )
            with pytest.raises(asyncpg.PostgresError, match=reason):
                await db.execute(insert, row)
    assert await db.fetchval("SELECT count(*) FROM wh_messages") == 0
