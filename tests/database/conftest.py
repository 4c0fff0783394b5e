"""One database for all tests of a process that keep to teams of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Final

import pytest

from tests.database.databases import Server
from tests.database.teams import SharedDatabase, Team

_numbers: Final = count()


@pytest.fixture(scope="session")
def shared_database(db_server: Server, template: str) -> Iterator[SharedDatabase]:
    """A database with the schema, in which each test has its own teams."""
    with db_server.database(template) as made, closing(SharedDatabase(made.parameters)) as database:
        yield database


@pytest.fixture
def new_team(shared_database: SharedDatabase) -> Callable[[], Team]:
    """Name another team, which the first import makes."""
    return lambda: Team(shared_database, f"team {next(_numbers)}")


@pytest.fixture
def team(new_team: Callable[[], Team]) -> Team:
    """A team of the test's own."""
    return new_team()
