"""What an instance has in hand, and what it may report of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.scenario import S
from whippletree.claim.held import LEASE_LOST, HeldWork
from whippletree.claim.reports import columns_of
from whippletree.errors import InvalidSetting, LeaseLost
from whippletree.message.envelope import ClaimedMessage, Queue
from whippletree.message.ids import EventId, MessageId, StreamId
from whippletree.message.outcome import (
    MessageCompletion,
    MessageFailure,
    MessageRelease,
    Outcome,
    PerspectiveCheckpointCompletion,
    PerspectiveCheckpointFailure,
    PerspectiveProcessingStatus,
    ReceptorProcessingCompletion,
    ReceptorProcessingFailure,
    ReceptorProcessingStatus,
)
from whippletree.message.outcome import MessageProcessingStatus as Status


def message(version: int, *, token: int = 1, queue: Queue = Queue.OUTBOX) -> ClaimedMessage:
    id_ = MessageId(UUID(int=version))
    now = time.time()
    return ClaimedMessage(queue, StreamId(S), version, id_, "Happened", "", "{}", None, None, None, now, 1, token)


def test_what_comes_again_takes_the_rest_of_its_old_run_along() -> None:
    held = HeldWork()
    held.add([message(1), message(2), message(3)])
    held.add([message(1, token=2)])
    reports = held.resolve([MessageCompletion(message(2).message_id)], ())
    assert [rejection.reason for rejection in reports.rejected] == [LEASE_LOST]
    assert isinstance(reports.rejected[0].error, LeaseLost)
    assert len(held) == 1


def test_one_id_may_be_in_hand_from_both_queues() -> None:
    held = HeldWork()
    held.add([message(1), message(1, queue=Queue.INBOX)])
    received = MessageCompletion(message(1).message_id, queue=Queue.INBOX)
    (run,) = held.resolve([received], ()).completed
    assert run.queue == "inbox"
    (run,) = held.resolve([MessageCompletion(message(1).message_id)], ()).completed
    assert run.queue == "outbox"


def test_a_run_ends_at_its_first_failure() -> None:
    held = HeldWork()
    held.add([message(1), message(2), message(3)])
    failures = [MessageFailure(message(version).message_id, f"boom {version}") for version in (3, 1)]
    reports = held.resolve(failures, ())
    assert [(version, failure.error) for version, failure in reports.failed.values()] == [(1, "boom 1")]
    assert [rejection.message_id for rejection in reports.rejected] == [message(3).message_id]


def test_nothing_is_finished_without_a_status_that_ends_it() -> None:
    held = HeldWork()
    held.add([message(1), message(2)])
    wrong: list[Any] = [Status.STORED, Status.FAILED, Status.PUBLISHED | Status.FAILED, 99, "Published", None]
    for status in wrong:
        reports = held.resolve([MessageCompletion(message(1).message_id, status)], ())
        (rejection,) = reports.rejected
        assert (reports.completed, rejection.message_id, rejection.verb) == ({}, message(1).message_id, "complete")
        assert rejection.reason.startswith(f"status {status} ends nothing: use MessageProcessingStatus.PUBLISHED")
    for status in (Status.PUBLISHED, Status.COMPLETED, Status.STORED | Status.PUBLISHED):
        reports = held.resolve([MessageCompletion(message(1).message_id, status)], ())
        assert list(reports.completed.values()) == [1]


@pytest.mark.parametrize("report", [MessageCompletion, MessageRelease, lambda id_: MessageFailure(id_, "boom")])
def test_an_id_that_is_none_is_told_from_a_lost_lease(report: Callable[[Any], Outcome]) -> None:
    held = HeldWork()
    held.add([message(1)])
    reports = held.resolve([report(str(message(1).message_id))], ())
    assert [rejection.reason for rejection in reports.rejected] == ["its id is of type str; give a uuid.UUID"]


def test_status_0_among_completions_releases() -> None:
    held = HeldWork()
    held.add([message(1), message(2)])
    reports = held.resolve([MessageCompletion(message(n).message_id, Status(0)) for n in (1, 2)], ())
    assert (reports.completed, list(reports.released.values()), reports.rejected) == ({}, [1], [])


def test_only_a_completed_receptor_or_perspective_is_completed() -> None:
    with pytest.raises(InvalidSetting, match="status Failed is not that of a completion"):
        ReceptorProcessingCompletion(EventId(UUID(int=1)), "mail", ReceptorProcessingStatus.FAILED)
    with pytest.raises(InvalidSetting, match="status Pending is not that of a completion"):
        PerspectiveCheckpointCompletion(StreamId(S), "summary", 1, PerspectiveProcessingStatus.PENDING)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"error": None}, "error is of type NoneType; give a text"),
        ({"error": ValueError("x")}, "error is of type ValueError; give a text"),
        ({"status": 99}, "status 99 is not that of a failure"),
        ({"status": "Failed"}, "status Failed is not that of a failure"),
        ({"status": Status.COMPLETED}, "status 4 is not that of a failure; leave it out, or report a completion"),
        ({"verdict": "explode"}, "verdict is 'explode'; give retry, park, postpone"),
        ({"verdict": "Retry"}, "verdict is 'Retry'; give retry, park, postpone"),
        ({"retry_seconds": "5"}, "retry_seconds is '5', which is no time to wait"),
        ({"retry_seconds": timedelta(seconds=5)}, "retry_seconds is .*, which is no time to wait"),
    ],
)
def test_a_failure_that_cannot_be_recorded_is_refused_when_it_is_made(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting, match=f"^{words}"):
        MessageFailure(message(1).message_id, **{"error": "boom", **wrong})


def test_only_a_failed_receptor_or_perspective_has_failed() -> None:
    with pytest.raises(InvalidSetting, match="status Completed is not that of a failure"):
        ReceptorProcessingFailure(EventId(UUID(int=1)), "mail", "boom", ReceptorProcessingStatus.COMPLETED)
    with pytest.raises(InvalidSetting, match="status Completed is not that of a failure"):
        PerspectiveCheckpointFailure(StreamId(S), "summary", "boom", PerspectiveProcessingStatus.COMPLETED)


def test_the_stack_trace_is_kept_below_the_error() -> None:
    held = HeldWork()
    held.add([message(1)])
    reports = held.resolve([MessageFailure(message(1).message_id, "boom", stack_trace="at line 1")], ())
    assert ["boom\nat line 1"] in columns_of(reports)
