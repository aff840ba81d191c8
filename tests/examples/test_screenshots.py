"""The pictures of the documents are drawn from real commands, and need nothing from the web."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT, files
from whippletree.settings import Dsn

IMAGES = ROOT / "docs" / "images"
LARGEST = 40_000


def words(picture: Path) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", picture.read_text(encoding="utf-8"))).replace("\xa0", " ")


def test_every_picture_is_shown_somewhere_and_asks_for_nothing_from_outside() -> None:
    documents = "\n".join(
        file.read_text(encoding="utf-8") for file in (*ROOT.glob("*.md"), *files("docs", suffix=".md"))
    )
    pictures = sorted(IMAGES.glob("*.svg"))
    assert pictures
    for picture in pictures:
        drawn = picture.read_text(encoding="utf-8")
        assert f"images/{picture.name})" in documents
        assert set(re.findall(r"https?://[^\"\s)]+", drawn)) == {"http://www.w3.org/2000/svg"}
        assert "@font-face" not in drawn
        assert len(drawn) < LARGEST


def test_they_are_drawn_anew_from_the_real_commands(dsn: Dsn, tmp_path: Path) -> None:
    environment = os.environ | {"WHIPPLETREE_DSN": dsn.reveal(), "PYTHONPATH": f"{ROOT / 'src'}"}
    command = [sys.executable, "-m", "examples.screenshots", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", timeout=400, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert {picture.name for picture in tmp_path.iterdir()} == {picture.name for picture in IMAGES.glob("*.svg")}
    assert "critical: 1 stream of inbox stopped" in words(tmp_path / "status.svg")
    assert "parked after 3 attempts: ValueError: 480 kg are too heavy for the cart" in words(tmp_path / "why.svg")
    assert "it would succeed; everything was rolled back" in words(tmp_path / "mend.svg")
    assert "every promise is kept" in words(tmp_path / "verify.svg")
