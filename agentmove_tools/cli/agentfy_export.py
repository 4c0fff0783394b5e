"""``agentfy-export AGENT``: an agent of the database becomes a package."""

from __future__ import annotations

from typing import Annotated

import typer

from agentmove_tools.cli.databases import Db, open_database
from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version, check_name
from agentmove_tools.cli.packages import With, tell, wanted
from agentmove_tools.cli.pipes import open_output

_NAME = "agentfy-export"


def command(
    agent: Annotated[
        str,
        typer.Argument(metavar="AGENT", help="The agent's ID in the database, agent-..."),
    ],
    team: Annotated[
        str | None,
        typer.Option(
            "--team",
            metavar="TEAM",
            help="Refuse an agent of another team than this.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="USER",
            help="Leave the chats and secrets of other users out.",
            show_default=False,
        ),
    ] = None,
    with_: With = None,
    db: Db = None,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Write the agent package of one agent of the database, a ZIP archive.

    An agent that has not changed gives the same bytes. Secrets go by name only.
    """
    from agentmove_tools.database.connection import has_schema  # noqa: PLC0415 (not for --help)
    from agentmove_tools.database.exporting import ExportOptions, export_agent  # noqa: PLC0415
    from agentmove_tools.database.tenant import unknown_agent  # noqa: PLC0415

    check_name("AGENT", agent)
    check_name("--team", team)
    check_name("--user", user)
    options = ExportOptions(agent=agent, team=team, user=user, wanted=wanted(with_))
    with open_output(output, binary=True, what="an agent package") as sink:
        with open_database(_NAME, db, quiet) as connection:
            if not has_schema(connection):
                raise unknown_agent(agent)
            exported = export_agent(connection, options)
        tell(_NAME, exported.package)
        sink.write(b"".join(exported.pieces))
