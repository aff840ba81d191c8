"""What the two services say to each other."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel, PositiveInt


class Line(BaseModel, frozen=True):
    article: str
    quantity: PositiveInt
    price: PositiveInt


class OrderPlaced(BaseModel, frozen=True):
    order_id: UUID
    customer: str
    lines: tuple[Line, ...]

    @property
    def total(self) -> int:
        return sum(line.quantity * line.price for line in self.lines)


class ParcelSent(BaseModel, frozen=True):
    order_id: UUID
    parcel: int
