"""The rows whose time is measured with a database: imports and exports of an agent package.

The agent has 100 000 events in eight sessions, 20 MiB as ``agentfy-pack`` writes them, and little
else; the database has the schema and the team. Each run begins with a database of its own that is
made anew, which is not timed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks.databases import Databases
from tests.benchmarks.homes import Data, quoted
from tests.benchmarks.measure import Work
from tests.benchmarks.rows import Pair, Row

_FULL: Final = "full"  # the database that has the agent
_COPY: Final = "begin;\n{}\ncommit;\n"


def _import(data: Data) -> Pair:
    """The tool against psql's copy of the same rows into the same tables, in one transaction."""
    databases = data.databases
    full = databases.with_agent(_FULL, data.packed_talk())
    columns = databases.columns(full)
    files = {table: data.memory / f"{table}.copy" for table in columns}
    out_of = [
        rf"\copy (SELECT {names} FROM agentfy.{table}) to '{files[table]}'"
        for table, names in columns.items()
    ]
    databases.run_file(full, _script(data, "out-of.sql", out_of))
    into = [
        rf"\copy agentfy.{table} ({names}) from '{files[table]}'"
        for table, names in columns.items()
    ]
    script = _script(data, "into.sql", into)
    return _first(data), Work(
        f"{databases.psql('copied')} -f {quoted(script)}",
        data.memory / "nothing",
        partial(databases.fresh, "copied", databases.team),
    )


def _export(data: Data) -> Pair:
    """The tool against psql's copy of the same tables in one transaction, and ``zip``."""
    databases = data.databases
    full = databases.with_agent(_FULL, data.packed_talk())
    out_of = [
        rf"\copy (SELECT {names} FROM agentfy.{table}) to pstdout"
        for table, names in databases.columns(full).items()
    ]
    script = _script(data, "to-zip.sql", out_of)
    place = data.memory / "exported"
    return (
        Work(f'{databases.export_of(full)} -o "$NEW/agent.zip"', place),
        Work(f'{databases.psql(full)} -f {quoted(script)} | zip -q "$NEW/rows.zip" -', place),
    )


def _again(data: Data) -> Pair:
    """The same package again, of which nothing is written: no database has to be made anew."""
    databases, package = data.databases, data.packed_talk()
    full = databases.with_agent(_FULL, package)
    unchanged = f"""{databases.import_of(full, package)} | grep -q '"result": "unchanged"'"""
    return Work(unchanged, data.memory / "nothing"), _first(data)


def _added(data: Data) -> Pair:
    """The package with one event more at the end of a session."""
    return _changed(data, data.packed_talk("added", 1))


def _inserted(data: Data) -> Pair:
    """The package with one event more in the middle of a session: half of them move."""
    return _changed(data, data.packed_talk("inserted", 0.5))


def _changed(data: Data, package: Path) -> Pair:
    databases = data.databases
    full = databases.with_agent(_FULL, data.packed_talk())
    updated = f"""{databases.import_of("changed", package)} | grep -q '"result": "updated"'"""
    anew = partial(databases.fresh, "changed", full)
    return Work(updated, data.memory / "nothing", anew), _first(data)


def _first(data: Data) -> Work:
    databases: Databases = data.databases
    return Work(
        f"{databases.import_of('first', data.packed_talk())} > /dev/null",
        data.memory / "nothing",
        partial(databases.fresh, "first", databases.team),
    )


def _script(data: Data, name: str, commands: list[str]) -> Path:
    path = data.memory / name
    path.write_text(_COPY.format("\n".join(commands)), encoding="utf-8")
    return path


DATABASE_ROWS: Final = (
    Row("database-import", r"psql \copy from", 3.0, _import),
    Row("database-again", "the first time", 0.5, _again),
    Row("database-added", "the first time", 0.6, _added),
    Row("database-inserted", "the first time", 0.6, _inserted),
    Row("database-export", r"psql \copy to | zip", 2.0, _export, ("zip",)),
)
