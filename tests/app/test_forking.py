"""Programs that fork, as web servers and task queues do: parent and child each have all that they need, and no more."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import asyncpg

from tests.house.tree import ROOT
from whippletree.settings import Dsn

_PUBLISHES = """
import os, signal, sys
from dataclasses import dataclass
import whippletree as wt

app = wt.App("orders")

@app.event(stream="order")
@dataclass(frozen=True)
class Placed:
    order: str
    by: str

app.publish_sync(Placed("1", "parent"))
child = os.fork()
if child == 0:
    signal.alarm(60)
    for _ in range(3):
        app.publish_sync(Placed("1", "child"))
    sys.exit(0)
_, status = os.waitpid(child, 0)
app.publish_sync(Placed("1", "parent"))
print(status)
"""

_IDENTIFIES = """
import json, os
from whippletree.claim.instance import ServiceInstance
from whippletree.message.ids import new_event_id, new_instance_id, new_message_id

def made():
    # What comes from the clock differs in any case. The last four bytes are chance alone.
    kinds = (new_message_id, new_event_id, new_instance_id, lambda: ServiceInstance(service_name="shop").instance_id)
    return [new().hex[-8:] for new in kinds * 10]

made()
reads, writes = os.pipe()
if os.fork() == 0:
    os.write(writes, json.dumps(made()).encode())
    os._exit(0)
mine = made()
os.wait()
print(json.dumps([mine, json.loads(os.read(reads, 65536))]))
"""


async def _ran(program: str, **environment: str) -> Any:
    """What a program prints. It is one of its own, because this one has threads, and must not fork."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore::DeprecationWarning", "-c", program),
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(120):
            printed, complaints = await started.communicate()
    except TimeoutError:
        started.kill()
        await started.communicate()
        raise
    assert started.returncode == 0, complaints.decode()
    assert not complaints, complaints.decode()
    return json.loads(printed)


async def test_parent_and_child_both_publish_after_a_fork(dsn: Dsn, db: asyncpg.Connection) -> None:
    """The parent's connections are not the child's, and the thread that serves them has stayed behind."""
    assert await _ran(_PUBLISHES, WHIPPLETREE_DSN=dsn.reveal()) == 0
    told = await db.fetch("SELECT payload ->> 'by' AS name FROM wh_event_store ORDER BY version")
    assert [row["name"] for row in told] == ["parent", "child", "child", "child", "parent"]


async def test_parent_and_child_give_no_id_twice() -> None:
    """A message with an id that another has is taken for it by every inbox, and lost."""
    mine, theirs = await _ran(_IDENTIFIES)
    assert not set(mine) & set(theirs)
    assert len(set(mine)) == len(mine)
