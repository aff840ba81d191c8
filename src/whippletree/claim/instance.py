"""Who is working: one running process, known to the others by its heartbeat."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from whippletree.message.ids import InstanceId, new_instance_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceInstance:
    """The identity of one process. Make it after the process has forked: two processes may not share an id."""

    service_name: str
    instance_id: InstanceId = field(default_factory=new_instance_id)
    host_name: str = field(default_factory=socket.gethostname)
    process_id: int = field(default_factory=os.getpid)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def reborn(self) -> ServiceInstance:
        """The same process under a new id: how an evicted instance joins again."""
        return ServiceInstance(service_name=self.service_name, metadata=self.metadata)


def new_session_name(service_name: str, schema: str) -> str:
    """What the sessions of one process are called in the database, as `metadata["session"]` of its instance says.

    By it the others find what a process that was stopped or cut off has left open: see end_silent_transactions.sql.
    """
    scope = hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()[:8]
    return f"whippletree {service_name[:28]} {scope}{uuid4().hex[:12]}"
