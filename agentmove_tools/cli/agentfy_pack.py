"""``agentfy-pack [FOLDER]``: an agent's folder, or a Move Stream, becomes a package."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from agentmove_tools.cli.options import JsonErrors, Links, Output, Quiet, Version
from agentmove_tools.cli.packages import (
    CrossingReport,
    DropTornLine,
    ExternalId,
    StrictOfFolder,
    With,
    check_external_id,
    only_of_streams,
    open_report,
    tell,
    tell_crossing,
    wanted,
    write_crossing,
)
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress
from agentmove_tools.refusals import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from agentmove_tools.package.contents import Options

_NAME = "agentfy-pack"


def command(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[FOLDER]",
            help="The agent's folder, such as .agent; without it a Move Stream is read.",
            show_default=False,
        ),
    ] = None,
    with_: With = None,
    strict: StrictOfFolder = False,
    drop_torn_line: DropTornLine = False,
    skip_events: Annotated[
        bool,
        typer.Option(
            "--skip-events",
            help="Without FOLDER: name the events that a package cannot hold, and leave them out.",
        ),
    ] = False,
    external_id: ExternalId = None,
    links: Links = "inside",
    report: CrossingReport = None,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Write the agent package, a ZIP archive, of FOLDER or of a Move Stream.

    The same agent gives the same bytes. Secrets go by name only. What a package has no place
    for is named on standard error and left out.
    """
    from agentmove_tools.package.contents import Options  # noqa: PLC0415 (not for --help)
    from agentmove_tools.stream.paths import check_links_option  # noqa: PLC0415

    if folder == "":
        raise UsageError("FOLDER is empty: a variable that is not set?")
    any_links = check_links_option(links)
    check_external_id(external_id)
    only_of_streams("--skip-events", folder, given=skip_events)
    only_of_streams("--report", folder, given=report is not None)
    only_of_streams("--links", folder, given=any_links)
    options = Options(
        drop_torn_line=drop_torn_line,
        strict=strict,
        external_id=external_id,
        wanted=wanted(with_),
    )
    if folder is not None:
        _pack_folder(folder, options, output)
    else:
        _pack_stream(options, output, report, skip_events, any_links, quiet)


def _pack_folder(folder: str, options: Options, output: Path | None) -> None:
    from agentmove_tools.package.contents import Package  # noqa: PLC0415 (not for --help)
    from agentmove_tools.package.folder import FolderSource, open_folder  # noqa: PLC0415
    from agentmove_tools.package.pack import pack  # noqa: PLC0415

    with open_output(output, binary=True, what="an agent package") as sink:
        try:
            root = open_folder(os.fsencode(folder))
        except NotADirectoryError:
            raise UsageError(
                f"{folder} is a file: name a folder",
                hint=f"a Move Stream is read from standard input: {_NAME} < {shlex.quote(folder)}",
            ) from None
        source = FolderSource(root, identities=sink.identities, wanted=options.wanted)
        package = Package(source, options)
        pieces = pack(package)
        tell(_NAME, package)
        sink.write(b"".join(pieces))


def _pack_stream(
    options: Options,
    output: Path | None,
    report: Path | None,
    skip_events: bool,
    any_links: bool,
    quiet: bool,
) -> None:
    from agentmove_tools.bridge.to_package import package_of  # noqa: PLC0415 (not for --help)
    from agentmove_tools.stream.tar_reader import MoveReader  # noqa: PLC0415

    source = open_input("a Move Stream, or FOLDER as an argument,")
    with (
        open_output(output, binary=True, what="an agent package") as sink,
        open_report(report, output) as report_sink,
    ):
        with progress(_NAME, quiet) as meter:
            reader = MoveReader(meter.watch(source), any_links=any_links)
            _, pieces, crossing = package_of(reader, options, skip_events=skip_events)
        tell_crossing(_NAME, crossing)
        write_crossing(report_sink, crossing)
        sink.write(b"".join(pieces))
