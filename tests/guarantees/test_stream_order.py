"""A stream's messages are handled in order, whoever handles them."""

from __future__ import annotations

from tests.scenario import T0, Given, S, Worker, completion, failure, minutes, release, seconds


async def test_a_message_waiting_for_its_retry_holds_back_its_stream(given: Given, alice: Worker) -> None:
    first, second = await given.outbox(stream=S, count=2)
    assert await alice.claims(as_of=T0) == [first, second]
    await alice.reports(failure(first, retry_at=T0 + minutes(1)), release(second), as_of=T0)
    assert alice.rejected == []

    assert await alice.claims(as_of=T0 + seconds(59)) == []
    # The head was tried before, so it goes alone: the guilty message is to be found.
    assert await alice.claims(as_of=T0 + seconds(60)) == [first]
    await alice.reports(completion(first), as_of=T0 + seconds(61))
    assert await alice.claims(as_of=T0 + seconds(62)) == [second]


async def test_nobody_else_gets_the_rest_of_a_stream_that_is_held(given: Given, alice: Worker, bob: Worker) -> None:
    await alice.polls()
    await bob.polls()
    first, second, third = await given.outbox(count=3)
    assert await alice.claims(limit=1) + await bob.claims(limit=1) == [first]
    assert await alice.claims() == await bob.claims() == []
