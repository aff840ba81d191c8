"""A command on a terminal, and what it said there as a picture that needs nothing from the web."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

WIDTH = 100
THEME = TerminalTheme(
    (24, 26, 31),
    (212, 215, 222),
    [
        *((60, 64, 72), (240, 113, 120), (145, 200, 110), (230, 190, 100)),
        *((110, 160, 240), (190, 140, 230), (90, 190, 200), (212, 215, 222)),
    ],
)
# rich's own names a font that a reader's browser would fetch from another host.
FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font: {char_height}px/{line_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre;
}}
.{unique_id}-title {{ font: bold 18px sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def said_on_a_terminal(
    words: Sequence[str], environment: Mapping[str, str], directory: Path, columns: int = WIDTH
) -> str:
    """What `whippletree WORDS` says on a terminal."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    terminal = {"TERM": "xterm-256color", "COLUMNS": str(columns), "COLORTERM": ""}
    command = [sys.executable, "-m", "whippletree", *words]
    # Progress goes to stderr, and is gone when the command has ended.
    process = subprocess.Popen(  # noqa: S603 - our own command
        command, stdout=its, stderr=subprocess.DEVNULL, stdin=its, env={**environment, **terminal}, cwd=directory
    )
    os.close(its)
    said = bytearray()
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:
        pass  # Linux says so when nobody has the other end any more.
    finally:
        os.close(ours)
    process.wait()
    return said.decode().replace("\r\n", "\n")


def draw(name: str, said: Iterable[tuple[Sequence[str], str]]) -> str:
    """An SVG of commands and what they said."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    for place, (words, answer) in enumerate(said):
        quoted = " ".join(word if re.fullmatch(r"[\w./:-]+", word) else f'"{word}"' for word in words)
        console.print(Text.assemble("\n" if place else "", ("$ ", "dim"), (f"whippletree {quoted}", "bold")))
        console.print(Text.from_ansi(answer.rstrip("\n")))
    drawn = console.export_svg(title="", theme=THEME, code_format=FORMAT, unique_id=name)
    return re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE)
