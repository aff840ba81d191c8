"""The shop as it is mended: an order without a total is summed up."""

from __future__ import annotations

from examples.screenshots import shop
from examples.screenshots.shop import app

__all__ = ["app"]

shop.total_of = lambda lines: lines.get("total", sum(lines.values()))
