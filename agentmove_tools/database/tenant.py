"""The wall between teams, as each transaction puts it up (Agent package, section 4)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.refusals import MachineError, Refusal

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

ROLE: Final = "agentfy_tenant"
# No team has such a name.
_IS_ID: Final = re.compile(r"team-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HOLDS: Final = """
    SELECT bool_and(row_security_active(oid)) FROM pg_catalog.pg_class
    WHERE relnamespace = 'agentfy'::regnamespace AND relkind = 'r' AND relname <> 'schema_version'
"""
_CONCIERGE: Final = "concierge"
_SET_TEAM: Final = "SELECT set_config('agentfy.team', %s, true)"


class Team(NamedTuple):
    """A team of the database. ``created``: by this transaction."""

    id: str
    name: str
    created: bool = False


def take_role(connection: Connection[TupleRow]) -> None:
    """From here to the transaction's end only the rows of one team are there; yet of none.

    Raises ``MachineError`` where row-level security does not hold, and psycopg's errors.
    """
    connection.execute(f"SET LOCAL ROLE {ROLE}")
    row = connection.execute(_HOLDS).fetchone()
    if row != (True,):
        raise MachineError(
            f"row-level security does not hold for the role {ROLE}: nothing is read or written",
            hint="has somebody turned it off, or given the role more rights?",
        )


def enter_team(connection: Connection[TupleRow], named: str, *, create: bool) -> Team:
    """Make the team of this name or ID the transaction's own. ``create``: make a missing one.

    ``take_role`` was called before. Raises ``Refusal`` (team-unknown), and psycopg's errors.
    """
    connection.execute(_SET_TEAM, (named,))
    team = _find(connection, named)
    if team is None:
        if not create or _IS_ID.fullmatch(named):
            hint = "agentfy-db teams lists those there are; agentfy-import --create-team makes one"
            raise Refusal("team-unknown", f"--team names {named!r}", hint=hint)
        made = connection.execute(
            "INSERT INTO agentfy.team (name) VALUES (%s) ON CONFLICT (name) DO NOTHING"
            " RETURNING id",
            (named,),
        ).fetchone()
        # the other one that makes it has committed when there is nothing to be done
        team = _find(connection, named) if made is None else Team(str(made[0]), named, True)
        if team is None:
            raise MachineError(f"the team {named!r} cannot be made")
    connection.execute(_SET_TEAM, (team.id,))
    return team


def enter_team_of(connection: Connection[TupleRow], agent: str) -> Team:
    """Make the team of the agent with this ID the transaction's own.

    ``take_role`` was called before. Raises ``Refusal`` (agent-unknown), and psycopg's errors.
    """
    row = connection.execute("SELECT agentfy.team_of(%s)", (agent,)).fetchone()
    if row is None or row[0] is None:
        raise unknown_agent(agent)
    connection.execute(_SET_TEAM, (row[0],))
    team = _find(connection, str(row[0]))
    if team is None:  # removed in between
        raise unknown_agent(agent)
    return team


def refuse_concierge(kind: str, agent: str) -> None:
    """Raise ``Refusal`` (agent-concierge) for an agent of that type."""
    if kind == _CONCIERGE:
        raise Refusal("agent-concierge", f"it is {agent!r}")


def unknown_agent(agent: str) -> Refusal:
    """The refusal of an agent that the database, or the team, does not have."""
    return Refusal("agent-unknown", f"{agent!r}", hint="agentfy-db agents lists those there are")


def _find(connection: Connection[TupleRow], named: str) -> Team | None:
    row = connection.execute(
        "SELECT id, name FROM agentfy.team WHERE id = %s OR name = %s", (named, named)
    ).fetchone()
    return None if row is None else Team(str(row[0]), str(row[1]))
