"""What the database and its library raise, as one line of ours."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from agentmove_tools.database.errors import IN_DOUBT, NOTHING_CHANGED, database_errors, told
from agentmove_tools.refusals import MachineError
from tests.database.databases import Database

SECRET = "hunter2"


def raised(database: Database, *statements: str) -> MachineError:
    """What becomes of the error of the last statement."""
    with database.connect() as connection:
        for statement in statements[:-1]:
            connection.execute(statement.encode())
        with pytest.raises(MachineError) as caught, database_errors():
            connection.execute(statements[-1].encode())
    return caught.value


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["SELECT 1/0"], "the database says: division by zero"),
        (["SELEC"], 'the database says: syntax error at or near "SELEC"'),
        (["DO $$BEGIN RAISE 'The end.'; END$$"], "the database says: the end"),
        (["DO $$BEGIN RAISE E'One.\nTwo.'; END$$"], "the database says: one; Two"),
        (["DO $$BEGIN RAISE 'SQL is it'; END$$"], "the database says: SQL is it"),
        (
            ["SET statement_timeout = 20", "SELECT pg_sleep(9)"],
            "the database cancelled the statement: statement timeout",
        ),
        (["SET LOCAL transaction_read_only = on", "CREATE TABLE x()"], "the database is read-only"),
        (
            ["SET LOCAL ROLE pg_monitor", "CREATE SCHEMA x"],
            "the database user lacks a right: permission denied for database {name}",
        ),
        *(
            ([f"DO $$BEGIN RAISE 'no' USING ERRCODE = '{state}'; END$$"], said)
            for state, said in [
                ("53100", "the database's disk is full"),
                ("53200", "the database is out of memory"),
                ("53300", "the database takes no more connections"),
                ("57P01", "the database was stopped"),
                ("57P03", "the database takes no connections now"),
            ]
        ),
    ],
)
def test_what_the_server_says(
    empty_database: Database, statements: list[str], message: str
) -> None:
    """In our words where we have some; and what came of it."""
    error = raised(empty_database, *statements)
    assert error.message == f"{message.format(name=empty_database.name)}; {NOTHING_CHANGED}"
    assert error.message.isprintable()
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_what_is_in_a_row_is_not_told(empty_database: Database) -> None:
    """The server's details and the statement hold it; the message of ours does not."""
    unique = raised(
        empty_database,
        "CREATE TABLE x (a text UNIQUE)",
        f"INSERT INTO x VALUES ('{SECRET}')",
        f"INSERT INTO x VALUES ('{SECRET}')",
    )
    assert "duplicate key value" in unique.message
    check = raised(
        empty_database,
        "CREATE TABLE x (a text CHECK (a = ''))",
        f"INSERT INTO x VALUES ('{SECRET}')",
    )
    assert "violates check constraint" in check.message
    for error in (unique, check):
        assert SECRET not in f"{error.message} {error.details}"


def test_a_hint_of_ours_is_handed_on_and_a_programmers_is_not(empty_database: Database) -> None:
    """What the migrations advise; but not how to write a statement."""
    error = raised(empty_database, "DO $$BEGIN RAISE 'no' USING HINT = 'Do that.'; END$$")
    assert error.details == {"hint": "do that"}
    assert raised(empty_database, "SELECT now() + 'a'::text").details == {}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            psycopg.OperationalError(
                'connection failed: connection to server at "h", port 1 failed: Connection refused'
                "\n\tIs the server running on that host and accepting TCP/IP connections?"
            ),
            (
                'cannot connect to the database: connection to server at "h", port 1 failed:'
                " Connection refused"
            ),
        ),
        (
            psycopg.OperationalError("consuming input failed: server closed the connection.\n"),
            (
                "the connection to the database was lost: consuming input failed: server closed the"
                " connection"
            ),
        ),
        (
            errors.ConnectionTimeout("connection timeout expired"),
            "the database does not answer: the connection timed out",
        ),
        (psycopg.ProgrammingError("What?"), "the database's library says: What?"),
        (psycopg.InterfaceError("The end."), "the database's library says: the end"),
        (psycopg.OperationalError(""), "the connection to the database was lost: "),
    ],
)
def test_what_the_library_says(error: psycopg.Error, message: str) -> None:
    """A connection that was lost is another thing than one that was never made."""
    assert told(error, None).message == message


def test_what_came_of_it_is_said_only_where_there_was_something_to_do() -> None:
    """A commit that got no answer may have been made."""
    lost = psycopg.OperationalError("the connection is closed")
    assert told(lost).message.endswith(f"; {NOTHING_CHANGED}")
    assert told(lost, IN_DOUBT).message.endswith(f"; {IN_DOUBT}")
    assert not told(lost, None).message.endswith(NOTHING_CHANGED)


def test_what_is_to_be_tried_again_passes() -> None:
    """And so does what is no error of the database's."""
    with pytest.raises(errors.DeadlockDetected), database_errors(but=(errors.DeadlockDetected,)):
        raise errors.DeadlockDetected
    with pytest.raises(KeyError), database_errors():
        raise KeyError
