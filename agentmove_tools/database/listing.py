"""What is in the database, to be looked at: teams, agents, the secrets that are still pending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agentmove_tools.database.errors import database_errors
from agentmove_tools.database.schema import HEAD, version_there
from agentmove_tools.database.tables import Agent
from agentmove_tools.database.tenant import enter_team, enter_team_of, take_role
from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

# A time as text, whatever the server's or the user's form of dates is; an infinite one is NULL.
_TIME: Final = """to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
_AGENTS: Final = f"""
    SELECT agent.id, agent.external_id, agent.name, agent.type,
        (SELECT count(*) FROM agentfy.skill WHERE skill.agent_id = agent.id),
        (SELECT count(*) FROM agentfy.memory WHERE memory.agent_id = agent.id),
        (SELECT count(*) FROM agentfy.chat WHERE chat.agent_id = agent.id),
        (SELECT count(*) FROM agentfy.message JOIN agentfy.chat ON chat.id = message.chat_id
            WHERE chat.agent_id = agent.id),
        (SELECT count(*) FROM agentfy.secret WHERE secret.agent_id = agent.id AND pending),
        {_TIME.format("agent.updated_at")}, team.id, team.name
    FROM agentfy.agent JOIN agentfy.team ON team.id = agent.team_id
    WHERE %(team)s::text IS NULL OR agent.team_id = %(team)s
    ORDER BY team.name, agent.external_id
"""
# the columns of that but for the last three
_COUNTED: Final = (
    *("id", "externalId", "name", "type"),
    *("skills", "memories", "chats", "messages", "pendingSecrets"),
)


def pending_names(connection: Connection[TupleRow], agent: Agent) -> dict[str, list[str]]:
    """The names of an agent's secrets that are to be entered, sorted, by scope.

    Raises psycopg's errors.
    """
    found: dict[str, list[str]] = {}
    rows = connection.execute(
        """
        SELECT scope, name FROM agentfy.secret
        WHERE team_id = %s AND agent_id = %s AND pending ORDER BY scope, name
        """,
        agent,
    )
    for scope, name in rows:
        found.setdefault(scope, []).append(name)
    return found


def status_of(connection: Connection[TupleRow]) -> dict[str, object]:
    """What server and database it is, and the version of its schema. Nothing is changed.

    Raises ``MachineError``.
    """
    with database_errors(outcome=None):
        row = connection.execute(
            "SELECT current_setting('server_version'), current_database(), current_user"
        ).fetchone()
        version = version_there(connection)
        connection.rollback()
    server, database, user = row or (None, None, None)
    return {
        "server": {"version": server, "database": database, "user": user},
        "schema": {"version": version, "known": HEAD},
    }


def list_teams(connection: Connection[TupleRow]) -> list[dict[str, Any]]:
    """Every team, by name, with how many agents it has.

    It looks across the wall between teams, so it takes a database user who owns the tables. Raises
    ``MachineError``.
    """
    with database_errors(outcome=None):
        _require_all(connection)
        rows = connection.execute(
            f"""
            SELECT team.id, team.name, count(agent.id), {_TIME.format("team.created_at")}
            FROM agentfy.team LEFT JOIN agentfy.agent ON agent.team_id = team.id
            GROUP BY team.id ORDER BY team.name
            """.encode()
        ).fetchall()
    return [
        {"id": team, "name": name, "agents": agents, "createdAt": created}
        for team, name, agents, created in rows
    ]


def list_agents(connection: Connection[TupleRow], team: str | None) -> list[dict[str, Any]]:
    """Every agent of a team, which is named or told by its ID, or of all for None.

    For all it takes a database user who owns the tables. Raises ``Refusal`` (team-unknown) and
    ``MachineError``.
    """
    with database_errors(outcome=None):
        team_id = None
        if team is None:
            _require_all(connection)
        else:
            take_role(connection)
            team_id = enter_team(connection, team, create=False).id
        rows = connection.execute(_AGENTS.encode(), {"team": team_id}).fetchall()
    agents: list[dict[str, Any]] = []
    for row in rows:
        *columns, updated, team_id, team_name = row
        agent = dict(zip(_COUNTED, columns, strict=True))
        agent["updatedAt"] = updated
        agent["team"] = {"id": team_id, "name": team_name}
        agents.append(agent)
    return agents


def _require_all(connection: Connection[TupleRow]) -> None:
    """Raise ``MachineError`` for a database user who is shown only the rows of one team."""
    row = connection.execute("SELECT row_security_active('agentfy.agent')").fetchone()
    if row != (False,):
        raise MachineError(
            "this database user sees one team at a time, and not all of them",
            hint="name the team with --team, or list as the user who owns the tables",
        )


def list_pending(connection: Connection[TupleRow], agent: str) -> dict[str, list[str]]:
    """The names of the secrets that are to be entered for the agent with this ID, by scope.

    Raises ``Refusal`` (agent-unknown) and ``MachineError``.
    """
    with database_errors(outcome=None):
        take_role(connection)
        team = enter_team_of(connection, agent)
        return pending_names(connection, Agent(team.id, agent))
