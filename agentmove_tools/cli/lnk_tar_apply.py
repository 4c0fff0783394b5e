"""``lnk-tar-apply HOME``: a Move Stream is put in place, all or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentmove_tools.cli.options import (
    JsonErrors,
    Links,
    MaxBytes,
    MaxEntries,
    Output,
    Quiet,
    Version,
)
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress
from agentmove_tools.cli.terminal import is_terminal
from agentmove_tools.refusals import UsageError

if TYPE_CHECKING:
    from agentmove_tools.home.report import Report

_NAME = "lnk-tar-apply"


def command(
    home: Annotated[
        str, typer.Argument(metavar="HOME", help="The agent's Home; it need not be there yet.")
    ],
    links: Links = "inside",
    max_bytes: MaxBytes = None,
    max_entries: MaxEntries = None,
    on_diverged: Annotated[
        str,
        typer.Option(
            metavar="refuse|keep-both",
            help="What becomes of a conversation that both ends went on with.",
        ),
    ] = "refuse",
    replace_agent: Annotated[
        bool, typer.Option("--replace-agent", help="Take a HOME that is another agent's.")
    ] = False,
    keep_old: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep the old Home as FOLDER, a new one.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the whole stream, say what would happen, and stop."),
    ] = False,
    drop_staged: Annotated[
        bool,
        typer.Option(
            "--drop-staged",
            help="Throw a staged copy away; then take the stream, if one comes.",
        ),
    ] = False,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Take a Move Stream into HOME.

    A copy is staged beside it. A switch puts the agent in place, all or nothing. The report of
    what was done is JSON, or a table on a terminal.
    """
    from agentmove_tools.home import receiver  # noqa: PLC0415  (--help needs none of it)
    from agentmove_tools.stream.paths import check_links_option  # noqa: PLC0415
    from agentmove_tools.stream.tar_reader import MoveReader  # noqa: PLC0415

    if on_diverged not in ("refuse", "keep-both"):
        raise UsageError("--on-diverged is refuse or keep-both")
    if dry_run and drop_staged:
        raise UsageError("--dry-run changes nothing, and --drop-staged does: not both at once")
    any_links = check_links_option(links)
    target = os.fsencode(home)
    options = receiver.Options(
        replace_agent=replace_agent,
        keep_both=on_diverged == "keep-both",
        dry_run=dry_run,
        keep_old=None if keep_old is None else os.fsencode(keep_old),
    )
    dropped = receiver.drop_staged(target) if drop_staged else False
    if drop_staged and is_terminal(0):
        _say_dropped(output, dropped)
        return
    source = open_input("a Move Stream")
    if drop_staged and source.is_empty():
        _say_dropped(output, dropped)
        return
    with progress(_NAME, quiet) as meter:
        reader = MoveReader(
            meter.watch(source),
            any_links=any_links,
            max_bytes=max_bytes,
            max_entries=max_entries,
        )
        report = receiver.receive(target, reader, options)
    with open_output(output, binary=False) as sink:
        if output is None and is_terminal(1):
            _print(report)
        else:
            import json  # noqa: PLC0415

            sink.write(json.dumps(report.to_json(), ensure_ascii=False).encode() + b"\n")


def _say_dropped(output: Path | None, dropped: bool) -> None:
    result = "dropped" if dropped else "nothing was staged"
    with open_output(output, binary=False) as sink:
        sink.write(f'{{"result": "{result}"}}\n'.encode())


def _print(report: Report) -> None:
    """Print the report as a person reads it."""
    from agentmove_tools.cli.terminal import print_lines, print_table  # noqa: PLC0415

    columns = ("in", "written", "left_alone", "passed_over", "kept", "removed")
    print_lines(report.summary())
    print_table(
        ("part", "came in", "written", "left alone", "passed over", "kept", "removed"),
        [
            (kind, *(str(counts[column]) for column in columns))
            for kind, counts in sorted(report.kinds.items())
        ],
    )
