from __future__ import annotations

import whippletree

NAMES: list[str] = list(getattr(whippletree, "__all__", ()))


def test_there_are_few_public_names() -> None:
    assert len(NAMES) <= 25
    assert len(set(NAMES)) == len(NAMES)


def test_every_public_name_is_documented() -> None:
    for name in NAMES:
        docstring = getattr(whippletree, name).__doc__ or ""
        # A dataclass without a docstring gets its signature as one.
        assert docstring.strip(), name
        assert not docstring.startswith(f"{name}("), name


def test_a_public_name_is_at_home_in_one_module_of_ours() -> None:
    for name in NAMES:
        home = getattr(getattr(whippletree, name), "__module__", "whippletree")
        assert home.startswith("whippletree"), name
