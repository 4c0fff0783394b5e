"""``lnk-manifest``: a new manifest of a Home, or the one that a stream starts with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from agentmove_tools.cli.errors import say
from agentmove_tools.cli.options import Exclude, Have, JsonErrors, Output, Quiet, Version
from agentmove_tools.cli.pipes import OutputPipe, open_input, open_output
from agentmove_tools.cli.progress import progress
from agentmove_tools.cli.terminal import is_terminal, print_table
from agentmove_tools.refusals import UsageError

_NAME = "lnk-manifest"


def command(
    home: Annotated[
        str | None, typer.Argument(metavar="[HOME]", help="The agent's Home.", show_default=False)
    ] = None,
    phase: Annotated[
        str | None,
        typer.Option(
            metavar="PHASE", help="copy, switch or files; needed with HOME.", show_default=False
        ),
    ] = None,
    move: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The move's ID, 32 hex digits, the same for a copy and its switch.",
            show_default=False,
        ),
    ] = None,
    have: Have = None,
    exclude: Exclude = None,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Make the manifest that a Move Stream of HOME starts with.

    Without HOME, print the manifest of the Move Stream on standard input.
    """
    with open_output(output, binary=False) as sink:
        if home is None:
            if phase or move or have or exclude:
                raise UsageError("--phase, --move, --have and --exclude go with a HOME")
            _show(sink, to_terminal=output is None and is_terminal(1))
        else:
            _make(home, phase, move, have, exclude or [], sink, quiet=quiet)


def _make(
    home: str,
    phase: str | None,
    move: str | None,
    have: Path | None,
    exclude: list[str],
    sink: OutputPipe,
    *,
    quiet: bool,
) -> None:
    from agentmove_tools.cli.have_file import read_have  # noqa: PLC0415  (--help needs none of it)
    from agentmove_tools.home.sender import Sender  # noqa: PLC0415
    from agentmove_tools.stream.manifest import check_move_id, check_phase  # noqa: PLC0415

    if phase is None:
        raise UsageError("--phase is missing: copy, switch or files")
    checked_phase = check_phase(phase)
    if move is not None:
        check_move_id(move)
    held = read_have(have)

    def left_out(path: bytes, reason: str) -> None:
        say(_NAME, f"{os.fsdecode(path)}: {reason}")

    with (
        progress(_NAME, quiet),
        Sender(os.fsencode(home), exclude=exclude, say=left_out, own=sink.identities) as sender,
    ):
        made = sender.manifest(checked_phase, move=move, have=held)
        sink.write(made.to_json() + b"\n")


def _show(sink: OutputPipe, *, to_terminal: bool) -> None:
    from agentmove_tools.stream.tar_reader import MoveReader  # noqa: PLC0415

    source = open_input("a Move Stream")
    found = MoveReader(source).manifest
    if to_terminal:
        print_table(("field", "value"), found.summary())
    else:
        sink.write(found.to_json() + b"\n")
    # The stage before would be ended by SIGPIPE if its stream were not read to the end.
    source.drain()
