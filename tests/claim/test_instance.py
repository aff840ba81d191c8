"""Who may take part: everybody says who it is, under an id of its own."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from whippletree.claim.instance import ServiceInstance
from whippletree.errors import InvalidSetting


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"instance_id": UUID(int=0)}, r"instance_id is UUID\('0.*0'\); give every process a uuid.UUID of its own"),
        ({"instance_id": "alice"}, "instance_id is 'alice'; give every process a uuid.UUID of its own"),
        ({"service_name": ""}, "service_name is empty"),
        ({"service_name": None}, "service_name is of type NoneType; give a text"),
        ({"service_name": "a\x00"}, "service_name contains the character NUL"),
        ({"host_name": None}, "host_name is of type NoneType; give a text"),
        ({"process_id": 2**40}, "process_id is 1099511627776; give 0 to 2147483647"),
        ({"process_id": None}, "process_id is None; give 0 to 2147483647"),
    ],
)
def test_an_instance_that_does_not_say_who_it_is_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting, match=f"^{words}"):
        ServiceInstance(**{"service_name": "orders", **wrong})
