"""``agentfy-unpack [FOLDER]``: a package becomes an agent's folder, or a Move Stream."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentmove_tools.cli.errors import say
from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version
from agentmove_tools.cli.packages import (
    CrossingReport,
    DropTornLine,
    ExternalId,
    Strict,
    With,
    check_external_id,
    only_of_streams,
    open_report,
    print_not_taken,
    tell,
    tell_crossing,
    wanted,
    write_crossing,
)
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress
from agentmove_tools.cli.terminal import is_terminal, print_lines, print_table
from agentmove_tools.refusals import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from agentmove_tools.package.contents import Options

_NAME = "agentfy-unpack"


def command(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[FOLDER]",
            help="The agent's folder, a new one; without it a Move Stream is written.",
            show_default=False,
        ),
    ] = None,
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
    move: Annotated[
        str | None,
        typer.Option(
            "--move",
            metavar="ID",
            help="Without FOLDER: the move's ID, 32 hex digits; a new one where none is given.",
            show_default=False,
        ),
    ] = None,
    report: CrossingReport = None,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Read an agent package, check all of it, and put it into FOLDER or write a Move Stream.

    With FOLDER, the report of what was done is JSON, or a table on a terminal, and names the
    secrets that are still to be entered. Without, the stream is a switch that leaves the files,
    the connections and the scheduled jobs of the Home that it reaches.
    """
    from agentmove_tools.package.contents import Options  # noqa: PLC0415 (not for --help)

    if folder == "":
        raise UsageError("FOLDER is empty: a variable that is not set?")
    if delete and not update:
        raise UsageError("--delete goes with --update")
    if update and folder is None:
        raise UsageError("--update needs a FOLDER: name the agent's folder")
    only_of_streams("--move", folder, given=move is not None)
    only_of_streams("--report", folder, given=report is not None)
    check_external_id(external_id)
    options = Options(
        drop_torn_line=drop_torn_line,
        strict=strict,
        external_id=external_id,
        wanted=wanted(with_),
    )
    if folder is not None:
        _unpack_folder(folder, options, output, quiet, update=update, delete=delete)
    else:
        _unpack_stream(options, output, report, move, quiet)


def _unpack_folder(
    folder: str, options: Options, output: Path | None, quiet: bool, *, update: bool, delete: bool
) -> None:
    from agentmove_tools.package.archive_reader import Archive, read_upload  # noqa: PLC0415
    from agentmove_tools.package.contents import Package  # noqa: PLC0415
    from agentmove_tools.package.sources import ArchiveSource  # noqa: PLC0415
    from agentmove_tools.package.unpack import unpack  # noqa: PLC0415
    from agentmove_tools.package.unpacked import UnpackOptions  # noqa: PLC0415

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


def _unpack_stream(
    options: Options, output: Path | None, report: Path | None, move: str | None, quiet: bool
) -> None:
    from agentmove_tools.bridge.to_stream import write_stream  # noqa: PLC0415 (not for --help)
    from agentmove_tools.package.archive_reader import Archive, read_upload  # noqa: PLC0415
    from agentmove_tools.package.contents import Package  # noqa: PLC0415
    from agentmove_tools.package.sources import ArchiveSource  # noqa: PLC0415
    from agentmove_tools.stream.manifest import check_move_id  # noqa: PLC0415

    if move is not None:
        check_move_id(move)
    source = open_input("an agent package")
    with (
        open_output(output, binary=True, what="a Move Stream") as sink,
        open_report(report, output) as report_sink,
    ):
        with progress(_NAME, quiet) as meter:
            archive = Archive(read_upload(meter.watch(source)))
            # what has no place is refused as such, and not as a path of the archive
            package = Package(ArchiveSource(archive), options._replace(strict=False))
            crossing = write_stream(package, sink, move=move, strict=options.strict)
        tell_crossing(_NAME, crossing)
        write_crossing(report_sink, crossing)


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
