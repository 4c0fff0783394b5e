"""A data folder for each test, whose server is stopped at the end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmove_tools.database.embedded import hold_server
from tests.database.embedded.holding import ask, quick_scratch, stopped_after


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder with a short name that the server's account can pass through."""
    with quick_scratch() as folder:
        yield folder


@pytest.fixture
def new_data(place: Path) -> Iterator[Path]:
    """The name of a data folder that is not there yet."""
    with stopped_after(place / "data") as data:
        yield data


@pytest.fixture(scope="session")
def made() -> Iterator[Path]:
    """A data folder with a row in a table, whose server is stopped: it is to be copied."""
    with quick_scratch() as folder:
        with stopped_after(folder / "data") as data, hold_server(str(data)) as held:
            ask(held.parameters, "CREATE TABLE kept AS SELECT 7 AS number")
        yield data


@pytest.fixture
def data(made: Path, place: Path) -> Iterator[Path]:
    """A data folder with a row in a table; it takes less time than one that is made."""
    subprocess.run(["cp", "-a", str(made), str(place / "data")], check=True)
    with stopped_after(place / "data") as data:
        yield data
