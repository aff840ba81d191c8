"""Settings with which a coordinator could not work, or would rob the others."""

from __future__ import annotations

import math
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
        {"stale_threshold_seconds": 0},
        {"run_limit": 0},
        {"byte_limit": 0},
        {"max_attempts": 0},
    ],
)
def test_a_setting_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(InvalidSetting, match=f"^{name} is {value}; give"):
        CoordinatorSettings(**wrong)
