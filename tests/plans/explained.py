"""The plans by which PostgreSQL really ran our functions: every statement in them, told by auto_explain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import asyncpg

_SETTINGS = """
    LOAD 'auto_explain';
    SET auto_explain.log_min_duration = 0;
    SET auto_explain.log_nested_statements = on;
    SET auto_explain.log_analyze = on;
    SET auto_explain.log_timing = off;
    SET auto_explain.log_buffers = on;
    SET auto_explain.log_format = json;
    SET client_min_messages = log;
"""


@dataclass(frozen=True)
class Node:
    """One step of a plan, and the step that asks it for rows."""

    facts: dict[str, Any]
    parent: Node | None

    @property
    def kind(self) -> str:
        return str(self.facts["Node Type"])

    @property
    def table(self) -> str:
        return str(self.facts.get("Relation Name", ""))

    @property
    def index(self) -> str:
        return str(self.facts.get("Index Name", ""))

    @property
    def condition(self) -> str:
        return str(self.facts.get("Index Cond", self.facts.get("TID Cond", "")))

    @property
    def rows_read(self) -> float:
        """How many rows the step looked at, in all its turns. The rows of a turn are told rounded, to hundredths,
        before version 18 to whole ones: it may be half of that less in each."""
        removed = sum(count for name, count in self.facts.items() if name.startswith("Rows Removed"))
        rows, turns = self.facts["Actual Rows"], self.facts["Actual Loops"]
        rounded = 0 if turns == 1 else 0.5 if isinstance(rows, int) else 0.005
        return float((max(rows - rounded, 0) + removed) * turns)

    def below(self) -> Iterator[Node]:
        """This step and all that it asks for rows."""
        yield self
        for child in self.facts.get("Plans", ()):
            yield from Node(child, self).below()


@dataclass(frozen=True)
class Plan:
    statement: str
    root: Node

    @property
    def asks(self) -> set[str]:
        """The conditions of a claim that PostgreSQL calls, instead of having put their text in the place."""
        found = {"is_ready", "is_open_to", "is_ahead", "run_length", "works_queue"}
        return {name for name in found if f"{name}(" in json.dumps(self.root.facts)}

    def steps(self, kind: str = "", table: str = "") -> list[Node]:
        return [node for node in self.root.below() if kind in node.kind and table in node.table]


class Explained:
    """A connection that tells the plan of every statement, those inside functions too."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._told: list[Plan] = []

    @classmethod
    async def on(cls, connection: asyncpg.Connection) -> Explained:
        explained = cls(connection)
        await connection.execute(_SETTINGS)
        connection.add_log_listener(explained._listen)
        return explained

    async def plans(self, statement: str, *arguments: Any) -> list[Plan]:
        """Run the statement; the plans of everything that it ran."""
        self._told.clear()
        await self._connection.fetch(statement, *arguments)
        # The driver tells its listeners in the loop's next turn, in the order in which it was asked to.
        told = asyncio.Event()
        asyncio.get_running_loop().call_soon(told.set)
        await told.wait()
        return list(self._told)

    def _listen(self, _: object, message: asyncpg.PostgresLogMessage) -> None:
        _, found, plan = str(message.message).partition("plan:\n")
        if found:
            told = json.loads(plan)
            self._told.append(Plan(told["Query Text"], Node(told["Plan"], None)))
