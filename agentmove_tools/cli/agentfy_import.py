"""``agentfy-import``: an agent package goes into the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentmove_tools.cli.databases import Db, open_database
from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version, check_name
from agentmove_tools.cli.packages import (
    DropTornLine,
    ExternalId,
    Strict,
    With,
    check_external_id,
    print_not_taken,
    tell,
    wanted,
)
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress
from agentmove_tools.cli.terminal import is_terminal, print_lines, print_table
from agentmove_tools.refusals import MachineError, UsageError

if TYPE_CHECKING:
    from agentmove_tools.database.importing import ImportOptions
    from agentmove_tools.package.contents import Package

_NAME = "agentfy-import"


def command(
    team: Annotated[
        str,
        typer.Option("--team", metavar="TEAM", help="Whose agent it is to be: a name or an ID."),
    ],
    create_team: Annotated[
        bool, typer.Option("--create-team", help="Make the team if it is missing.")
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="AGENT",
            help="The agent of the team that is to be updated: its ID in the database.",
            show_default=False,
        ),
    ] = None,
    external_id: ExternalId = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Remove skills, memories and names of pending secrets that the package lacks.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would change, and change nothing.")
    ] = False,
    with_: With = None,
    strict: Strict = False,
    drop_torn_line: DropTornLine = False,
    db: Db = None,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Read an agent package, check all of it, and bring it into the database.

    It is one transaction: all of it is written, or nothing. What is there and equal is left alone.
    The report is JSON, or a table on a terminal; it names the secrets that are still to be entered.
    """
    from agentmove_tools.database.importing import ImportOptions  # noqa: PLC0415 (not for --help)

    check_name("--team", team)
    check_name("--agent", agent)
    check_external_id(external_id)
    if agent is not None and external_id is not None:
        raise UsageError("--agent and --external-id name one agent in two ways: give one of them")
    options = ImportOptions(
        team=team, create_team=create_team, agent=agent, prune=prune, dry_run=dry_run
    )
    source = open_input("an agent package")
    # The output is opened first: a report that cannot be written is said before anything is done.
    with open_output(output, binary=False) as sink:
        from agentmove_tools.database.address import parameters_of  # noqa: PLC0415 (as above)
        from agentmove_tools.package.archive_reader import Archive, read_upload  # noqa: PLC0415
        from agentmove_tools.package.contents import Options, Package  # noqa: PLC0415
        from agentmove_tools.package.sources import ArchiveSource  # noqa: PLC0415

        parameters_of(db)  # a mistake in it is told before the input is waited for
        reading = Options(
            drop_torn_line=drop_torn_line,
            strict=strict,
            external_id=external_id,
            wanted=wanted(with_),
        )
        with progress(_NAME, quiet) as meter:
            archive = Archive(read_upload(meter.watch(source)))
            package = Package(ArchiveSource(archive), reading)
            report = _import(package, options, db, quiet)
        if output is None and is_terminal(1):
            _print(report)
        else:
            import json  # noqa: PLC0415

            tell(_NAME, package)
            try:
                sink.write(json.dumps(report, ensure_ascii=False).encode() + b"\n")
            except BrokenPipeError:
                raise
            except OSError as error:
                done = "nothing was imported, as asked" if dry_run else "the agent was imported"
                why = f"{done}, but the report cannot be written: {error.strerror}"
                raise MachineError(why) from None


def _import(
    package: Package, options: ImportOptions, db: str | None, quiet: bool
) -> dict[str, Any]:
    from agentmove_tools.database.connection import bring_forward  # noqa: PLC0415 (as above)
    from agentmove_tools.database.importing import import_package  # noqa: PLC0415

    with open_database(_NAME, db, quiet) as connection:
        if not options.dry_run:
            bring_forward(connection)
        return import_package(connection, package, options).to_json()


def _print(report: dict[str, Any]) -> None:
    """Print the report as a person reads it."""
    agent, team = report["agent"], report["team"]
    would = "would be " if report["dry_run"] else ""
    named = f"{agent['id'] or 'a new agent'}, {agent['name'] or agent['externalId']}"
    new = ", which is new" if team["created"] else ""
    print_lines([f"{would}{report['result']}: {named}, of team {team['name']}{new}"])
    columns = ("in", "written", "left_alone", "removed")
    print_table(
        ("table", "came in", "written", "left alone", "removed"),
        [
            (table, *(str(counts[column]) for column in columns))
            for table, counts in report["tables"].items()
        ],
    )
    print_lines(
        f"to be entered, {scope}: {', '.join(names)}"
        for scope, names in report["pending_secrets"].items()
    )
    print_not_taken(report)
