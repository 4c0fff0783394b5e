"""``lnk-seal``: seal standard input to a recipient."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress
from agentmove_tools.envelope.key_files import load, read_recipient
from agentmove_tools.envelope.keys import Recipient, parse_recipient
from agentmove_tools.envelope.seal import seal
from agentmove_tools.refusals import UsageError


def command(
    recipient: Annotated[
        list[str] | None,
        typer.Option(
            "--recipient", "-r", metavar="RECIPIENT", help="Seal to this: lnk1... or 64 hex digits."
        ),
    ] = None,
    recipient_file: Annotated[
        list[Path] | None,
        typer.Option("--recipient-file", "-R", metavar="FILE", help="Read the recipient here."),
    ] = None,
    output: Output = None,
    json_errors: JsonErrors = False,
    quiet: Quiet = False,
    version: Version = False,
) -> None:
    """Seal standard input, any bytes, to one recipient.

    Give exactly one of -r and -R. Only the recipient's identity opens what comes out; who sealed
    it, it does not say.
    """
    to = _recipient(recipient or [], recipient_file or [])
    with progress("lnk-seal", quiet) as meter:
        source = open_input("what is to be sealed")
        meter.total = source.size()
        with open_output(output, binary=True, what="a sealed envelope") as sink:
            seal(meter.watch(source), sink, to)


def _recipient(texts: list[str], files: list[Path]) -> Recipient:
    if len(texts) + len(files) != 1:
        seen = "none" if not texts and not files else "more than one"
        raise UsageError(f"give one recipient, with -r or -R: there is {seen}")
    if texts:
        return parse_recipient(texts[0])
    return read_recipient(load(files[0]).content, str(files[0]))
