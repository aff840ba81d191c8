"""Who is working: one running process, known to the others by its heartbeat."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from whippletree.errors import InvalidSetting
from whippletree.message.envelope import name_fault
from whippletree.message.ids import InstanceId, new_instance_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceInstance:
    """The identity of one process. Make it after the process has forked: two processes may not share an id."""

    service_name: str
    instance_id: InstanceId = field(default_factory=new_instance_id)
    host_name: str = field(default_factory=socket.gethostname)
    process_id: int = field(default_factory=os.getpid)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.instance_id, UUID) or self.instance_id.int == 0:
            raise InvalidSetting(f"instance_id is {self.instance_id!r}; give every process a uuid.UUID of its own")
        for name in ("service_name", "host_name"):
            if fault := name_fault(getattr(self, name)):
                raise InvalidSetting(f"{name} {fault}")
        if not self.service_name:
            raise InvalidSetting("service_name is empty; name the service, the same in each of its processes")
        if not isinstance(self.process_id, int) or not 0 <= self.process_id < 2**31:
            raise InvalidSetting(f"process_id is {self.process_id!r}; give 0 to {2**31 - 1}, or leave it out")

    def reborn(self) -> ServiceInstance:
        """The same process under a new id: how an evicted instance joins again."""
        return ServiceInstance(service_name=self.service_name, metadata=self.metadata)


def new_session_name(service_name: str, schema: str) -> str:
    """What the sessions of one process are called in the database, as `metadata["session"]` of its instance says.

    By it the others find what a process that was stopped or cut off has left open: see end_silent_transactions.sql.
    """
    scope = hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()[:8]
    return f"whippletree {service_name[:28]} {scope}{uuid4().hex[:12]}"
