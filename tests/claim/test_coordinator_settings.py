"""Settings with which a coordinator could not work, or would rob the others."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

import pytest

from whippletree.claim.coordinator import CoordinatorSettings
from whippletree.errors import InvalidSetting


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_seconds": 0},
        {"lease_seconds": -5},
        {"lease_seconds": math.nan},
        {"lease_seconds": math.inf},
        {"lease_seconds": "300"},
        {"lease_seconds": timedelta(minutes=5)},
        {"stale_threshold_seconds": 0},
        {"partition_count": 0},
        {"max_partitions_per_instance": -3},
        {"run_limit": 0},
        {"run_limit": 2**31},
        {"run_limit": None},
        {"byte_limit": 0},
        {"max_attempts": 0},
        {"max_payload_bytes": 0},
    ],
)
def test_a_setting_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(InvalidSetting, match=f"^{name} is {re.escape(repr(value))}; give"):
        CoordinatorSettings(**wrong)
