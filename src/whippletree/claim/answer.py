"""Claimed event work, as the rows of a work batch's answer tell it."""

from __future__ import annotations

from typing import Any

from whippletree.message.envelope import PerspectiveWork, ReceptorWork


def receptor_work(*row: Any) -> ReceptorWork:
    """An event that a receptor has before it."""
    _, queue, _, *key, _, payload, metadata, correlation_id, causation_id, created_at, attempts, token, shape = row
    stream_id, version, event_id, event_type = key
    return ReceptorWork(
        queue=queue,
        stream_id=stream_id,
        version=version,
        event_id=event_id,
        event_type=event_type,
        payload=payload,
        metadata=metadata,
        correlation_id=correlation_id,
        causation_id=causation_id,
        created_at=created_at,
        attempts=attempts,
        lease_token=token,
        shape=int(shape),
    )


def perspective_work(*row: Any) -> PerspectiveWork:
    """A stream that a perspective has before it."""
    _, queue, _, stream_id, checkpoint, last_event_id, *_, attempts, lease_token, through = row
    return PerspectiveWork(queue, stream_id, checkpoint, last_event_id, int(through), attempts, lease_token)
