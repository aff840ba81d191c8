"""Who is working: one running process, known to the others by its heartbeat."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

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
