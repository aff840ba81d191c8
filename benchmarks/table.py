"""What a benchmark found out: a figure, what it should be, and how both are shown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from rich.console import Console
from rich.table import Table


class Aim(Enum):
    """On which side of its target a figure should lie."""

    AT_LEAST = "≥"
    AT_MOST = "≤"
    UNDER = "<"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value. Without a target it is there to be compared with."""

    name: str
    value: float
    unit: str
    aim: Aim = Aim.AT_LEAST
    target: float | None = None

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        if self.aim is Aim.AT_LEAST:
            return self.value >= self.target
        return self.value < self.target if self.aim is Aim.UNDER else self.value <= self.target


async def median(repeat: int, measure: Callable[[], Awaitable[float]]) -> float:
    """The median of several measurements: one that was disturbed does not count."""
    return statistics.median([await measure() for _ in range(repeat)])


def as_json(figures: Iterable[Figure]) -> str:
    return json.dumps(
        [{"name": f.name, "value": f.value, "unit": f.unit, "target": f.target, "met": f.met} for f in figures],
        indent=2,
    )


def show(figures: Sequence[Figure], console: Console) -> None:
    table = Table(title="Whippletree, and the limits of the same server in the same run")
    for heading, justify in (("", "left"), ("measured", "right"), ("target", "right"), ("", "left")):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for figure in figures:
        target = "" if figure.target is None else f"{figure.aim.value} {_number(figure.target)}"
        met = {True: "[green]met", False: "[red]missed", None: ""}[figure.met]
        table.add_row(figure.name, f"{_number(figure.value)} {figure.unit}", target, met)
    console.print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"
