"""``lnk-unseal``: open a sealed envelope."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentmove_tools.cli.errors import say
from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress
from agentmove_tools.envelope.key_files import load, read_identity
from agentmove_tools.envelope.unseal import unseal
from agentmove_tools.refusals import UsageError


def command(
    identity: Annotated[
        list[Path],
        typer.Option("--identity", "-i", metavar="FILE", help="Read the identity here."),
    ],
    output: Output = None,
    json_errors: JsonErrors = False,
    quiet: Quiet = False,
    version: Version = False,
) -> None:
    """Open the sealed envelope on standard input.

    Nothing comes out that is not authenticated, and the end only once all of it is.
    """
    if len(identity) != 1:
        raise UsageError("give one identity file with -i: there is more than one")
    path = identity[0]
    file = load(path)
    key = read_identity(file.content, str(path))
    if file.is_exposed:
        say("lnk-unseal", f"warning: others may read the identity in {path}: chmod 600 it")
    with progress("lnk-unseal", quiet) as meter:
        source = open_input("a sealed envelope")
        meter.total = source.size()
        # What was worth sealing may hold credentials.
        with open_output(output, binary=True, what="what was sealed", secret=True) as sink:
            unseal(meter.watch(source), sink, key)
