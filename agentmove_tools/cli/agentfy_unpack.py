"""``agentfy-unpack FOLDER``: a package becomes an agent's folder."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from agentmove_tools.cli.errors import say
from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version
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
from agentmove_tools.refusals import UsageError

_NAME = "agentfy-unpack"


def command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The agent's folder, a new one.")],
    update: Annotated[
        bool, typer.Option("--update", help="Write what differs into a FOLDER that is there.")
    ] = False,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete", help="With --update: take out what a package could hold and this lacks."
        ),
    ] = False,
    with_: With = None,
    strict: Strict = False,
    drop_torn_line: DropTornLine = False,
    external_id: ExternalId = None,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Read an agent package, check all of it, and put it into FOLDER.

    The report of what was done is JSON, or a table on a terminal. It names the secrets that are
    still to be entered.
    """
    from agentmove_tools.package.archive_reader import Archive, read_upload  # noqa: PLC0415
    from agentmove_tools.package.contents import Options, Package  # noqa: PLC0415
    from agentmove_tools.package.sources import ArchiveSource  # noqa: PLC0415
    from agentmove_tools.package.unpack import unpack  # noqa: PLC0415
    from agentmove_tools.package.unpacked import UnpackOptions  # noqa: PLC0415

    if delete and not update:
        raise UsageError("--delete goes with --update")
    check_external_id(external_id)
    options = Options(
        drop_torn_line=drop_torn_line,
        strict=strict,
        external_id=external_id,
        wanted=wanted(with_),
    )
    source = open_input("an agent package")
    # The output is opened first: a report that cannot be written is said before anything is done.
    with open_output(output, binary=False) as sink:
        with progress(_NAME, quiet) as meter:
            archive = Archive(read_upload(meter.watch(source)))
            package = Package(ArchiveSource(archive), options)
            done = unpack(package, os.fsencode(folder), UnpackOptions(update=update, delete=delete))
        report = done.to_json()
        if output is None and is_terminal(1):
            _print(report)
        else:
            import json  # noqa: PLC0415

            tell(_NAME, package)
            for path, warning in done.warnings:
                say(_NAME, f"warning: {path}: {warning}")
            sink.write(json.dumps(report, ensure_ascii=False).encode() + b"\n")


def _print(report: dict[str, Any]) -> None:
    """Print the report as a person reads it."""
    agent = report["agent"]
    print_lines([f"{report['result']}: agent {agent['name'] or agent['id'] or 'without a name'}"])
    columns = ("in", "written", "left_alone", "passed_over", "removed")
    print_table(
        ("part", "came in", "written", "left alone", "passed over", "removed"),
        [
            (part, *(str(counts[column]) for column in columns))
            for part, counts in [*report["parts"].items(), ("events", report["events"])]
        ],
    )
    lines = [
        f"to be entered, {scope}: {', '.join(names)}"
        for scope, names in report["pending_secrets"].items()
    ]
    lines += [f"removed: {path}" for path in report["removed"]]
    lines += [
        f"no longer to be entered, {scope}: {', '.join(names)}"
        for scope, names in report["removed_names"].items()
    ]
    print_lines(lines)
    print_not_taken(report)
