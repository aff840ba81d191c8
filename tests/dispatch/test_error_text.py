"""What is stored of an error holds no contents of rows, statements or payloads."""

from __future__ import annotations

import asyncpg
import psycopg
import pydantic
import pytest
import sqlalchemy

from tests.store.callers import calling
from whippletree.dispatch.error_text import error_text, sqlstate
from whippletree.settings import Dsn


async def test_an_error_of_the_driver_is_told_by_its_names(db: asyncpg.Connection) -> None:
    await db.execute("CREATE TABLE secrets (word text PRIMARY KEY)")
    await db.execute("INSERT INTO secrets VALUES ('hidden')")
    with pytest.raises(asyncpg.UniqueViolationError) as raised:
        await db.execute("INSERT INTO secrets VALUES ('hidden')")
    text = error_text(raised.value)
    assert text == "UniqueViolationError: SQLSTATE 23505, table secrets, constraint secrets_pkey"

    with pytest.raises(asyncpg.PostgresError) as cast:
        await db.execute("SELECT 'hidden'::integer")
    assert "hidden" not in error_text(cast.value)


@pytest.mark.parametrize("driver", ["psycopg", "sqlalchemy", "django"])
async def test_an_error_that_a_library_wrapped_is_told_the_same_way(driver: str, dsn: Dsn) -> None:
    async with calling(driver, dsn) as caller:
        with pytest.raises(Exception) as raised:
            await caller.execute("SELECT 'hidden'::integer")
        assert sqlstate(raised.value) == "22P02"
        assert "hidden" not in error_text(raised.value)
        await caller.rollback()


def test_a_users_own_error_keeps_its_words() -> None:
    assert error_text(ValueError("the card is declined")) == "ValueError: the card is declined"
    assert error_text(KeyError()) == "KeyError"
    assert len(error_text(ValueError("x" * 10_000))) == 2_000
    assert sqlstate(ValueError()) is None


def test_a_validation_error_does_not_quote_its_input() -> None:
    class Model(pydantic.BaseModel):
        number: int

    with pytest.raises(pydantic.ValidationError) as raised:
        Model.model_validate({"number": "hidden"})
    assert "hidden" not in error_text(raised.value)
    assert "number:" in error_text(raised.value)


def test_errors_without_a_state_are_told_by_their_class() -> None:
    assert error_text(sqlalchemy.exc.DBAPIError("SELECT hidden", {}, psycopg.OperationalError("hidden"))) == (
        "DBAPIError: SQLSTATE unknown"
    )
