"""Tables that an import writes as a whole: rows go into a temporary one, and from it by one upsert.

The program's own ``WHERE`` is the first wall between teams: every statement here names the team.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.database.copying import copy_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from psycopg import Connection
    from psycopg.rows import TupleRow

    from agentmove_tools.database.copying import Cell


class Agent(NamedTuple):
    """Which agent's rows are meant."""

    team_id: str
    id: str


class Counts(NamedTuple):
    """What became of a table's rows: ``came`` in, ``written``, ``removed``."""

    came: int = 0
    written: int = 0
    removed: int = 0


class Table(NamedTuple):
    """A table of an agent's.

    ``keys``: the columns that, with the parent, find a row. ``columns``: all that come in, keys
    first, with their types in the temporary table; ``casts``: those that are of another type in
    the real one. ``values``: none for a table whose rows are only added. ``parent``: the column
    with the agent's or the skill's ID.
    """

    name: str
    keys: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    casts: tuple[tuple[str, str], ...] = ()
    parent: str = "agent_id"

    @property
    def incoming(self) -> str:
        """The temporary table's name."""
        return f"pg_temp.incoming_{self.name}"

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that are no keys."""
        return tuple(name for name, _ in self.columns if name not in self.keys)

    def matches(self, held: str, came: str) -> str:
        """The condition that a row that is held is the one that came."""
        return " AND ".join(f"{held}.{key} = {came}.{key}" for key in self.keys) or "true"


SKILL: Final = Table(
    "skill",
    ("path",),
    (("path", "text"), ("name", "text"), ("description", "text"), ("content", "text")),
)
MEMORY: Final = Table(
    "memory",
    ("path",),
    (("path", "text"), ("day", "text"), ("content", "text")),
    casts=(("day", "date"),),
)
SECRET: Final = Table("secret", ("scope", "name"), (("scope", "text"), ("name", "text")))
ACCESS_USER: Final = Table(
    "access_user",
    ("channel", '"user"'),
    (("channel", "text"), ('"user"', "text"), ("app_user_id", "text")),
)
ACCOUNT: Final = Table("account", ("profile",), (("profile", "text"), ("content", "text")))
USAGE: Final = Table("usage", (), (("content", "text"),))
CHAT: Final = Table("chat", ("channel", '"user"'), (("channel", "text"), ('"user"', "text")))
FILE: Final = Table(
    "file",
    ("skill_id", "path"),
    (("skill_id", "text"), ("path", "text"), ("executable", "boolean"), ("content", "bytea")),
    parent="skill_id",
)


def make_incoming(connection: Connection[TupleRow], table: Table) -> None:
    """Make the temporary table that rows come into. It is gone when the transaction ends."""
    columns = ", ".join(
        f'{name} {kind} COLLATE "C"' if kind == "text" else f"{name} {kind}"
        for name, kind in table.columns
    )
    connection.execute(
        f"CREATE TEMPORARY TABLE incoming_{table.name} ({columns}) ON COMMIT DROP".encode()
    )


@contextmanager
def without_nested_loops(connection: Connection[TupleRow]) -> Iterator[None]:
    """Join by hashes, whatever is known of the tables' sizes.

    An index by a name's hash is of no use in a join: row-level security lets no function of ours
    see a row before it. Without this the time may go by the square of the rows. What can only be
    a nested loop is still one, of a cost for which the server would compile it, which takes long.
    """
    connection.execute("SET LOCAL jit = off")
    connection.execute("SET LOCAL enable_nestloop = off")
    yield
    connection.execute("SET LOCAL enable_nestloop = on")


def take_in(
    connection: Connection[TupleRow], table: Table, rows: Iterable[tuple[Cell, ...]]
) -> None:
    """Bring rows into the temporary table, which is made."""
    make_incoming(connection, table)
    copy_rows(connection, table.incoming, rows)


def upsert(connection: Connection[TupleRow], table: Table, agent: Agent) -> Counts:
    """Write the rows that came and differ from those that are held, in the order of their keys.

    A row that is equal is not touched. Raises psycopg's errors.
    """
    names = [name for name, _ in table.columns]
    casts = dict(table.casts)
    given = [f"came.{name}::{casts[name]}" if name in casts else f"came.{name}" for name in names]
    above = ["team_id"] if table.parent in table.keys else ["team_id", table.parent]
    above_values = ["%(team)s", "%(agent)s"][: len(above)]
    arbiter = [] if table.parent in table.keys else [table.parent]
    arbiter += [key if key == table.parent else f"agentfy.key_of({key})" for key in table.keys]
    same = [
        f"held.{name} {'=' if name in table.keys else 'IS NOT DISTINCT FROM'} {value}"
        for name, value in zip(names, given, strict=True)
    ]
    own = _own(table)
    sets = ", ".join(f"{name} = excluded.{name}" for name in table.values)
    action = f"UPDATE SET {sets} WHERE held.team_id = %(team)s" if sets else "NOTHING"
    written = connection.execute(
        f"""
        INSERT INTO agentfy.{table.name} AS held ({", ".join([*above, *names])})
        SELECT {", ".join([*above_values, *given])} FROM {table.incoming} AS came
        WHERE NOT EXISTS (
            SELECT FROM agentfy.{table.name} AS held WHERE {own} AND {" AND ".join(same)}
        )
        {"ORDER BY" if table.keys else ""} {", ".join(f"came.{key}" for key in table.keys)}
        ON CONFLICT ({", ".join(arbiter)}) DO {action}
        """.encode(),
        _whose(agent),
    ).rowcount
    row = connection.execute(f"SELECT count(*) FROM {table.incoming}".encode()).fetchone()
    return Counts(came=0 if row is None else int(row[0]), written=written)


def remove_missing(
    connection: Connection[TupleRow],
    table: Table,
    agent: Agent,
    only: str = "true",
    given: Sequence[str] = (),
) -> int:
    """Remove the agent's rows that did not come; how many.

    ``only`` narrows these, as SQL, in which %(given)s are the strings ``given``.
    """
    return connection.execute(
        f"""
        DELETE FROM agentfy.{table.name} AS held WHERE {_own(table)} AND ({only})
        AND NOT EXISTS (SELECT FROM {table.incoming} AS came WHERE {table.matches("held", "came")})
        """.encode(),
        {**_whose(agent), "given": list(given)},
    ).rowcount


def _own(table: Table) -> str:
    """The condition that a row is of the agent."""
    if table.parent == "agent_id":
        return "held.team_id = %(team)s AND held.agent_id = %(agent)s"
    return (
        "held.team_id = %(team)s AND held.skill_id IN (SELECT skill.id FROM agentfy.skill"
        " WHERE skill.team_id = %(team)s AND skill.agent_id = %(agent)s)"
    )


def _whose(agent: Agent) -> dict[str, str]:
    return {"team": agent.team_id, "agent": agent.id}
