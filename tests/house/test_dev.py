"""A fresh clone can rely on ./dev and on what it installs."""

from __future__ import annotations

import re
import subprocess
import tomllib

from tests.house.tree import ROOT

PINS = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")


def test_every_requirement_is_pinned_with_its_hash_and_nothing_else_is_said() -> None:
    entries = re.sub(r"^#.*\n", "", PINS, flags=re.MULTILINE).replace("\\\n", "").splitlines()
    pinned = re.compile(r"[\w.-]+==[\w.]+( ; [^#:]+?)?\s+(--hash=sha256:[0-9a-f]{64}\s*)+")
    assert not [entry for entry in entries if not pinned.fullmatch(entry)]


def test_every_dependency_is_among_the_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [project["project"]["dependencies"], project["build-system"]["requires"]]
    groups += [*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()]
    names = {re.split(r"[^\w-]", dependency)[0] for group in groups for dependency in group}
    assert not names - set(re.findall(r"^([\w-]+)==", PINS, re.MULTILINE)), "run ./dev lock"


def test_dev_lists_its_commands_and_refuses_others() -> None:
    told = subprocess.run([ROOT / "dev"], capture_output=True, text=True, check=True)
    refused = subprocess.run([ROOT / "dev", "nothing"], capture_output=True, text=True, check=False)

    assert [line.split()[1] for line in told.stdout.splitlines() if line.startswith("./dev")] == [
        *("demo", "test", "lint", "types", "bench", "prove", "screenshots", "lock"),
    ]
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", told.stdout)


def test_dev_says_what_to_install_where_there_is_no_python() -> None:
    clean = {"PATH": "/usr/bin:/bin", "PYTHON": "no-such-python"}
    done = subprocess.run([ROOT / "dev", "test"], capture_output=True, text=True, check=False, env=clean)

    assert done.returncode == 1
    assert "no Python 3.11 or newer at no-such-python; install one" in done.stderr
