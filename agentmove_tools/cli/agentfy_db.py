"""``agentfy-db``: what is in the database, its schema, and the embedded server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from agentmove_tools.cli.databases import Db, open_database
from agentmove_tools.cli.options import JsonErrors, Quiet, Version, check_name
from agentmove_tools.cli.pipes import write_text
from agentmove_tools.cli.terminal import is_terminal, print_lines, print_table

_NAME = "agentfy-db"

command = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "terminal_width": 80},
    help="Look at the database of agents, bring its schema forward, stop the embedded server.\n\n"
    "What is there is shown as a table on a terminal, as JSON elsewhere.",
)


@command.callback()
def _options(version: Version = False) -> None:
    """Take the options that come before the command."""


@command.command()
def status(
    db: Db = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
) -> None:
    """Say which database it is, of what version, and whether its schema is up to date.

    The embedded server is not started for it.
    """
    from agentmove_tools.database.address import parameters_of  # noqa: PLC0415 (not for --help)

    if parameters_of(db) is None:
        from agentmove_tools.database.embedded import server_state  # noqa: PLC0415

        state = server_state()
        if not state.running:
            _show({"embedded": state._asdict(), "server": None, "schema": None})
            return
        embedded: dict[str, Any] | None = state._asdict()
    else:
        embedded = None
    from agentmove_tools.database.listing import status_of  # noqa: PLC0415 (as above)

    with open_database(_NAME, db, quiet) as connection:
        _show({"embedded": embedded, **status_of(connection)})


@command.command()
def migrate(
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the statements, and run none of them.")
    ] = False,
    db: Db = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
) -> None:
    """Bring the schema forward to what this program knows. An import does so by itself."""
    from agentmove_tools.database.connection import (  # noqa: PLC0415 (not for --help)
        bring_forward,
        missing_statements,
    )

    with open_database(_NAME, db, quiet) as connection:
        if sql:
            write_text(missing_statements(connection))
            return
        before, after = bring_forward(connection)
    _show({"before": before, "after": after})


@command.command()
def teams(
    db: Db = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
) -> None:
    """List the teams, and how many agents each has."""
    from agentmove_tools.database.connection import has_schema  # noqa: PLC0415 (not for --help)
    from agentmove_tools.database.listing import list_teams  # noqa: PLC0415

    with open_database(_NAME, db, quiet) as connection:
        found = list_teams(connection) if has_schema(connection) else []
    _show_rows(
        found,
        ("team", "ID", "agents", "created"),
        [(t["name"], t["id"], str(t["agents"]), _time(t["createdAt"])) for t in found],
    )


@command.command()
def agents(
    team: Annotated[
        str | None,
        typer.Option("--team", metavar="TEAM", help="Only of this one.", show_default=False),
    ] = None,
    db: Db = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
) -> None:
    """List the agents, and what each has."""
    from agentmove_tools.database.connection import has_schema  # noqa: PLC0415 (not for --help)
    from agentmove_tools.database.listing import list_agents  # noqa: PLC0415

    check_name("--team", team)
    with open_database(_NAME, db, quiet) as connection:
        found = list_agents(connection, team) if has_schema(connection) else []
    # what fits a terminal of 80 columns; all of it is in the JSON
    _show_rows(
        found,
        ("agent", "messages", "pending", "team", "name"),
        [
            (
                a["id"],
                str(a["messages"]),
                str(a["pendingSecrets"]),
                a["team"]["name"],
                a["name"] or a["externalId"],
            )
            for a in found
        ],
    )


@command.command()
def pending(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent's ID, agent-...")],
    db: Db = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
) -> None:
    """List the secrets of an agent that are still to be entered, by scope."""
    from agentmove_tools.database.connection import has_schema  # noqa: PLC0415 (not for --help)
    from agentmove_tools.database.listing import list_pending  # noqa: PLC0415
    from agentmove_tools.database.tenant import unknown_agent  # noqa: PLC0415

    check_name("AGENT", agent)
    with open_database(_NAME, db, quiet) as connection:
        if not has_schema(connection):
            raise unknown_agent(agent)
        found = list_pending(connection, agent)
    _show_rows(
        found,
        ("scope", "secret"),
        [(scope, name) for scope, names in found.items() for name in names],
    )


@command.command()
def stop(json_errors: JsonErrors = False) -> None:
    """Stop the embedded server. The next command that needs it starts it again."""
    from agentmove_tools.database.embedded import stop_server  # noqa: PLC0415 (not for --help)

    _show({"stopped": stop_server()})


def _show(found: dict[str, Any]) -> None:
    """Show an object: its members a line each on a terminal."""
    if is_terminal(1):
        print_lines(_lines(found))
    else:
        write_text(json.dumps(found, ensure_ascii=False) + "\n")


def _lines(found: dict[str, Any]) -> list[str]:
    lines = []
    for key, value in found.items():
        if isinstance(value, dict):
            lines += [f"{key} {line}" for line in _lines(value)]
        else:
            lines.append(f"{key}: {_said(value)}")
    return lines


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _show_rows(found: object, columns: Sequence[str], rows: list[tuple[str, ...]]) -> None:
    if is_terminal(1):
        print_table(columns, rows)
    else:
        write_text(json.dumps(found, ensure_ascii=False) + "\n")


def _time(moment: str | None) -> str:
    """A time with its seconds, in UTC, as a person reads it."""
    return (moment or "").partition(".")[0].replace("T", " ")
