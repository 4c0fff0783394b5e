"""What the tools of the database share: which one is meant, and the connection to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from agentmove_tools.cli.errors import say

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

Db: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        help="The database: a URL or service=NAME, without a password (also:"
        " AGENTFY_DATABASE_URL). Without either it is the embedded one.",
        show_default=False,
    ),
]


@contextmanager
def open_database(name: str, db: str | None, quiet: bool) -> Iterator[Connection[TupleRow]]:
    """A connection for the tool ``name``; raises what the library does."""
    from agentmove_tools.database.address import parameters_of  # noqa: PLC0415 (not for --help)
    from agentmove_tools.database.connection import connected  # noqa: PLC0415

    parameters = parameters_of(db)
    with connected(parameters, name, waiting=_telling(name, quiet)) as connection:
        yield connection


def _telling(name: str, quiet: bool) -> Callable[[str], None]:
    return lambda text: None if quiet else say(name, text)
