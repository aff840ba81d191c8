"""One real instance of the fault run: twenty coordinated subscribers, each writing its effects in its transaction.

    python -m tests.proof.subscriber_instance DSN

It says `ready` when it follows, and stops in good order when it is told to by SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from whippletree.claim.coordinator import WorkCoordinator
from whippletree.claim.exclusive import ExclusiveSettings
from whippletree.claim.instance import ServiceInstance
from whippletree.claim.session import InstanceSession, SessionSettings
from whippletree.dispatch.policy import Retry
from whippletree.dispatch.subscriber import CheckpointEvery, InstanceMode, Start
from whippletree.message.event import NumberedEvent
from whippletree.settings import Dsn
from whippletree.store.database import open_pool
from whippletree.store.feed import Chosen
from whippletree.store.transaction import Transaction
from whippletree.work.subscription_worker import SubscriptionSettings, SubscriptionWorker

SUBSCRIBERS = 20
SILENT_AFTER = 2.0

EFFECTS = """
CREATE TABLE whippletree.effects (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, subscriber text NOT NULL, number bigint NOT NULL,
  instance_id uuid NOT NULL, holder uuid, epoch bigint NOT NULL)
"""
_EFFECT = """
INSERT INTO whippletree.effects (subscriber, number, instance_id, holder, epoch)
SELECT $1, $2, $3, s.holder, s.epoch FROM whippletree.wh_subscribers s WHERE s.subscriber_name = $1
"""


@dataclass(frozen=True)
class Effects:
    """A follower that notes every event once more, with who it believes to be and who the database believes it is."""

    name: str
    instance_id: UUID
    checkpoint: CheckpointEvery
    chosen: Chosen = field(default_factory=Chosen)
    start: Start | int = Start.BEGINNING
    mode: InstanceMode = InstanceMode.COORDINATED
    retry: Retry = field(default_factory=lambda: Retry(attempts=1000, first_pause=0.05, longest_pause=1))
    transactional: bool = True

    async def apply(self, events: Sequence[NumberedEvent], transaction: Transaction | None, attempts: int) -> None:
        assert transaction is not None
        for event in events:
            await transaction.execute(_EFFECT, self.name, event.number, self.instance_id)


def names() -> list[str]:
    return [f"effects:{number}" for number in range(SUBSCRIBERS)]


async def follow(dsn: Dsn) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    instance = ServiceInstance(service_name="proof")
    followers = [
        Effects(name, instance.instance_id, CheckpointEvery(count=20 if number % 2 else 1))
        for number, name in enumerate(names())
    ]
    exclusive = ExclusiveSettings(try_every=0.5, silent_after=SILENT_AFTER, balance_every=2)
    session_settings = SessionSettings(probe_every=1, probe_timeout=5, first_pause=0.05, longest_pause=0.5)
    async with (
        open_pool(dsn, size=4) as pool,
        InstanceSession(dsn, WorkCoordinator(pool, instance), session_settings) as session,
        SubscriptionWorker(
            pool, session, instance.instance_id, followers, SubscriptionSettings(exclusive=exclusive, poll_every=0.5)
        ),
    ):
        print("ready", instance.instance_id, flush=True)  # noqa: T201 - the one who started us waits for it
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(follow(Dsn(sys.argv[1])))
