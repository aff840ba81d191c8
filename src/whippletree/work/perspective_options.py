"""The options of a perspective worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from whippletree.claim.coordinator import CoordinatorSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PerspectiveWorkerOptions:
    """How a perspective worker works. Beside other workers, claiming follows the loop's settings."""

    polling_interval_milliseconds: int = 1000
    lease_seconds: float = 300
    stale_threshold_seconds: float = 600
    debug_mode: bool = False
    partition_count: int = 10_000
    idle_threshold_polls: int = 2
    """Empty polls in a row after which `on_work_processing_idle` is called."""
    perspective_batch_size: int = 100
    """Events of a stream that are folded before its row and checkpoint are saved."""
    max_checkpoints: int = 200
    """Streams in hand at once, of each perspective."""
    instance_metadata: Mapping[str, str] = field(default_factory=dict)

    def for_coordinator(self) -> CoordinatorSettings:
        """The settings of a coordinator that serves this worker alone."""
        return CoordinatorSettings(
            lease_seconds=self.lease_seconds,
            stale_threshold_seconds=self.stale_threshold_seconds,
            partition_count=self.partition_count,
            run_limit=self.perspective_batch_size,
        )
