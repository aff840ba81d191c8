"""Every error that Whippletree raises, in one tree. The branch says whose turn it is.

Error
├── UsageError          you called us wrongly; fix the program
│   ├── InvalidSetting      a setting has a value that cannot work
│   ├── InvalidMessage      a message cannot be stored as it is
│   ├── DuplicateName       a name is registered twice
│   └── UnknownName         a name is not registered
├── StoreError          PostgreSQL refused; see the cause
│   ├── StoreUnavailable    no server answers; wait, or start one
│   ├── SchemaMismatch      the schema is missing, older or newer than this version
│   ├── WrongVersion        a stream has moved past the version that you expected
│   └── NotApplied          a perspective does not have an event yet
├── TransportUnavailable  the bus outside does not answer; wait, or start it
├── CoordinationError   another instance has the work; let go
│   ├── LeaseLost           the lease, or the subscriber, is no longer yours
│   ├── CheckpointMoved     a subscriber was paused, or somebody skipped its event
│   └── InstanceEvicted     the other instances removed this one; rejoin under a new id
└── HandlerError        your code raised; see the cause
    ├── ReceptorFailed
    ├── PerspectiveFailed
    └── PublishFailed
"""

from __future__ import annotations


class Error(Exception):
    """The root of every error that Whippletree raises."""


class UsageError(Error):
    """You called us wrongly; fix the program."""


class InvalidSetting(UsageError):
    """A setting has a value that cannot work."""


class InvalidMessage(UsageError):
    """A message cannot be stored as it is."""


class DuplicateName(UsageError):
    """A name is registered twice."""


class UnknownName(UsageError):
    """A name is not registered."""


class StoreError(Error):
    """PostgreSQL refused; see the cause."""


class StoreUnavailable(StoreError):
    """No server answers; wait, or start one."""


class SchemaMismatch(StoreError):
    """The schema is missing, older or newer than this version."""


class WrongVersion(StoreError):
    """A stream has moved past the version that you expected."""


class NotApplied(StoreError):
    """A perspective does not have an event yet."""


class TransportUnavailable(Error):
    """The bus outside does not answer; wait, or start it."""


class CoordinationError(Error):
    """Another instance has the work; let go."""


class LeaseLost(CoordinationError):
    """The lease, or the subscriber, is no longer yours."""


class CheckpointMoved(CoordinationError):
    """A subscriber was paused, or somebody skipped its event."""


class InstanceEvicted(CoordinationError):
    """The other instances removed this one; rejoin under a new id."""


class HandlerError(Error):
    """Your code raised; see the cause."""


class ReceptorFailed(HandlerError):
    """A receptor raised."""


class PerspectiveFailed(HandlerError):
    """A perspective raised."""


class PublishFailed(HandlerError):
    """A transport did not take a message."""
