"""The contract of process_work_batch: one call, one transaction, from any language."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess

import asyncpg
import pytest

from tests.conftest import Connect
from tests.scenario import T0, minutes, seconds
from tests.sql.caller import Caller, element, ids, reasons, status
from tests.waiting import until_somebody_waits
from whippletree.message.ids import new_instance_id
from whippletree.settings import Dsn
from whippletree.store.embedded_binaries import find_binaries, known_places

ANSWER = [
    "claimed_outbox_messages",
    "claimed_inbox_messages",
    "claimed_receptor_work",
    "claimed_perspective_work",
    "assigned_partitions",
    "rejected",
    "duplicates",
]


PARAMETERS = [
    "instance_id", "service_name", "host_name", "process_id", "metadata", "outbox_completions", "outbox_failures",
    "inbox_completions", "inbox_failures", "receptor_completions", "receptor_failures", "perspective_completions",
    "perspective_failures", "new_outbox_messages", "new_inbox_messages", "renew_outbox_lease_ids",
    "renew_inbox_lease_ids", "flags", "partition_count", "max_partitions_per_instance", "lease_seconds",
    "stale_threshold_seconds",
]  # fmt: skip


@pytest.fixture
async def caller(db: asyncpg.Connection) -> Caller:
    await db.execute("SELECT change_partition_count(64)")
    return Caller(db=db)


async def test_the_identity_is_all_that_must_be_said(db: asyncpg.Connection) -> None:
    rows = await db.fetch(
        "SELECT * FROM process_work_batch(p_instance_id => $1, p_service_name => 'OrderService',"
        " p_host_name => 'host', p_process_id => 42)",
        new_instance_id(),
    )
    assert len(rows) == 1
    assert list(rows[0].keys()) == ANSWER
    assert len(json.loads(rows[0]["assigned_partitions"])) == 10_000
    assert [rows[0][name] for name in ANSWER if name != "assigned_partitions"] == ["[]"] * 6


def test_psql_can_call_it(dsn: Dsn) -> None:
    call = f"SELECT * FROM whippletree.process_work_batch('{new_instance_id()}', 'psql', 'host', 1)"
    psql = find_binaries(known_places()).bin / "psql"
    said = subprocess.run([psql, dsn.reveal(), "-tAc", call], capture_output=True, text=True, timeout=60, check=False)
    assert said.stderr == ""
    assert said.stdout.startswith("[]|[]|[]|[]|[0, 1, 2,")


async def test_the_parameters_have_the_names_of_the_specification(db: asyncpg.Connection) -> None:
    names = await db.fetchval("SELECT proargnames FROM pg_proc WHERE proname = 'process_work_batch'")
    for name in PARAMETERS:
        assert f"p_{name}" in names


async def test_the_instance_is_known_by_what_it_said(caller: Caller, db: asyncpg.Connection) -> None:
    await caller.calls(metadata={"version": "1.2"})
    row = await db.fetchrow("SELECT * FROM wh_service_instances")
    assert row is not None
    assert (row["instance_id"], row["service_name"], row["host_name"], row["process_id"]) == (
        caller.instance_id, "caller", "host", 1,
    )  # fmt: skip
    assert json.loads(row["metadata"]) == {"version": "1.2"}
    assert row["last_heartbeat_at"] == row["last_heartbeat"] == row["started_at"] == T0


async def test_all_keys_are_snake_case(caller: Caller) -> None:
    sent, got = element(topic="orders"), element(source_topic="orders", stream_key="inbox")
    answer = await caller.calls(new_outbox_messages=[sent], new_inbox_messages=[got, got, {}])
    (outbox,), (inbox,) = answer["claimed_outbox_messages"], answer["claimed_inbox_messages"]
    envelope = {
        "message_id", "stream_id", "version", "message_type", "payload", "headers", "correlation_id", "causation_id",
        "created_at", "attempts", "lease_token",
    }  # fmt: skip
    assert outbox.keys() == envelope | {"topic"}
    assert inbox.keys() == envelope | {"source_topic"}
    assert answer["rejected"][0].keys() == {"queue", "verb", "place", "message_id", "reason"}
    assert answer["duplicates"][0].keys() == {"message_id", "outcome", "place"}
    assert all(re.fullmatch("[a-z_]+", key) for key in (*answer, *outbox, *inbox))


async def test_all_of_a_batch_happens_in_one_call(caller: Caller, db: asyncpg.Connection) -> None:
    done, failed, renewed, new = element("a"), element("b"), element("c"), element("d")
    received = element("e")
    await caller.calls(new_outbox_messages=[done, failed, renewed])
    answer = await caller.calls(
        outbox_completions=[status(done["message_id"], 2)],
        outbox_failures=[status(failed["message_id"], 8, error="boom", retry_seconds=60)],
        renew_outbox_lease_ids=ids(renewed),
        new_outbox_messages=[new],
        new_inbox_messages=[received],
        as_of=T0 + minutes(1),
    )
    assert answer["rejected"] == []
    assert [m["message_id"] for m in answer["claimed_outbox_messages"]] == ids(new)
    assert [m["message_id"] for m in answer["claimed_inbox_messages"]] == ids(received)
    rows = await db.fetch("SELECT message_id::text, status, error, lease_expiry FROM wh_outbox ORDER BY created_at, 1")
    assert {row["message_id"]: (row["status"], row["error"], row["lease_expiry"]) for row in rows} == {
        failed["message_id"]: (9, "boom", None),
        renewed["message_id"]: (1, None, T0 + minutes(6)),
        new["message_id"]: (1, None, T0 + minutes(6)),
    }


async def test_an_error_undoes_the_whole_call(caller: Caller, db: asyncpg.Connection) -> None:
    await caller.calls()
    transaction = db.transaction()
    await transaction.start()
    assert await caller.claims(new_outbox_messages=[element()]) != []
    await transaction.rollback()
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 0
    assert await caller.claims() == []


async def test_a_completed_message_frees_the_next_of_its_stream_in_the_same_call(caller: Caller) -> None:
    first, second = element(), element()
    await caller.calls(new_outbox_messages=[first, second], outbox_limit=1)
    assert await caller.claims(outbox_completions=[status(first["message_id"], 2)]) == ids(second)


async def test_published_or_completed_ends_a_message(caller: Caller, db: asyncpg.Connection) -> None:
    for code in (2, 4, 3, 5, 6):
        message = element()
        await caller.calls(new_outbox_messages=[message])
        answer = await caller.calls(outbox_completions=[status(message["message_id"], code)])
        assert answer["rejected"] == []
        assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 0, code


async def test_status_0_among_completions_releases(caller: Caller, db: asyncpg.Connection) -> None:
    first, second = element(), element()
    await caller.calls(new_outbox_messages=[first, second])
    answer = await caller.calls(
        outbox_completions=[status(first["message_id"], 0), status(second["message_id"], 0)], flags=["skip_claim"]
    )
    assert answer["rejected"] == []
    leased = await db.fetch("SELECT instance_id, attempts FROM wh_outbox")
    assert [tuple(row) for row in leased] == [(None, 0), (None, 0)]
    assert await caller.claims() == ids(first, second)


async def test_a_release_after_completions_gives_back_the_rest(caller: Caller) -> None:
    first, second, third = element(), element(), element()
    await caller.calls(new_outbox_messages=[first, second, third])
    answer = await caller.calls(
        outbox_completions=[
            status(first["message_id"], 2), status(second["message_id"], 0), status(third["message_id"], 0),
        ]
    )  # fmt: skip
    assert answer["rejected"] == []
    assert [m["message_id"] for m in answer["claimed_outbox_messages"]] == ids(second, third)


async def test_completions_after_a_failure_of_their_stream_are_refused(caller: Caller, db: asyncpg.Connection) -> None:
    """A publisher that went on after its first failure: what it says of the later ones is not taken."""
    first, second, third = element(), element(), element()
    await caller.calls(new_outbox_messages=[first, second, third])
    answer = await caller.calls(
        outbox_failures=[status(first["message_id"], 8, error="down", retry_seconds=60)],
        outbox_completions=[status(second["message_id"], 2), status(third["message_id"], 2)],
    )
    refused = "out of order: an earlier message of its stream is not finished"
    assert reasons(answer) == [(1, refused), (2, refused)]
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 3
    assert await caller.claims(as_of=T0 + seconds(59)) == []
    assert await caller.claims(as_of=T0 + seconds(60)) == ids(first)


async def test_a_failure_before_its_predecessors_are_finished_is_refused(caller: Caller) -> None:
    first, second = element(), element()
    await caller.calls(new_outbox_messages=[first, second])
    answer = await caller.calls(outbox_failures=[status(second["message_id"], 8, error="boom")])
    assert [place for place, _ in reasons(answer)] == [1]
    assert "an earlier message of its stream is not finished" in answer["rejected"][0]["reason"]


async def test_a_release_counts_though_a_later_failure_of_its_stream_is_refused(caller: Caller) -> None:
    first, second = element(), element()
    await caller.calls(new_outbox_messages=[first, second])
    answer = await caller.calls(
        outbox_completions=[status(first["message_id"], 0)], outbox_failures=[status(second["message_id"], 8)]
    )
    assert [(one["verb"], one["place"]) for one in answer["rejected"]] == [("fail", 1)]
    assert [m["message_id"] for m in answer["claimed_outbox_messages"]] == ids(first, second)


async def test_two_first_calls_of_an_instance_are_both_taken(caller: Caller, connect: Connect) -> None:
    early, late = Caller(db=await connect()), Caller(db=await connect())
    late.instance_id = early.instance_id
    async with early.db.transaction():
        await early.calls()
        second = asyncio.create_task(late.calls())
        await until_somebody_waits(caller.db)
    assert len((await second)["assigned_partitions"]) == 64


async def test_the_stack_trace_is_kept_below_the_error_and_both_within_limits(
    caller: Caller, db: asyncpg.Connection
) -> None:
    told, endless = element("a"), element("b")
    await caller.calls(new_outbox_messages=[told, endless])
    answer = await caller.calls(
        outbox_failures=[
            status(told["message_id"], 8, error="boom", stack_trace="at line 1"),
            status(endless["message_id"], 8, error="x" * 1_000_000),
        ]
    )
    assert answer["rejected"] == []
    errors = await db.fetch("SELECT error FROM wh_outbox ORDER BY stream_key")
    assert [row["error"] for row in errors] == ["boom\nat line 1", "x" * 10_000]


async def test_a_completion_named_twice_counts_once_and_spoils_nothing(caller: Caller, db: asyncpg.Connection) -> None:
    first, second = element(), element()
    await caller.calls(new_outbox_messages=[first, second])
    done = [status(first["message_id"], 2), status(first["message_id"], 2), status(second["message_id"], 2)]
    assert (await caller.calls(outbox_completions=done))["rejected"] == []
    assert await db.fetchval("SELECT count(*) FROM wh_outbox") == 0


async def test_skip_claim_claims_nothing_and_joins_nobody(caller: Caller, db: asyncpg.Connection) -> None:
    answer = await caller.calls(new_outbox_messages=[element()], new_inbox_messages=[element()], flags=["skip_claim"])
    assert answer["claimed_outbox_messages"] == answer["claimed_inbox_messages"] == []
    assert await db.fetchval("SELECT count(*) FROM wh_active_streams WHERE instance_id IS NULL") == 2
    assert await db.fetchval("SELECT count(*) FROM wh_service_instances") == 0


@pytest.mark.parametrize(("queue", "code"), [("outbox", 3), ("inbox", 5)])
async def test_debug_mode_keeps_finished_messages_visible(
    caller: Caller, db: asyncpg.Connection, queue: str, code: int
) -> None:
    message = element(payload='{"b":1.10,"a":2}')
    await caller.calls(**{f"new_{queue}_messages": [message]})
    await caller.calls(
        **{f"{queue}_completions": [status(message["message_id"], 4)]}, flags=["debug_mode"], as_of=T0 + seconds(2)
    )
    row = await db.fetchrow(f"SELECT * FROM wh_{queue}")
    assert row is not None
    assert (str(row["message_id"]), row["status"], row["version"], row["attempts"]) == (
        message["message_id"],
        code,
        1,
        1,
    )
    assert (row["processed_at"], row["created_at"]) == (T0 + seconds(2), T0)
    assert (row["instance_id"], row["lease_expiry"], row["parked"]) == (None, None, False)
    assert row["payload"] == '{"b":1.10,"a":2}'
    answer = await caller.calls(as_of=T0 + minutes(30))
    assert answer["claimed_outbox_messages"] == answer["claimed_inbox_messages"] == []


async def test_without_debug_mode_finished_messages_are_gone(caller: Caller, db: asyncpg.Connection) -> None:
    message = element()
    await caller.calls(new_outbox_messages=[message])
    await caller.calls(outbox_completions=[status(message["message_id"], 2)])
    tables = ("wh_outbox", "wh_messages", "wh_active_streams", "wh_finished_messages")
    assert [await db.fetchval(f"SELECT count(*) FROM {table}") for table in tables] == [0] * 4


async def test_the_partitions_are_told(caller: Caller, db: asyncpg.Connection) -> None:
    assert (await caller.calls())["assigned_partitions"] == list(range(64))
    assert (await caller.calls(partition_count=64, max_partitions_per_instance=10))["assigned_partitions"] == list(
        range(64)
    )
    other = Caller(db=db)
    assert (await other.calls())["assigned_partitions"] == []
    await caller.calls()
    assert len((await other.calls())["assigned_partitions"]) == 32
