"""A caller of process_work_batch in plain SQL, as psql or a client in any language would be."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from tests.scenario import T0
from whippletree.message.ids import InstanceId, MessageId, new_instance_id, new_message_id

Answer = dict[str, Any]


@dataclass(kw_only=True)
class Caller:
    """Calls with its identity and whatever else is said; lists become JSON, and so does the answer become lists."""

    db: asyncpg.Connection
    name: str = "caller"
    instance_id: InstanceId = field(default_factory=new_instance_id)

    async def calls(self, **arguments: Any) -> Answer:
        named = {f"p_{name}": _sent(name, value) for name, value in ({"as_of": T0} | arguments).items()}
        more = "".join(f", {name} => ${number}" for number, name in enumerate(named, 3))
        row = await self.db.fetchrow(
            f"SELECT * FROM process_work_batch($1, $2, 'host', 1{more})", self.instance_id, self.name, *named.values()
        )
        assert row is not None
        return {name: json.loads(value) for name, value in row.items()}

    async def claims(self, **arguments: Any) -> list[str]:
        """The ids of the outbox messages that the call hands out."""
        return [message["message_id"] for message in (await self.calls(**arguments))["claimed_outbox_messages"]]


def element(stream_key: str | None = "stream", **more: Any) -> Answer:
    """A message to be stored."""
    named = {"stream_key": stream_key} if stream_key is not None else {}
    return {"message_id": str(new_message_id()), "message_type": "Happened", "payload": {}, **named, **more}


def reasons(answer: Answer) -> list[tuple[int, str]]:
    """What was refused: its place and why."""
    return [(refusal["place"], refusal["reason"]) for refusal in answer["rejected"]]


def ids(*elements: Answer) -> list[str]:
    return [e["message_id"] for e in elements]


def status(message_id: str | MessageId, code: int, **more: Any) -> Answer:
    return {"message_id": str(message_id), "status": code, **more}


def _sent(name: str, value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) and name != "flags" else value
